"""The bodies of a file's messages, as far as they can be stored."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.importers.recording.track import Content
from eventctx.importers.source.items import Branched, Raw, Warned
from eventctx.log.events import MessagesSet
from eventctx.messages.encoding import encode_message, may_be_too_deep
from eventctx.messages.facts import Facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.overlap import runs_of_numbers


class Stored(NamedTuple):
    """A message's body to be, and the facts in it."""

    content: Content
    facts: Facts


class Unstorable(NamedTuple):
    """The bytes of a message that cannot be stored as one, and the warning that says why."""

    raw: Raw
    warning: Warned


def content_of(
    line: int,
    message: dict[str, Any],
    facts: Facts | None = None,
    data: bytes | None = None,
    *,
    by_harness: bool = False,
    observation: bool = False,
) -> Stored | Unstorable:
    """The body of a message of ``line``; one that is too deep, or has no role, has none.

    ``facts`` are the message's own and ``data`` its encoding, where they were made already; with
    ``data``, the message is one that was decoded from JSON.
    """
    try:
        if data is None or may_be_too_deep(data):
            data = encode_message(message)
        if facts is None:
            facts = read_facts(message, by_harness=by_harness, observation=observation)
    except InvalidMessage as error:
        raw = Raw(line, "unstorable", msgspec.json.encode(message), understood=False)
        return Unstorable(raw, Warned(line, str(error)))
    return Stored(Content(data, encode_facts(facts)), facts)


def contents_of(
    line: int, messages: Iterable[dict[str, Any]]
) -> tuple[list[Stored], list[Unstorable]]:
    """The bodies of several messages, and those messages that have none."""
    found = [content_of(line, message) for message in messages]
    stored = [one for one in found if isinstance(one, Stored)]
    return stored, [one for one in found if isinstance(one, Unstorable)]


class TranscriptSlots:
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


_KEPT_WARNINGS: Final = 100


class ImportCounts:
    """Counts over the whole file, both of new contents and of those imported before."""

    def __init__(self) -> None:
        self.messages = self.turns = self.calls = self.compactions = 0
        self.unknown: Counter[str] = Counter()
        self.waiting: list[str] = []
        self.warnings: list[str] = []
        self.warned = 0
        self.links: dict[str, str | None] = {}
        self.answered: set[str] = set()
        self.last_compaction: int | None = None

    def warn(self, item: Warned) -> None:
        """Count a warning, and keep the first ones."""
        self.warned += 1
        if len(self.warnings) < _KEPT_WARNINGS:
            self.warnings.append(f"line {item.line}: {item.text}")
