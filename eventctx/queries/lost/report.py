"""The report: the presence of each item in a view, from the session index and the view's texts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from eventctx.log.naming import message_name, position_name
from eventctx.messages.mentions import MentionKind, SummaryMentions
from eventctx.messages.overlap import normal
from eventctx.projections.presence import Presence
from eventctx.queries.lost.answers import (
    KINDS,
    STATES,
    CommandUse,
    FileUse,
    ItemKind,
    Lost,
    MessageCounts,
    StateCounts,
    ViewItem,
)
from eventctx.queries.lost.gathering import GatheredItem, Occurrence
from eventctx.queries.lost.needles import Needle
from eventctx.queries.lost.session_index import SessionIndex, file_name
from eventctx.queries.lost.views import Asked, ViewContents

MOST_QUOTED: Final = 10


class Scene(NamedTuple):
    """A view with its texts: those of shortened messages, normalised, and of its summaries."""

    view: ViewContents
    shortened: Mapping[int, str]
    summaries: SummaryMentions

    def holds(self, item: GatheredItem, one: Occurrence) -> Presence | None:
        """Whether the messages of one occurrence are in view; None where they are not."""
        ref = self.view.shown.get(one.number)
        if ref is None:
            return None
        result = None if one.result is None else self.view.shown.get(one.result)
        cut = result is not None and result.shortened
        if not ref.shortened and not cut:
            answered = one.result is None or result is not None
            return Presence.WHOLE if answered else Presence.SHORTENED
        if ref.shortened and normal(item.text) not in self.shortened.get(one.number, ""):
            return None
        error = "" if item.outcome is None else normal(item.outcome.error)
        if cut and one.result is not None and error not in self.shortened.get(one.result, ""):
            return None
        return Presence.SHORTENED


class WithdrawnSentences(NamedTuple):
    """Sentences of persons that hold no longer: ``changed`` items lost ``occurrences``.

    An item that has none left is None.
    """

    occurrences: Collection[Occurrence] = ()
    changed: Mapping[GatheredItem, GatheredItem | None] = {}


class _InView(NamedTuple):
    """How a view shows an item: the best presence, and the messages in view with it."""

    presence: Presence
    numbers: set[int]


class Report:
    """Makes the report of one question; pure, over the index of the session.

    Its work grows with the items, with the view, and with what was used again after it left; not
    with the messages.
    """

    def __init__(
        self,
        asked: Asked,
        after: Scene,
        before: Scene | None,
        index: SessionIndex,
        taken_back: WithdrawnSentences,
    ) -> None:
        self._asked = asked
        self._after = after
        self._before = before
        self._index = index
        self._all = index.overview()
        self._taken_back = taken_back
        self._shown_after = self._shown(after)
        self._shown_before = {} if before is None else self._shown(before)

    def make(self, session: str) -> Lost:
        """The report."""
        asked = self._asked
        changed = self._taken_back.changed
        found: list[tuple[GatheredItem, ViewItem]] = []
        for given in self._all.items:
            item = changed.get(given, given)
            if item is not None:
                found += [(item, one) for one in self._item(item)]
        found.sort(key=lambda one: (*_order(one[1]), *one[0].rank))
        items = [one for _, one in found] + sorted(self._results(), key=_order)
        return Lost(
            session,
            asked.about,
            asked.compaction,
            asked.compactions,
            asked.turn,
            None if asked.position is None else position_name(asked.position),
            asked.position,
            self._messages(),
            len(self._after.view.summaries),
            self._after.summaries.sealed,
            tuple([_counted(kind, items) for kind in KINDS]),
            tuple(items),
        )

    # -- messages --------------------------------------------------------------------------------

    def _messages(self) -> MessageCounts:
        after = self._after.view
        erased = self._index.erased_before(after.known)
        if self._before is None:
            cut = sum(ref.shortened for ref in after.shown.values())
            whole, left = len(after.shown) - cut, after.known - len(after.shown)
            by, of = after.left_by(), after.left_of()
            return MessageCounts(
                after.known,
                whole,
                cut,
                left,
                by,
                of,
                erased,
                len(after.thinking_cleared),
                len(after.cleared),
            )
        numbers = self._before.view.shown
        shown = [after.shown[number] for number in numbers if number in after.shown]
        gone = [number for number in numbers if number not in after.shown]
        cut = sum(ref.shortened for ref in shown)
        causes = [cause for cause in map(after.left, gone) if cause is not None]
        return MessageCounts(
            len(shown) + len(gone),
            len(shown) - cut,
            cut,
            len(gone),
            dict(Counter(cause.by for cause in causes)),
            dict(Counter(map(self._index.writer, gone))),
            erased,
            len(after.thinking_cleared - self._before.view.thinking_cleared),
        )

    # -- items -----------------------------------------------------------------------------------

    def _shown(self, scene: Scene) -> dict[GatheredItem, _InView]:
        """How a view shows the items that it shows at all."""
        united, taken_back = self._all.united, self._taken_back
        found: dict[GatheredItem, _InView] = {}
        for number in scene.view.shown:
            for one in self._index.gathering.by_message.get(number, ()):
                if one in taken_back.occurrences:
                    continue
                item: GatheredItem | None = united.get(one.item, one.item)
                item = None if item is None else taken_back.changed.get(item, item)
                presence = None if item is None else scene.holds(item, one)
                if item is None or presence is None:
                    continue
                known = found.get(item)
                if known is None:
                    found[item] = _InView(presence, {number})
                    continue
                known.numbers.add(number)
                if presence is Presence.WHOLE and known.presence is not Presence.WHOLE:
                    found[item] = known._replace(presence=presence)
        return found

    def _item(self, item: GatheredItem) -> Iterator[ViewItem]:
        """The item; none where it came later than the view, or was gone before the compaction."""
        known = self._after.view.known
        count = len(item.numbers)
        if item.numbers[-1] >= known:
            count = bisect_left(item.numbers, known)
        if not count:
            return
        before = self._before
        if before is not None and self._presence(before, self._shown_before, item) is Presence.GONE:
            return
        last = item.occurrences[count - 1].number
        shown = self._shown_after.get(item)
        view = self._after.view
        # A message that is shortened in view may have lost just this, or the result of its call.
        result = item.occurrences[count - 1].result
        cleared = result if result is not None and result in view.cleared else last
        left = None if shown is not None else view.left(last) or view.cut(cleared)
        yield ViewItem(
            kind=item.kind,
            state=self._presence(self._after, self._shown_after, item),
            text=item.text,
            name=message_name(last),
            number=last,
            turn=self._index.turn(last),
            messages=bisect_left(item.distinct, known),
            in_view=0 if shown is None else len(shown.numbers),
            used_again=self._used_again(item, count),
            left=left,
            file=_file_use(item, known) if item.kind == "file" else None,
            command=_command_use(item, count) if item.kind == "command" else None,
        )

    def _presence(
        self, scene: Scene, shown: Mapping[GatheredItem, _InView], item: GatheredItem
    ) -> Presence:
        found = shown.get(item)
        if found is not None:
            return found.presence
        alone = file_name(item.text) in self._all.alone
        return (
            Presence.SUMMARY if item.is_mentioned(scene.summaries, alone=alone) else Presence.GONE
        )

    def _used_again(self, item: GatheredItem, count: int) -> int:
        """How many later messages have the item, or for a sentence a name in it."""
        since = self._since(item, count)
        if since is None:
            return 0
        all_positions, numbers = self._index.positions, item.distinct
        later = set[int]()
        for number in reversed(numbers):
            if all_positions[number] <= since:
                break
            later.add(all_positions[number])
        for name in item.names:
            needle = self._index.needles.get(name)
            if needle is not None:
                later.update(needle.used_behind(since))
        return len(later)

    def _since(self, item: GatheredItem, count: int) -> int | None:
        """The position from which on a use counts as "again": where a message with it first left.

        For a compaction it is that one's.
        """
        if self._before is not None:
            return self._asked.position
        first: int | None = None
        for number in item.numbers[:count]:
            if first is not None and self._index.positions[number] >= first:
                break  # it came later, and left later still
            left = self._after.view.left_at(number)
            if left is not None and (first is None or left < first):
                first = left
        return first

    # -- results ---------------------------------------------------------------------------------

    def _results(self) -> list[ViewItem]:
        shown = self._after.view.shown
        found = [self._result(number, needles) for number, needles in self._used_results()]
        # Of a result that left, nothing is lost if all that was used again is in view elsewhere.
        return [one for one in found if one.state is not Presence.WHOLE or one.number in shown]

    def _used_results(self) -> list[tuple[int, list[Needle]]]:
        """The results that left before the model used something of them, each with what it used.

        What several of them hold came from the last one.
        """
        needles = self._all.needles
        numbers: Iterable[int] = self._all.used_again
        if self._before is not None:
            numbers = [one for one in self._before.view.shown if one in needles.by_result]
        taken: set[str] = set()
        found: list[tuple[int, list[Needle]]] = []
        for number in sorted(numbers, reverse=True):
            since = self._result_since(number)
            if since is None or needles.last_used[number] <= since:
                continue
            own = [
                one
                for one in needles.by_result[number]
                if one.key not in taken and one.used[-1] > since
            ]
            taken.update([one.key for one in own])
            if own:
                found.append((number, own))
        return found

    def _result_since(self, number: int) -> int | None:
        return self._after.view.left_at(number) if self._before is None else self._asked.position

    def _result(self, number: int, needles: list[Needle]) -> ViewItem:
        states = {one: self._presence_of(one, number) for one in needles}
        state = next(one for one in STATES if one in states.values())
        since = self._result_since(number)
        assert since is not None  # noqa: S101 - it was used after that
        used = {one: one.used_behind(since) for one, its in states.items() if its == state}
        best = sorted(used, key=lambda one: (-len(used[one]), -len(one.key), one.key))
        sources = self._index.gathering.sources(number)
        return ViewItem(
            kind="result",
            state=state,
            text="; ".join(sources) or "a result whose call is not known",
            name=message_name(number),
            number=number,
            turn=self._index.turn(number),
            messages=1,
            in_view=1 if number in self._after.view.shown else 0,
            used_again=len({position for one in used.values() for position in one}),
            left=self._after.view.left(number),
            quoted=tuple([one.text for one in best[:MOST_QUOTED]]),
        )

    def _presence_of(self, needle: Needle, number: int) -> Presence:
        shown = self._after.view.shown
        for one in needle.carriers():
            carrier = shown.get(one)
            if carrier is not None and not carrier.shortened:
                return Presence.WHOLE
        ref = shown.get(number)
        cut = "" if ref is None or not ref.shortened else self._after.shortened[number]
        if normal(needle.key) in cut:
            return Presence.SHORTENED
        kind: MentionKind = "line" if " " in needle.key else "name"
        return Presence.SUMMARY if self._after.summaries.holds(kind, needle.key) else Presence.GONE


def _order(item: ViewItem) -> tuple[int, int, int, bool, int]:
    failed = item.command is not None and item.command.failed
    state = STATES.index(item.state)
    return (KINDS.index(item.kind), state, -item.used_again, not failed, item.number)


def _counted(kind: ItemKind, items: Iterable[ViewItem]) -> StateCounts:
    states = Counter(item.state for item in items if item.kind == kind)
    by_name = {state: states[state] for state in STATES}
    return StateCounts(kind, states.total(), **by_name)


def _file_use(item: GatheredItem, known: int) -> FileUse:
    before = {how: numbers[: bisect_left(numbers, known)] for how, numbers in item.handled.items()}
    read, written, edited = (before.get(how, []) for how in ("read", "written", "edited"))
    last_read = read[-1] if read else None
    changes = sorted([*written, *edited, *before.get("deleted", ())])
    after = len(changes) if last_read is None else bisect_right(changes, last_read)
    changed = changes[after] if after < len(changes) else None
    return FileUse(len(read), len(written), len(edited), last_read, changed)


def _command_use(item: GatheredItem, runs: int) -> CommandUse:
    outcome = item.outcome
    if outcome is None:
        return CommandUse(runs, False, None, "")
    return CommandUse(runs, outcome.failed, outcome.status, outcome.error)
