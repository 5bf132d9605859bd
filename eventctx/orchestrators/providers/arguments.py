"""From the text that a model wrote to the arguments of a tool call."""

from __future__ import annotations

from typing import Any, Final

from eventctx.log.arguments import shown
from eventctx.messages.encoding import MAX_DEPTH, decode_json, is_deeper
from eventctx.text import clip

_SHOWN: Final = 200
_MOST_LEVELS: Final = MAX_DEPTH - 8
"""Of arguments; the others are for the message around them."""


def read_arguments(written: object) -> tuple[dict[str, Any], str | None]:
    """The arguments, and the reason why they cannot be used; an empty text means no arguments.

    ``written`` is a JSON text, or an object, which Anthropic and some servers send.
    """
    value = written
    if isinstance(written, str):
        try:
            value = decode_json(written, _MOST_LEVELS) if written.strip() else {}
        except ValueError as error:
            return {}, f"the arguments are no JSON ({error}): {clip(written, _SHOWN + 1)}"
    if value is not None and not isinstance(value, dict):
        return {}, f"the arguments are no JSON object: {shown(written, _SHOWN)}"
    if is_deeper(value, _MOST_LEVELS):
        return {}, f"the arguments are nested deeper than {_MOST_LEVELS} levels"
    return value or {}, None
