"""The records of a compaction that a transcript of another program reports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from eventctx.importers.recording.contents import Stored, TranscriptSlots
from eventctx.importers.recording.spilled import PutIn
from eventctx.importers.recording.track import Content
from eventctx.importers.source.items import (
    CompactionItem,
    ResultsCleared,
    ThinkingCleared,
    Undone,
)
from eventctx.log import events
from eventctx.log.plan import (
    INFERRED,
    TAKEN_BACK,
    Disposition,
    Insertion,
    Plan,
    Run,
    Shortening,
    expand,
    joined,
    numbers_in,
    runs_of,
)
from eventctx.log.record import Body, Record
from eventctx.messages import calibration
from eventctx.messages.overlap import runs_of_numbers
from eventctx.policies.planner import edit_plan, standing_insertions
from eventctx.projections.view import planned
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState

STRATEGY = "imported"


class Compacted:
    """The events of a plan that the file of another program tells of, made from the view before it.

    ``contents`` are the plan's bodies, ``recorded`` the tokens before it as the program counted
    them, ``took`` its nanoseconds.
    """

    def __init__(
        self,
        view: ViewState,
        plan: Plan,
        contents: Sequence[Content],
        requested_by: str,
        *,
        strategy: str = STRATEGY,
        recorded: int | None = None,
        took: int = 0,
    ) -> None:
        self.contents = contents
        self._view = view
        self.plan = plan
        self._requested_by = requested_by
        self._strategy = strategy
        self._recorded = recorded
        self._took = took
        # Estimated as requests are, so that a compaction compares with the requests around it.
        self._scale = calibration.scale(view.calibration)
        _, self._messages, counted = view.layout.measure()
        self._tokens = self._scale.tokens(counted)

    def before(self) -> events.PreCompact:
        """Make the event of the beginning."""
        return events.PreCompact(
            trigger="imported",
            strategy=self._strategy,
            strategy_version=1,
            tokens=self._tokens,
            messages=self._messages,
            requested_by=self._requested_by,
        )

    def after(self, stream: str, position: int) -> events.PostCompact:
        """Make the event of the applied compaction, for a record at ``position``."""
        bodies = tuple([Body(b"", content.facts) for content in self.contents])
        record = Record(
            stream, position, -1, b"", "", 1, 0, b"", bodies, None, None, None, None, b""
        )
        view = planned.apply_plan(self._view, self.plan, record)
        _, messages, counted = view.layout.measure()
        return events.PostCompact(
            outcome="applied",
            trigger="imported",
            strategy=self._strategy,
            strategy_version=1,
            tokens_before=self._tokens,
            tokens_after=self._scale.tokens(counted),
            messages_before=self._messages,
            messages_after=messages,
            estimator=self._view.estimator.name,
            factor=self._scale.factor,
            reserve=self._scale.reserve,
            plan=self.plan,
            duration=self._took,
            requested_by=self._requested_by,
            tokens_recorded=self._recorded,
        )


def plan_compaction(
    view: ViewState,
    item: CompactionItem,
    stored: Sequence[Stored],
    source_format: str,
    places: TranscriptSlots,
    earlier: Sequence[int],
    shorter: Sequence[Stored] = (),
) -> Compacted:
    """A compaction whose messages, as far as they can be stored, are ``stored``.

    ``shorter`` are those that it shortens, all of them or none. ``earlier`` are the positions of
    the file's compactions before this one.
    """
    stays = _stays(item, places, {one.facts.role for one in stored})
    runs, gone = _runs(view, stays, "summarised" if stored else "dropped")
    put_in = _put_in(item, places, gone, len(stored))
    if item.parts:
        runs = _dropped_beside(runs, numbers_in([run for one in put_in for run in one.stands_for]))
    kept = {number for number, how, _ in expand(tuple(runs)) if how == "kept"}
    numbers = [places.number(place) for place, _ in item.shortened] if shorter else []
    insertions = [
        *standing_insertions(view, {earlier[one] for one in item.standing}, kept),
        *put_in,
    ]
    return Compacted(
        view,
        Plan(
            view.next_number - 1,
            _with_shortened(tuple(runs), numbers),
            tuple([Shortening(number, body) for body, number in enumerate(numbers, len(stored))]),
            tuple(insertions),
        ),
        [one.content for one in (*stored, *shorter)],
        _requester(source_format, item.trigger),
        recorded=item.tokens_before,
        took=item.took or 0,
    )


def _with_shortened(runs: tuple[Run, ...], numbers: Collection[int]) -> tuple[Run, ...]:
    """The runs, in which messages of these numbers are shortened where they stay."""
    if not numbers:
        return runs
    cut = set(numbers)
    return runs_of(
        [
            (number, "shortened" if how == "kept" and number in cut else how, why)
            for number, how, why in expand(runs)
        ]
    )


def plan_undoing(
    view: ViewState,
    item: Undone,
    source_format: str,
    places: TranscriptSlots,
    undone: Collection[int] = (),
    again: PutIn = PutIn(),  # noqa: B008 - it is frozen
) -> Compacted | None:
    """A step back in the conversation, which leaves messages; None if the view holds none.

    ``undone`` are the positions of the plans that hold no longer; ``again`` is what stood in the
    view before them.
    """
    gone = {places.number(place) for place in item.places}
    if not any(ref.number in gone for ref in view.layout.refs):
        return None
    plan = edit_plan(view, STRATEGY, dict.fromkeys(gone, ("dropped", TAKEN_BACK)))
    if undone:
        standing = [one for one in plan.insertions if one.at not in undone]
        if standing:
            again = PutIn()  # the compactions that are undone had left it in view
        plan = msgspec.structs.replace(plan, insertions=(*standing, *again.insertions))
    return Compacted(view, plan, again.contents, source_format, strategy=TAKEN_BACK)


def plan_clearing(
    view: ViewState,
    item: ResultsCleared,
    stored: Sequence[Stored],
    source_format: str,
    places: TranscriptSlots,
) -> Compacted:
    """A step that sends shorter messages, ``stored``, in the places of others."""
    numbers = [places.number(place) for place in item.places]
    plan = edit_plan(
        view,
        STRATEGY,
        dict.fromkeys(numbers, ("shortened", INFERRED if item.inferred else STRATEGY)),
        tuple([Shortening(number, body) for body, number in enumerate(numbers)]),
    )
    return Compacted(
        view,
        plan,
        [one.content for one in stored],
        _requester(source_format, item.trigger),
        strategy=item.trigger if item.inferred else STRATEGY,
        recorded=item.tokens_before,
    )


def plan_clearing_thinking(
    view: ViewState, item: ThinkingCleared, source_format: str, places: TranscriptSlots
) -> Compacted:
    """A step that sends messages without their thinking."""
    numbers = sorted({places.number(place) for place in item.places})
    plan = msgspec.structs.replace(edit_plan(view, STRATEGY, {}), unbound=runs_of_numbers(numbers))
    how = _requester(source_format, item.trigger)
    return Compacted(view, plan, [], how, strategy=item.trigger, recorded=item.tokens_before)


def _requester(source_format: str, trigger: str | None) -> str:
    return f"{source_format}:{trigger}" if trigger else source_format


def _put_in(
    item: CompactionItem, places: TranscriptSlots, gone: list[tuple[int, int]], stored: int
) -> list[Insertion]:
    """The insertions of the messages that could be stored, which are ``stored`` of them."""
    parts = item.parts
    if len(parts) != stored:
        parts = ((item.before, None),) * stored
    alone = [None if one is None else {places.number(place) for place in one} for _, one in parts]
    rest = numbers_in(gone).difference(*filter(None, alone))
    found = []
    for body, ((place, _), one) in enumerate(zip(parts, alone, strict=True)):
        before = None if place is None else places.number(place)
        stands_for = runs_of_numbers(sorted(rest if one is None else one))
        found.append(Insertion("summary", body, before=before, stands_for=stands_for))
    return found


def _dropped_beside(runs: list[Run], stood_for: set[int]) -> list[Run]:
    """The runs; a message that went and is in no summary was dropped."""
    found: list[Run] = []
    for run in runs:
        if run.disposition != "summarised":
            found.append(run)
            continue
        numbers = set(range(run.first, run.last + 1))
        summarised = runs_of_numbers(sorted(numbers & stood_for))
        dropped = runs_of_numbers(sorted(numbers - stood_for))
        found += [Run(first, last, "summarised", STRATEGY) for first, last in summarised]
        found += [Run(first, last, "dropped", STRATEGY) for first, last in dropped]
    return list(joined(found))


def _stays(
    item: CompactionItem, places: TranscriptSlots, replaced: set[str]
) -> Callable[[MessageRef], str | None]:
    """Make a function that gives the reason why a message stays, None where it goes.

    ``replaced`` are the roles of the messages that the compaction inserts.
    """
    kept_from = None if item.kept_from is None else places.number(item.kept_from)
    forgotten = (
        None if item.forgotten is None else {places.number(place) for place in item.forgotten}
    )

    def reason(ref: MessageRef) -> str | None:
        if forgotten is not None and ref.number in forgotten:
            return None
        if kept_from is not None and ref.number >= kept_from:
            return "recent"
        # A history with developer messages of its own replaces the old ones too.
        if ref.facts.kind == "system" and ref.facts.role not in replaced:
            return "system"
        return None if forgotten is None else "imported"

    return reason


def _runs(
    view: ViewState, stays: Callable[[MessageRef], str | None], went: Disposition
) -> tuple[list[Run], list[tuple[int, int]]]:
    """The runs of a plan over all messages so far, and the runs of messages that went."""
    # A set may have put a later message first, and runs are by number.
    found = [(ref.number, why) for ref in view.layout.refs if (why := stays(ref)) is not None]
    staying = sorted(found)
    runs: list[Run] = []
    gone: list[tuple[int, int]] = []
    start = 0
    for number, reason in [*staying, (view.next_number, "")]:
        if number > start:
            runs.append(Run(start, number - 1, went, STRATEGY))
            gone.append((start, number - 1))
        if reason:
            if runs and (runs[-1].disposition, runs[-1].reason) == ("kept", reason):
                runs[-1] = Run(runs[-1].first, number, "kept", reason)
            else:
                runs.append(Run(number, number, "kept", reason))
        start = number + 1
    return runs, gone
