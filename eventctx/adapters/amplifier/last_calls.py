"""The calls of the last answer, for hosts that name a call by its tool and arguments alone."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from eventctx.messages.parts import Part, read_parts


class LastCalls:
    """Calls whose tools have not begun yet, in order."""

    def __init__(self) -> None:
        self._calls: list[Part] = []

    def noted(self, row: dict[str, Any]) -> None:
        """Take the calls of an answer in the place of those before; a row without any has none."""
        calls = [part for part in read_parts(row) if part.kind == "call"]
        self._calls = calls or self._calls

    def taken(self, name: str, given: object) -> tuple[str | None, int]:
        """The id of the first call of a tool with these arguments, once, and how many are left.

        The id is None if there is none.
        """
        wanted = _canonical(given)
        alike = [
            call for call in self._calls if call.name == name and _canonical(call.value) == wanted
        ]
        if not alike:
            return None, 0
        self._calls = [call for call in self._calls if call is not alike[0]]
        return alike[0].ids[0], len(alike) - 1


def _canonical(arguments: object) -> str:
    """Arguments in one form; some dialects have them as text."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    return json.dumps(arguments, sort_keys=True, default=str)
