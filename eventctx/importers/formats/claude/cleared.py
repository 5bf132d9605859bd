"""Results of tools that Claude Code, or the provider for it, cleared from the conversation.

A ``microcompact_boundary`` names the calls whose results it cleared. The provider's own clearing
(``context_management``) counts them alone: they are the oldest ones. The program sends the results
on with a short text in place of their contents.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.importers.source.lines import count, list_or_empty, object_or_empty
from eventctx.importers.source.spill_file import SpillFile
from eventctx.importers.source.values import decode, encode

INSTEAD: Final = "[Old tool result content cleared]"
"""What Claude Code sends in place of a result."""

_CLEARS_RESULTS: Final = "clear_tool_uses"


class ResultPlaces:
    """The places of all results; a message with more than one result is on disk."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._cleared: set[str] = set()
        self._spilled: dict[int, int] = {}
        self._spill = SpillFile()

    def close(self) -> None:
        """Give the space of the messages back."""
        self._spill.close()

    def add(self, place: int, message: dict[str, Any]) -> None:
        """Take the message at ``place``."""
        blocks = list_or_empty(message.get("content"))
        ids = [one.get("tool_use_id") for one in map(object_or_empty, blocks) if _is_result(one)]
        self._places.update((one, place) for one in ids if isinstance(one, str))
        if ids and len(blocks) > 1:
            self._spilled[place] = self._spill.put(encode(message))

    def cleared(self, calls: list[Any]) -> dict[int, dict[str, Any]]:
        """The messages that hold the results of these calls, by place, as they are sent now."""
        fresh = [
            one
            for one in calls
            if isinstance(one, str) and one in self._places and one not in self._cleared
        ]
        self._cleared.update(fresh)
        return {self._places[one]: self._without(self._places[one], one) for one in fresh}

    def oldest(self, number: int) -> list[Any]:
        """The calls of the first results."""
        return list(self._places)[:number]

    def _without(self, place: int, call: str) -> dict[str, Any]:
        if place not in self._spilled:
            block = {"type": "tool_result", "tool_use_id": call, "content": INSTEAD}
            return {"role": "user", "content": [block]}
        message: dict[str, Any] = decode(self._spill.get(self._spilled[place]))
        for block in map(object_or_empty, message["content"]):
            if _is_result(block) and block.get("tool_use_id") in self._cleared:
                block["content"] = INSTEAD
        return message


def cleared_by_provider(message: dict[str, Any]) -> int:
    """How many results the provider cleared in the request of this answer."""
    edits = object_or_empty(message.get("context_management")).get("applied_edits")
    found = [
        count(one.get("cleared_tool_uses"))
        for one in map(object_or_empty, list_or_empty(edits))
        if str(one.get("type")).startswith(_CLEARS_RESULTS)
    ]
    return max(found, default=0)


def _is_result(block: object) -> bool:
    return object_or_empty(block).get("type") == "tool_result"
