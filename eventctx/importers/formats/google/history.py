"""The conversation of a file that now and then gives its whole history anew.

Gemini CLI and Qwen Code write the list that they go on with when they compress it, mask results or
take something back. Its messages have no places and may have new ids, so they are told by what they
say: the texts, the calls with their arguments, the results. What is in both lists stays, and the
rest is what the step took out, and what it put in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.importers.formats.google.contents import results_in
from eventctx.importers.source.items import CompactionItem, Item, ResultsCleared, Undone

CONTEXT: Final = "<session_context>"
"""The beginning of the message in which the program describes the machine and the folder."""

_SAYS: Final = {"tool_use": ("name", "input"), "tool_result": ("content",)}
"""The fields of a block that say something; ids differ from one list to the next."""


class InPlace(NamedTuple):
    """A message of the conversation: its place, what it says, and the results that it holds."""

    place: int
    says: bytes
    role: str
    results: frozenset[str]


class Rebuilt(NamedTuple):
    """The items of a step, and the messages of the new list with their places.

    A place is None where the step itself put the message in, or where it is still to be added
    (``added``, the last messages of the list).
    """

    items: list[Item]
    places: list[int | None]
    added: list[int]


class History:
    """The messages that the model is sent now, by their places in the file."""

    def __init__(self) -> None:
        self.next = 0
        self.compactions = 0
        self.now: list[InPlace] = []

    def says(self, message: dict[str, Any]) -> bytes:
        """What a message says, to compare it with others."""
        return _in_place(-1, message).says

    def add(self, message: dict[str, Any]) -> int:
        """Take a message that was yielded, at the next place."""
        self.now.append(_in_place(self.next, message))
        self.next += 1
        return self.next - 1

    def cut(
        self,
        line: int,
        time: int | None,
        place: int,
        undone: Mapping[int, tuple[InPlace, ...]] | None = None,
    ) -> Iterator[Item]:
        """Take back what is at a place and after it.

        ``undone`` are compactions that are taken back with it, by their numbers, each with the
        conversation before it.
        """
        before = list(undone[min(undone)]) if undone else self.now
        gone = frozenset([one.place for one in (*before, *self.now) if one.place >= place])
        self.now = [one for one in before if one.place < place]
        if gone or undone:
            yield Undone(line, time, gone, frozenset(undone or ()))

    def rebuild(
        self,
        line: int,
        time: int | None,
        messages: Sequence[dict[str, Any]],
        trigger: str | None = None,
        tokens_before: int | None = None,
    ) -> Rebuilt:
        """Go on with these messages, and return what that is to the conversation."""
        target = [_in_place(-1, one) for one in messages]
        places = self._matched(target)
        changed = self._changed(target, places)
        stays = {place for place in places if place is not None} | self._to_come(places)
        gone = [one for one in self.now if one.place not in stays]
        new = [index for index, place in enumerate(places) if place is None]
        items: list[Item] = []
        if changed:
            shorter = tuple([messages[index] for index in changed])
            at = tuple([places[index] or 0 for index in changed])
            items.append(ResultsCleared(line, time, trigger or "masking", at, shorter))
            self.compactions += 1
        added = new if _all_last(new, len(target)) and not _holds_answer(gone) else []
        if new and not added:
            items.append(self._compacted(line, time, messages, places, gone, trigger))
        elif gone:
            items += self._left_out(line, time, gone, trigger)
        if tokens_before is not None:
            items = [_with_tokens(item, tokens_before) for item in items]
        says = {place: one for one, place in zip(target, places, strict=True) if place is not None}
        self.now = [
            one._replace(says=says[one.place].says) if one.place in says else one
            for one in self.now
            if one.place in says or one.place in stays
        ]
        return Rebuilt(items, places, added)

    def _matched(self, target: list[InPlace]) -> list[int | None]:
        """The places of the new list's messages that say what one of the conversation says."""
        places: list[int | None] = [None] * len(target)
        ours, theirs = [one.says for one in self.now], [one.says for one in target]
        from difflib import SequenceMatcher

        for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                places[block.b + offset] = self.now[block.a + offset].place
        return places

    def _to_come(self, places: list[int | None]) -> set[int]:
        """The places of results that are recorded with the last call, and are sent next."""
        last = [one.place for one in self.now if one.role == "assistant"][-1:]
        if not last or places[-1:] != last:
            return set()
        return {one.place for one in self.now if one.place > last[0] and one.results}

    def _changed(self, target: list[InPlace], places: list[int | None]) -> list[int]:
        """The indexes of messages whose results are now shorter; their places become known."""
        taken = set(places)
        by_call = {call: one.place for one in self.now for call in one.results}
        found = []
        for index, one in enumerate(target):
            if places[index] is not None or not one.results:
                continue
            place = next((by_call[call] for call in sorted(one.results) if call in by_call), None)
            if place is not None and place not in taken:
                places[index] = place
                taken.add(place)
                found.append(index)
        return found

    def _compacted(
        self,
        line: int,
        time: int | None,
        messages: Sequence[dict[str, Any]],
        places: list[int | None],
        gone: list[InPlace],
        trigger: str | None,
    ) -> CompactionItem:
        """A step that puts messages in; those before them are put in again, for the order."""
        last = max(index for index, place in enumerate(places) if place is None)
        again = {places[index] for index in range(last)} - {None}
        left = {one.place for one in gone} | {place for place in again if place is not None}
        for index in range(last + 1):
            places[index] = None
        self.compactions += 1
        put_in = tuple(messages[: last + 1])
        return CompactionItem(line, time, trigger, put_in, forgotten=frozenset(left))

    def _left_out(
        self, line: int, time: int | None, gone: list[InPlace], trigger: str | None
    ) -> list[Item]:
        """A step that only takes messages out: the last ones were taken back, others left out."""
        if gone == self.now[len(self.now) - len(gone) :]:
            return list(self.cut(line, time, gone[0].place))
        self.compactions += 1
        left = frozenset([one.place for one in gone])
        return [CompactionItem(line, time, trigger, (), forgotten=left)]


def _all_last(new: list[int], size: int) -> bool:
    """Whether these are the last indexes of a list."""
    return new == list(range(size - len(new), size))


def _holds_answer(gone: list[InPlace]) -> bool:
    return any(one.role == "assistant" for one in gone)


def _with_tokens(item: Item, tokens: int) -> Item:
    if isinstance(item, CompactionItem | ResultsCleared):
        fields = {name: getattr(item, name) for name in type(item).__struct_fields__}
        return type(item)(**{**fields, "tokens_before": tokens})
    return item


def _in_place(place: int, message: dict[str, Any]) -> InPlace:
    blocks = message["content"]
    # The parts of an answer's text are written apart, or as one.
    words = "".join([one["text"] for one in blocks if _is(one, "text")]).strip()
    if words.startswith(CONTEXT):
        words = CONTEXT  # the program writes it anew with the present time
    said = [words, *[_said(one) for one in blocks if not _is(one, "text", "thinking")]]
    says = msgspec.json.encode([message["role"], said], order="sorted")
    return InPlace(place, says, message["role"], frozenset(results_in(blocks)))


def _is(block: Any, *kinds: str) -> bool:
    return isinstance(block, dict) and block.get("type") in kinds


def _said(block: Any) -> Any:
    fields = _SAYS.get(str(block.get("type"))) if isinstance(block, dict) else None
    return block if fields is None else [block.get(field) for field in fields]
