"""The text of a message as the metric reads it: the same for what is needed and for what holds it.

A model writes a file's lines into the JSON of a call, a tool quotes them behind line numbers, a
view shortens them. So escapes are opened, runs of blanks become one blank, lines are stripped, and
empty lines go. Thinking is left out: it is no evidence of what was read, and views drop it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.media import shown_of
from eventctx.messages.parts import Part, hosted_arguments, parts_of_result, read_parts
from eventctx.text import pattern

_ESCAPE: Final = pattern(r'\\([nt"/])')
_OPENED: Final = {"n": "\n", "t": " ", '"': '"', "/": "/"}


def normalised(message: dict[str, Any]) -> str:
    """The prose, the texts in call arguments and the texts of results of a message of any dialect.

    Works for shortened copies and insertions as well. Lines are separated by line feeds.
    """
    texts: list[str] = []
    for part in read_parts(message):
        _read(part, texts)
    return normalised_text("\n".join(texts))


def normalised_text(text: str) -> str:
    """A text in the form in which both sides are compared."""
    if "\\" in text:
        text = _ESCAPE.sub(lambda found: _OPENED[found[1]], text)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return "\n".join([line for line in lines if line])


def _read(part: Part, texts: list[str]) -> None:
    match part.kind:
        case "text" | "refusal":
            texts.append(part.value)
        case "call":
            _add_arguments(part.value, texts)
        case "result":
            for inner in parts_of_result(part):
                _read(inner, texts)
        case "hosted":
            if part.type.endswith("_tool_result"):
                content = part.value.get("content", part.value.get("output"))
                _read(Part("result", (), content), texts)
            else:
                _add_arguments(hosted_arguments(part), texts)
        case "thinking":
            pass
        case _:
            shown = shown_of(part.value)
            if shown is None:
                _add_leaves(part.value, texts)
            else:
                texts.extend(shown.texts)


def _add_arguments(value: object, texts: list[str]) -> None:
    """Add the string leaves of arguments, which most dialects write as JSON in a string."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        # A custom tool's own text may begin so, too, and JSON may have been cut.
        with suppress(msgspec.DecodeError):
            value = decode_json(value)
    _add_leaves(value, texts)


def _add_leaves(value: object, texts: list[str]) -> None:
    """Add the strings in a value, keys left out, in their order; by a list, however deep it is."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict):
            left.extend(reversed(one.values()))
        elif isinstance(one, list):
            left.extend(reversed(one))
