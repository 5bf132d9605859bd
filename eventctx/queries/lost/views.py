"""The views that a report compares: what each shows, and what took the other messages out."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import check_number
from eventctx.log.naming import RequestName, position_name
from eventctx.log.store import EventStore
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.explaining import NOW, clearing_of, states_at
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.lost.answers import Left, LeftBy
from eventctx.queries.lost.session_index import SessionIndex
from eventctx.queries.requests import ProviderClearing

K = TypeVar("K")

_STANDS_FOR_OTHERS: Final = ("summary", "notice", "memory")


class ViewContents:
    """The messages that the view of a state shows, and the causes that took the others out of it.

    ``shown`` are the messages in it by number. ``summaries`` are the insertions and messages that
    stand for others. ``known`` is the number of messages added so far. ``cleared`` are the messages
    in view that a provider sent to the model shortened, as it read them.
    """

    def __init__(
        self, state: ChangesState, index: SessionIndex, clearing: ProviderClearing | None = None
    ) -> None:
        self.known = len(state.origins)
        self.shown: dict[int, MessageRef] = {}
        summaries: list[InsertionRef | MessageRef] = []
        made = self._made = len(state.changes)
        causes = self._causes = index.causes
        self._index = index
        self._compacted = state.compacted
        self._left: dict[tuple[LeftBy, int], Left] = {}
        for entry in state.view.layout.entries():
            if entry.kind == "message" and isinstance(entry.ref, MessageRef):
                if not causes.is_erased(entry.ref.number, made):
                    self.shown[entry.ref.number] = entry.ref
            elif isinstance(entry.ref, InsertionRef) and entry.ref.kind in _STANDS_FOR_OTHERS:
                summaries.append(entry.ref)
        self.cleared: dict[int, dict[str, Any]] = {}
        self._clearing = clearing
        for number, message in ((clearing and clearing.messages) or {}).items():
            ref = self.shown.get(number)
            # A compaction since then shows another text, which the model has not been sent yet.
            if ref is not None and clearing is not None and ref.position < clearing.request:
                self.cleared[number] = message
                self.shown[number] = msgspec.structs.replace(ref, shortened=True)
        self.thinking_cleared = causes.thinking_cleared(made).intersection(
            [number for number, ref in self.shown.items() if ref.stripped]
        )
        # Results that came back without their call: what took them out before does not hold.
        self._unanswered = {
            ref.number
            for ref in state.view.layout.refs
            if ref.number not in self.shown
            and not ref.replaced
            and not causes.is_erased(ref.number, made)
        }
        # A host that summarises by itself puts its summary into the transcript with the same set.
        positions = {ref.position for ref in self.shown.values()}
        sets = {one for one in positions if causes.still_holds(one, "set", made, self.shown)}
        # A provider puts its own into the message that brought its answer.
        summaries += [
            ref for ref in self.shown.values() if ref.position in sets or ref.facts.summarises
        ]
        self.summaries = tuple(summaries)

    def left_at(self, number: int) -> int | None:
        """The position at which a message left; None if it is in view or not yet added."""
        if number in self.shown or number >= self.known:
            return None
        cause = self._cause(number)
        # Without a cause it is a result whose call is not in view.
        return self._index.positions[number] if cause is None else cause[1]

    def cut(self, number: int) -> Left | None:
        """The record that shortened a message in view; None if it is whole, or not in view."""
        ref = self.shown.get(number)
        if ref is None or not ref.shortened:
            return None
        if number in self.cleared and self._clearing is not None:
            at = self._clearing.position
            return Left("provider", position_name(at), at)
        at = ref.position  # a shortened body is in the record of its compaction
        return Left("compaction", position_name(at), at, bisect_left(self._compacted, at) + 1)

    def left(self, number: int) -> Left | None:
        """The cause that took a message out; None if it is in view or not yet added."""
        if number in self.shown or number >= self.known:
            return None
        cause = self._cause(number)
        if cause is None:
            at = self._index.positions[number]
            return Left("unanswered", position_name(at), at)
        found = self._left.get(cause)
        if found is None:
            by, at = cause
            place = bisect_left(self._compacted, at) + 1 if by == "compaction" else None
            found = self._left[cause] = Left(by, position_name(at), at, place)
        return found

    def left_by(self) -> dict[LeftBy, int]:
        """How many messages are not in view, by what took them out."""
        counted = Counter(self._causes.totals(self._made))
        unanswered = self.known - counted.total() - len(self.shown)
        for number in (*self.shown, *self._unanswered):
            cause = self._causes.at(number, self._made)
            if cause is not None:
                counted[cause[0]] -= 1
                unanswered += 1
        counted["unanswered"] = unanswered
        return in_order_of_first(counted, self._by, self._numbers_left())

    def left_of(self) -> dict[str, int]:
        """How many messages are not in view, by who wrote them."""
        counted = Counter(self._index.writers_before(self.known))
        counted.subtract(self._index.writer(number) for number in self.shown)
        return in_order_of_first(counted, self._index.writer, self._numbers_left())

    def _cause(self, number: int) -> tuple[LeftBy, int] | None:
        return None if number in self._unanswered else self._causes.at(number, self._made)

    def _by(self, number: int) -> LeftBy:
        cause = self._cause(number)
        return "unanswered" if cause is None else cause[0]

    def _numbers_left(self) -> Iterator[int]:
        return (number for number in range(self.known) if number not in self.shown)


def in_order_of_first(
    counted: Mapping[K, int], key: Callable[[int], K], numbers: Iterator[int]
) -> dict[K, int]:
    """The counts that are not 0, in the order in which ``numbers`` first have their keys."""
    wanted = {one for one, count in counted.items() if count}
    found: dict[K, int] = {}
    while len(wanted) > 1:
        one = key(next(numbers))
        if one in wanted:
            found[one] = counted[one]
            wanted.remove(one)
    return {**found, **{one: counted[one] for one in wanted}}


class Asked(NamedTuple):
    """The states whose views a report compares. ``before`` is None unless it is about a compaction.

    ``now`` is the state at the end of the log.
    """

    about: Literal["now", "compaction", "turn"]
    before: ChangesState | None
    after: ChangesState
    now: ChangesState
    compaction: int | None
    compactions: int
    turn: int | None
    position: int | None
    clearing: ProviderClearing | None = None


async def find_states(
    store: EventStore,
    stream: str,
    *,
    compaction: int | None = None,
    selector: RequestName = NOW,
) -> Asked:
    """The states of a session that a question is about.

    Raises StreamNotFound, and InvalidSetting for a compaction or request that is not there.
    """
    if compaction is None:
        (seen,), now = await states_at(store, stream, [selector])
        return Asked(
            "now" if seen.record is None else "turn",
            None,
            seen.state,
            now,
            None,
            len(seen.state.compacted),
            seen.turn,
            now.view.position if seen.record is None else seen.record.position,
            await clearing_of(store, stream, seen),
        )
    check_number("compaction", compaction)
    state = (await timeline_at(store, stream)).changes
    if not 0 < compaction <= len(state.compacted):
        raise InvalidSetting(_no_compaction(stream, compaction, len(state.compacted)))
    at = state.compacted[compaction - 1]
    before = (await timeline_at(store, stream, at - 1)).changes
    after = (await timeline_at(store, stream, at)).changes
    cause = after.planned
    assert cause is not None  # noqa: S101 - an applied compaction has a plan
    return Asked(
        "compaction",
        before,
        after,
        state,
        compaction,
        len(state.compacted),
        cause.turn,
        cause.position,
    )


def _no_compaction(stream: str, asked_for: int, known: int) -> str:
    if not known:
        return f"session {stream!r} has no compaction that was applied, found {asked_for}"
    return (
        f"session {stream!r} has compactions 1 to {known}, found {asked_for}; "
        f"`eventctx audit {stream}` lists them"
    )
