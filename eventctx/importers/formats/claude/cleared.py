"""Tool results and thinking that the program, or the provider, cleared.

A ``microcompact_boundary`` names the calls whose results the program cleared. A
``content-replacement`` names calls whose results are too long together, and the preview that is
sent for each. The provider's own clearing (``context_management``) counts what it took out of that
request, and names nothing: the oldest results (``clear_tool_uses``), the thinking of the oldest
turns (``clear_thinking``). It counts anew for every request, so a number that stays says nothing
new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import list_or_empty, object_or_empty
from eventctx.importers.source.spill_file import SpillFile
from eventctx.importers.source.values import decode, encode

INSTEAD: Final = "[Old tool result content cleared]"
"""Claude Code sends this in place of a result."""


class Shortened(NamedTuple):
    """Places of messages, and the messages as they are sent now."""

    places: tuple[int, ...]
    messages: tuple[dict[str, Any], ...]


class ClearedPlaces:
    """The places of all results and of all thinking; a message with two results is on disk."""

    def __init__(self) -> None:
        self._results: dict[str, int] = {}
        self._sent: dict[str, str] = {}
        self._thinking: list[list[int]] = [[]]
        self._without: set[int] = set()
        self._gone: set[int] = set()
        self._taken_out: list[set[int]] = []
        self._spilled: dict[int, int] = {}
        self._spill = SpillFile()
        self._count = 0

    def close(self) -> None:
        """Give the space of the messages back."""
        self._spill.close()

    def add(self, place: int, message: dict[str, Any]) -> None:
        """Take the message at ``place``."""
        self._count = place + 1
        blocks = list_or_empty(message.get("content"))
        kinds = [object_or_empty(one).get("type") for one in blocks]
        if "thinking" in kinds or "redacted_thinking" in kinds:
            self._thinking[-1].append(place)
        ids = [one.get("tool_use_id") for one in map(object_or_empty, blocks) if _is_result(one)]
        self._results.update((one, place) for one in ids if isinstance(one, str))
        if ids and len(blocks) > 1:
            self._spilled[place] = self._spill.put(encode(message))

    def begin_turn(self) -> None:
        """A person's message: what the model thinks from here on is of another turn."""
        if self._thinking[-1]:
            self._thinking.append([])

    def forget(self, places: frozenset[int] | None) -> None:
        """A compaction takes these messages out, or all."""
        fresh = set(range(self._count) if places is None else places) - self._gone
        self._taken_out.append(fresh)
        self._gone |= fresh

    def undo(self, places: frozenset[int], compactions: frozenset[int]) -> None:
        """Messages are taken back, and with them what these compactions took out returns."""
        for number in compactions:
            self._gone -= self._taken_out[number]
        self._gone |= places

    def clear(self, sent: Mapping[str, str]) -> Shortened:
        """The messages that change where these texts are sent for the results of these calls.

        What was cleared stays so; a preview may still be cleared.
        """
        fresh = [
            one
            for one, instead in sent.items()
            if one in self._results and self._sent.get(one) not in (INSTEAD, instead)
        ]
        self._sent.update((one, sent[one]) for one in fresh)
        found = {self._results[one]: self._cut(self._results[one], one) for one in fresh}
        places = tuple(sorted(found))
        return Shortened(places, tuple([found[place] for place in places]))

    def clear_oldest(self, number: int) -> Shortened:
        """As ``clear``, of the first results of the conversation."""
        known = [one for one, place in self._results.items() if place not in self._gone]
        return self.clear(dict.fromkeys(known[:number], INSTEAD))

    def clear_thinking(self, turns: int) -> frozenset[int]:
        """The messages that lose the thinking of the first turns with some; none is left twice."""
        there = [
            present
            for turn in self._thinking
            if (present := [place for place in turn if place not in self._gone])
        ]
        fresh = {place for turn in there[:turns] for place in turn} - self._without
        self._without |= fresh
        return frozenset(fresh)

    def _cut(self, place: int, call: str) -> dict[str, Any]:
        if place not in self._spilled:
            block = {"type": "tool_result", "tool_use_id": call, "content": self._sent[call]}
            return {"role": "user", "content": [block]}
        message: dict[str, Any] = decode(self._spill.get(self._spilled[place]))
        for block in map(object_or_empty, message["content"]):
            if _is_result(block) and (instead := self._sent.get(str(block.get("tool_use_id")))):
                block["content"] = instead
        return message


def replacements_in(value: object) -> dict[str, str]:
    """The texts that the program sends in place of results, by the ids of their calls."""
    told = list_or_empty(object_or_empty(value).get("replacements"))
    pairs = [(one.get("toolUseId"), one.get("replacement")) for one in map(object_or_empty, told)]
    return {call: text for call, text in pairs if isinstance(call, str) and isinstance(text, str)}


def _is_result(block: object) -> bool:
    return object_or_empty(block).get("type") == "tool_result"
