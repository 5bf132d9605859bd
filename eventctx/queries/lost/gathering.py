"""Gathers the items of a session from its messages, in their order; messages may come later."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from functools import cached_property
from typing import Final, Literal

from eventctx.messages.call_effects import How, absolute_of
from eventctx.messages.extracts import CallExtract, MessageExtracts, names_in
from eventctx.messages.mentions import Mentions
from eventctx.messages.overlap import normal
from eventctx.messages.tool_results import CallOutcome

GatheredKind = Literal["instruction", "file", "command", "decision"]
"""Kinds of extracts of which a session has one item for many occurrences."""

NO_MATCH: Final = ("grep ", "egrep ", "rg ", "diff ", "git diff ", "git grep ")
"""Commands that exit with 1 where they find no match or a difference, which is no failure."""


class Occurrence:
    """An item in message ``number``; ``result`` is the number of the result of its call.

    ``place`` tells those of one message apart.
    """

    __slots__ = ("how", "item", "number", "outcome", "place", "result", "text")
    item: GatheredItem

    def __init__(
        self,
        number: int,
        place: int,
        text: str,
        result: int | None = None,
        how: How | None = None,
        outcome: CallOutcome | None = None,
    ) -> None:
        self.number = number
        self.place = place
        self.text = text
        self.result = result
        self.how = how
        self.outcome = outcome


def _order(one: Occurrence) -> tuple[int, int]:
    return one.number, -one.place


class GatheredItem:
    """An item and its occurrences; of the last message with it, the first one is last.

    ``rank`` is the place of items that are alike in all else: the latest first.
    """

    def __init__(self, kind: GatheredKind, occurrences: Iterable[Occurrence] = ()) -> None:
        self.kind = kind
        self.occurrences = sorted(occurrences, key=_order)

    @property
    def text(self) -> str:
        """It as it was written last."""
        return self.occurrences[-1].text

    @property
    def outcome(self) -> CallOutcome | None:
        """The outcome of a command's last run."""
        return self.occurrences[-1].outcome

    @property
    def rank(self) -> tuple[int, int]:
        """See the class."""
        last = self.occurrences[-1]
        return -last.number, last.place

    @cached_property
    def names(self) -> set[str]:
        """The names in a sentence."""
        if self.kind not in ("instruction", "decision"):
            return set()
        found: set[str] = set()
        for text in {one.text for one in self.occurrences}:
            found |= names_in(text)
        return found

    @cached_property
    def numbers(self) -> list[int]:
        """The message's number of each occurrence."""
        return [one.number for one in self.occurrences]

    @cached_property
    def distinct(self) -> list[int]:
        """The numbers of the messages with it, each once."""
        return list(dict.fromkeys(self.numbers))

    @cached_property
    def handled(self) -> dict[How | None, list[int]]:
        """The numbers of the messages that read, wrote or edited a file, each once."""
        found: dict[How | None, dict[int, None]] = {}
        for one in self.occurrences:
            found.setdefault(one.how, {})[one.number] = None
        return {how: list(numbers) for how, numbers in found.items()}

    def is_mentioned(self, summaries: Mentions, *, alone: bool) -> bool:
        """Whether summaries have it; ``alone``: no other file has its name."""
        outcome = self.outcome
        if self.kind == "command" and outcome is not None and outcome.failed:
            return summaries.holds("failure", outcome.error)
        return summaries.holds(
            "file_alone" if self.kind == "file" and alone else self.kind, self.text
        )

    def changed(self) -> None:
        """Forget what was derived from the occurrences."""
        for name in ("names", "numbers", "distinct", "handled"):
            self.__dict__.pop(name, None)


class UnitedFile(GatheredItem):
    """A file under its absolute path and the relative ones that can only mean it."""

    def __init__(self, absolute: GatheredItem, relative: Iterable[GatheredItem]) -> None:
        super().__init__("file", absolute.occurrences)
        self._absolute = absolute
        for one in relative:
            self.occurrences += one.occurrences
        self.occurrences.sort(key=_order)

    @property
    def text(self) -> str:
        """The absolute path."""
        return self._absolute.text

    @property
    def rank(self) -> tuple[int, int]:
        """That of the absolute path."""
        return self._absolute.rank


class _Call:
    """A call, its occurrences, and the numbers of its results, by the places of their ids."""

    __slots__ = ("base", "call", "number", "occurrences", "place", "results")

    def __init__(self, call: CallExtract, number: int, place: int, base: int) -> None:
        self.call = call
        self.number = number
        self.place = place
        self.base = base
        self.results: dict[int, int] = {}
        self.occurrences: list[Occurrence] = []


class Gathering:
    """The items of all messages. ``read`` takes these in their order.

    A call's result is the first one after it with its id. Until that comes, its command counts
    as one whose outcome is not known.
    """

    def __init__(self) -> None:
        self.items: dict[tuple[str, str, str], GatheredItem] = {}
        self.by_message: dict[int, list[Occurrence]] = {}
        self._sources: dict[int, list[tuple[int, int, str]]] = {}
        self._open: dict[str, _Call] = {}

    def read(self, extracts: MessageExtracts) -> None:
        """Take in one message, which is newer than all before."""
        number = extracts.number
        for place, sentence in enumerate(extracts.decisions):
            self._put("decision", normal(sentence), Occurrence(number, place, sentence))
        for place, sentence in enumerate(extracts.instructions):
            self._put("instruction", normal(sentence), Occurrence(number, place, sentence))
        after = len(extracts.calls)
        for place, call in enumerate(extracts.calls):
            made = _Call(call, number, place, (after - place) << 16)
            self._put_call(made)
            self._open.update(dict.fromkeys(call.ids, made))
        for call_id, outcome in extracts.outcomes.items():
            answered = self._open.pop(call_id, None)
            if answered is not None:
                self._answer(answered, answered.call.ids.index(call_id), number, outcome)

    def sources(self, result: int) -> list[str]:
        """The calls that a result answers."""
        return [source for _, _, source in sorted(self._sources.get(result, ()))]

    # -- calls -----------------------------------------------------------------------------------

    def _answer(self, made: _Call, place: int, number: int, outcome: CallOutcome) -> None:
        """Take in a result; of several ids of a call, the last one with a result counts."""
        if made.results:
            if place < max(made.results):
                return
            before = made.results[max(made.results)]
            self._sources[before].remove((made.number, made.place, made.call.source))
        made.results[place] = number
        self._sources.setdefault(number, []).append((made.number, made.place, made.call.source))
        for one in list(made.occurrences):
            if one.outcome is None:
                one.result = number
                continue
            self._take_away(one)
            made.occurrences.remove(one)
            ran = self._ran(made, number, outcome)
            made.occurrences.append(ran)

    def _put_call(self, made: _Call) -> None:
        for place, (path, how) in enumerate(dict.fromkeys(made.call.files)):
            one = Occurrence(made.number, made.base + place, path, None, how)
            made.occurrences.append(self._put("file", path, one))
        if made.call.command is not None:
            made.occurrences.append(self._ran(made, None, CallOutcome()))

    def _ran(self, made: _Call, result: int | None, outcome: CallOutcome) -> Occurrence:
        command = made.call.command or ""
        if outcome.status == 1 and command.startswith(NO_MATCH):
            outcome = CallOutcome(1)
        one = Occurrence(made.number, made.base, command, result, None, outcome)
        return self._put("command", command, one)

    def _take_away(self, one: Occurrence) -> None:
        item = one.item
        # It is nearly always the last one.
        place = len(item.occurrences) - 1
        while item.occurrences[place] is not one:
            place -= 1
        del item.occurrences[place]
        item.changed()
        self.by_message[one.number].remove(one)
        if not item.occurrences:
            del self.items[_key(item.kind, one.text, one.outcome)]

    def _put(self, kind: GatheredKind, plain: str, one: Occurrence) -> Occurrence:
        key = _key(kind, plain, one.outcome)
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = GatheredItem(kind)
        one.item = item
        insort(item.occurrences, one, key=_order)
        item.changed()
        self.by_message.setdefault(one.number, []).append(one)
        return one


def _key(kind: GatheredKind, plain: str, outcome: CallOutcome | None) -> tuple[str, str, str]:
    failed = outcome is not None and outcome.failed
    return kind, plain, f"failed {outcome.error}" if outcome is not None and failed else ""


def unite_files(items: Iterable[GatheredItem]) -> dict[GatheredItem, GatheredItem]:
    """Relative and absolute paths that are one file, each with the item for both."""
    paths = {item.text: item for item in items if item.kind == "file"}
    relative: dict[str, list[GatheredItem]] = {}
    for path, absolute in absolute_of(paths).items():
        relative.setdefault(absolute, []).append(paths[path])
    found: dict[GatheredItem, GatheredItem] = {}
    for path, others in relative.items():
        file = UnitedFile(paths[path], others)
        found.update(dict.fromkeys((paths[path], *others), file))
    return found
