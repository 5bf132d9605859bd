"""The arguments of a tool call, from the text that a model wrote."""

from __future__ import annotations

from typing import Any, Final

import msgspec

_SHOWN: Final = 200


def read_arguments(written: object) -> tuple[dict[str, Any], str | None]:
    """The arguments, and why they cannot be used; nothing at all means none were given.

    ``written`` is a JSON text, or an object already, as Anthropic and some servers have it.
    """
    value = written
    if isinstance(written, str):
        try:
            value = msgspec.json.decode(written) if written.strip() else {}
        except ValueError as error:
            return {}, f"the arguments are no JSON ({error}): {_shown(written)}"
    if value is not None and not isinstance(value, dict):
        return {}, f"the arguments are no JSON object: {_shown(str(written))}"
    return value or {}, None


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
