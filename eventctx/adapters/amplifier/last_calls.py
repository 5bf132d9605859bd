"""The calls of the last answer, for hosts that name a call by its tool and arguments alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any


class LastCalls:
    """Calls whose tools have not begun yet, in order."""

    def __init__(self) -> None:
        self._calls: list[Mapping[str, Any]] = []

    def noted(self, row: Mapping[str, Any]) -> None:
        """Take the calls of an answer in the place of those before; a row without any has none."""
        calls = row.get("tool_calls")
        if isinstance(calls, list) and calls:
            self._calls = [call for call in calls if isinstance(call, Mapping)]

    def taken(self, name: str, given: object) -> str | None:
        """The id of the first call of a tool with these arguments, once; None if there is none."""
        wanted = _canonical(given)
        for at, call in enumerate(self._calls):
            function = call.get("function")
            named = call.get("tool", call.get("name"))
            arguments = call.get("arguments", call.get("input"))
            if isinstance(function, Mapping):
                named, arguments = function.get("name"), function.get("arguments")
            if named == name and _canonical(arguments) == wanted:
                del self._calls[at]
                call_id = call.get("id")
                return call_id if isinstance(call_id, str) else None
        return None


def _canonical(arguments: object) -> str:
    """Arguments in one form; some dialects have them as text."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            arguments = json.loads(arguments)
    return json.dumps(arguments, sort_keys=True, default=str)
