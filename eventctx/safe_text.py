"""Text that is safe to show: it controls no terminal, adds no line, and its URLs hide passwords.

What a tool prints, a file says or a person types may hold anything. Screens, JSON on a terminal,
log lines and the library's own messages all use the one list of characters that stands here.
"""

from __future__ import annotations

import re
from typing import Final

from eventctx.patterns import pattern

# C0 without tab and line feed, DEL and C1; line separators; marks that reorder text on the screen;
# characters without a width and tags, which hide text from its reader but not from a model; and
# lone surrogates, which no encoding can write.
_CHARACTERS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE: Final = pattern(f"[{_CHARACTERS}]")
_UNSAFE_OR_BREAK: Final = pattern(f"[\t\n{_CHARACTERS}]")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

_USER_INFO: Final = (
    r"[^\s/:@\"'<>\\]{0,256}+:((?:[^\s/@\"'<>\\]|@(?=[^\s/@\"'<>\\]{0,128}@)){1,256}+)@"
)
URL_PASSWORD: Final = pattern(f"://{_USER_INFO}")
"""A URL's password, as the group. An @ inside it belongs to it if another one follows."""
_PARAMETER: Final = pattern(
    r"[?&](?:password|sslpassword|passwd|pass|token|auth_token|jwt|seed|nkey)=([^&\s#\"']{1,1024})",
    re.IGNORECASE,
)
"""A password among the parameters of a URL, as drivers take it."""
_NATS: Final = pattern(r"\b((?:nats|tls)://)([^\s/?\"'<>\\]{1,4096}+)")
_TOKEN: Final = pattern(r"(\A|,)[^,:@]+@")
"""A server of NATS takes a token in the place of a name."""
_GIVEN_PASSWORD: Final = pattern(rf"(?:://|\A){_USER_INFO}")


def escape(text: str) -> str:
    r"""``text`` with control characters as ``\x1b`` or ``\u202e``; tabs and line feeds stay."""
    return _UNSAFE.sub(_code, text)


def escape_breaks(text: str) -> str:
    r"""``text`` escaped, with line feeds as ``\n`` and tabs as ``\t``: always one line."""
    return _UNSAFE_OR_BREAK.sub(_code, text)


def escape_json(document: str) -> str:
    r"""A JSON document whose strings have unsafe characters as ``\u202e``; the same value.

    Of the controls below the blank JSON allows three, and only as layout: tab and line feed stay,
    a carriage return becomes a blank.
    """
    return _UNSAFE.sub(_json_code, document)


def without_password(text: str) -> str:
    """``text`` with ``[redacted:password]`` for the passwords and tokens of its URLs.

    For messages about what somebody gave as a URL. So it may also be all of the text and have no
    scheme: ``user:…@host``.
    """
    text = _GIVEN_PASSWORD.sub(_hidden, text)
    return _NATS.sub(_without_tokens, _PARAMETER.sub(_hidden, text))


def _code(match: re.Match[str]) -> str:
    found = match[0]
    number = ord(found)
    if found in _SHORT:
        return _SHORT[found]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_code(match: re.Match[str]) -> str:
    if match[0] == "\r":
        return " "
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join([f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)])


def _hidden(match: re.Match[str]) -> str:
    whole, start = match[0], match.start()
    return f"{whole[: match.start(1) - start]}[redacted:password]{whole[match.end(1) - start :]}"


def _without_tokens(match: re.Match[str]) -> str:
    # A colon would make the marker itself look like a name and its password.
    return match[1] + _TOKEN.sub(r"\1[redacted]@", match[2])
