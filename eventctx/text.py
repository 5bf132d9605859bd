"""Text: the one way to search it, to clip it, to make it safe, and to show an answer at a prompt.

Safe text controls no terminal, adds no line, and its URLs hide passwords. The output of a tool, a
file or a person may hold anything. Screens, JSON on a terminal, log lines and the library's own
messages all use the one list of characters here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final


class _Pattern:
    """A ``re.Pattern`` that is compiled when it is first used.

    A module that names a dozen of them would compile all at import, 0.1 to 3 ms each, in every
    process that loads the module and for most of them in vain. An expression that is wrong raises
    at its first use, so a test compiles every one.

    The first use of an attribute fetches it from the real pattern. It is then an
    attribute of this object, so a later use costs no call. Two threads that use one at the same
    time both get it from ``re``, which keeps one compiled pattern.
    """

    def __init__(self, expression: Any, flags: int = 0) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._expression, self._flags), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    pattern = re.compile
else:
    pattern = _Pattern


def clip(text: str, length: int, *, end: bool = False) -> str:
    """``text`` of at most ``length`` characters, with an ellipsis in the place of what is cut.

    With ``end`` the end of the text stays, as the more telling part of a path.
    """
    if len(text) <= length:
        return text
    kept = max(0, length - 1)
    return f"…{text[len(text) - kept :]}" if end else f"{text[:kept]}…"


# C0 without tab and line feed, DEL and C1; line separators; marks that reorder text on the screen;
# characters without a width and tags, which hide text from its reader but not from a model; and
# lone surrogates, which no encoding can write.
_CHARACTERS: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSAFE: Final = pattern(f"[{_CHARACTERS}]")
_UNSAFE_OR_BREAK: Final = pattern(f"[\t\n{_CHARACTERS}]")
_NAMED: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}

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
    if "@" not in text and "=" not in text:
        return text  # a path, as most are: no expression is compiled for it
    text = _GIVEN_PASSWORD.sub(_hidden, text)
    return _NATS.sub(_without_tokens, _PARAMETER.sub(_hidden, text))


def _code(match: re.Match[str]) -> str:
    found = match[0]
    number = ord(found)
    if found in _NAMED:
        return _NAMED[found]
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


# -- answers at a prompt -------------------------------------------------------------------------

MAX_ROWS: Final = 50
"""Most rows of a table; the rest is counted."""

MAX_CELL: Final = 200
"""Characters of a text in a cell."""


def summary_line(name: str, *facts: object) -> str:
    """An answer at a prompt: ``<name fact, fact>``; None and empty facts are left out."""
    given = ", ".join([str(fact) for fact in facts if fact not in (None, "")])
    return f"<{name} {given}>"


def counted(number: int, thing: str) -> str:
    """``1 message``, ``1,200 messages``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table of at most ``MAX_ROWS`` rows, as a notebook shows it (``_repr_html_``).

    Every text is escaped: a message may hold markup, and must not become part of the page.
    """
    from html import escape as escape_markup  # few programs are notebooks

    found = list(rows)
    shown = found[:MAX_ROWS]
    head = "".join([f"<th>{escape_markup(one)}</th>" for one in heads])
    body = "".join(
        [
            "<tr>" + "".join([f"<td>{escape_markup(_cell(one))}</td>" for one in row]) + "</tr>"
            for row in shown
        ]
    )
    left = len(found) - len(shown)
    more = f"<p>and {left:,} more</p>" if left else ""
    return (
        f"<table><caption>{escape_markup(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{more}"
    )


def cell_text(message: Mapping[str, Any] | None) -> str:
    """A message's content in a cell: a text as it is, blocks as JSON."""
    import msgspec

    if message is None:
        return "[erased]"
    content = message.get("content", message)
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = f"{value:,}" if type(value) is int else str(value)
    return clip(text, MAX_CELL + 1)
