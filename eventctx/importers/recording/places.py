"""Places of a file's messages, and the numbers that the messages have in the log."""

from __future__ import annotations

from bisect import bisect_left

from eventctx.importers.recording.contents import Stored, Unstorable, content_of
from eventctx.importers.recording.track import Content
from eventctx.importers.source.items import Branched
from eventctx.log.events import MessagesSet
from eventctx.messages.overlap import runs_of_numbers


class Places:
    """Counts messages in file order. One that could not be stored has a place but no number."""

    def __init__(self) -> None:
        self._next = 0
        self._unstorable: list[int] = []

    def took(self, *, stored: bool) -> None:
        """Count a message."""
        if not stored:
            self._unstorable.append(self._next)
        self._next += 1

    def number(self, place: int) -> int:
        """The number of the message at a place, or of the next one that has a number."""
        return place - bisect_left(self._unstorable, place)

    def branched(self, item: Branched) -> tuple[MessagesSet, tuple[Content, ...], list[Unstorable]]:
        """The event of a conversation that continues from an earlier point, and its bodies.

        The last value are the messages that come back and cannot be stored.
        """
        contents: list[Content] = []
        unstorable: list[Unstorable] = []
        numbers: list[int] = []
        harness: list[int] = []
        for place, one in enumerate(item.order):
            if isinstance(one, dict):
                found = content_of(item.line, one, by_harness=place in item.harness)
                number = self.number(self._next)
                self.took(stored=isinstance(found, Stored))
                if isinstance(found, Unstorable):
                    unstorable.append(found)
                    continue
                if place in item.harness:
                    harness.append(len(contents))
                contents.append(found.content)
            elif one in self._unstorable:
                continue
            else:
                number = self.number(one)
            numbers.append(number)
        event = MessagesSet(order=runs_of_numbers(numbers), harness=tuple(harness))
        return event, tuple(contents), unstorable
