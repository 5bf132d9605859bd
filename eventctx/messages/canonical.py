"""The canonical form of a sent request's parts, and the digests made of it.

The rule is that of Claude Code 2.1.330, read from its transcripts and checked against the requests
that a server received: SHA-256 of the JSON with sorted keys and without spaces, without any
``cache_control``. Of a transcript's message role and content are sent; a content that is a text
counts as one text block. Two messages with one digest are the same for the model.

JSON is written as JavaScript writes it, since the digests that are compared were made by it: keys
in the order of their UTF-16 units, numbers in its own shortest form.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

RULE: Final = "claude-code-1"
"""The name of this rule in the log."""

_text = json.encoder.encode_basestring
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}
_EXPONENT_FROM, _EXPONENT_BELOW = 21, -7


def canonical(value: Any) -> str:
    """The canonical JSON of a decoded value; any ``cache_control`` in it is left out."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        keys = [key for key in value if key != "cache_control"]
        keys.sort(key=None if "".join(keys).isascii() else _units)
        return "{" + ",".join([f"{_text(key)}:{canonical(value[key])}" for key in keys]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else json.dumps(value)


def digest_of(value: Any) -> bytes:
    """SHA-256 of the canonical form. A surrogate that is no text counts as U+FFFD."""
    return sha256(canonical(value).encode("utf-8", "replace")).digest()


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """The parts of a stored message that a request holds: its role and its content."""
    return {key: message[key] for key in ("role", "content") if key in message}


def message_digest(message: dict[str, Any]) -> bytes:
    """The digest of a transcript's message as it is sent."""
    return sent_digest(as_sent(message))


def sent_digest(message: dict[str, Any]) -> bytes:
    """The digest of a message of a request, whatever fields it was sent with."""
    content = message.get("content")
    if isinstance(content, str):
        message = {**message, "content": [{"type": "text", "text": content}]}
    return digest_of(message)


def _units(key: str) -> bytes:
    # Code points and UTF-16 units give the same order, but for characters beyond the first plane.
    return key.encode("utf-16-be", "surrogatepass")


def _number(value: float) -> str:
    """A float as JavaScript's ``String(value)`` writes it (ECMA-262, Number::toString)."""
    sign = "-" if value < 0 else ""
    digits, _, power = f"{abs(value)!r}".partition("e")
    whole, _, fraction = digits.partition(".")
    shift = int(power or 0) + len(whole)
    figures = (whole + fraction).lstrip("0")
    shift -= len(whole + fraction) - len(figures)
    figures = figures.rstrip("0")
    if not figures:
        return "0"
    if len(figures) <= shift <= _EXPONENT_FROM:
        return sign + figures + "0" * (shift - len(figures))
    if 0 < shift <= _EXPONENT_FROM:
        return f"{sign}{figures[:shift]}.{figures[shift:]}"
    if _EXPONENT_BELOW < shift - 1 < 0 or shift == 0:
        return f"{sign}0.{'0' * -shift}{figures}"
    exponent = f"e{'+' if shift > 0 else '-'}{abs(shift - 1)}"
    return sign + figures[0] + (f".{figures[1:]}" if len(figures) > 1 else "") + exponent
