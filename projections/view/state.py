"""The request view's state: the messages in view, counts of the others, demands, open spans."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.errors import DecodeError
from eventctx.log.codec import decode_event
from eventctx.log.events import Break, PlanStart, PromptSubmit, ToolError, ToolPost, ToolPre
from eventctx.log.ids import RecordIds
from eventctx.log.plan import Run
from eventctx.log.record import Record
from eventctx.log.turn_recorder import LOST, ModelRequest, Operation, SpanRecord, end_of
from eventctx.messages import calibration
from eventctx.messages.calibration import Calibration
from eventctx.messages.tokens import FAMILIES, Estimator
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.layout import Layout
from eventctx.projections.view.refs import DemandRef, MessageRef

# -- spans that have begun and not ended ---------------------------------------------------------

MAX_UNENDED: Final = 64
"""Most spans without an end that a state holds. Beyond that the oldest is forgotten and gets no
end, but a turn only when all are turns: lists and traces of turns need the end of a turn."""


class UnendedSpan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A span that has begun and not ended; a killed process leaves it open.

    The next process to begin a turn ends it as ``lost``. A fork begins with none, since the spans
    that were open at the fork are its parent's, and so does a session that was taken over from a
    file, whose program keeps its own account.

    ``type`` is that of the record that began it. ``name`` and ``call_id`` are those of a tool call.
    """

    type: str
    turn_id: str | None
    span_id: str
    parent_span_id: str | None
    iteration: int | None
    name: str = ""
    call_id: str | None = None


Unended = tuple[UnendedSpan, ...]


def presumed_end(span: UnendedSpan) -> SpanRecord:
    """The end of a span that its process left open; no more is known of it."""
    operation: Operation
    match span.type:
        case "prompt:submit":
            operation = PromptSubmit(number=0)
        case "plan:start":
            operation = PlanStart()
        case "provider:request":
            operation = ModelRequest()
        case _:
            operation = ToolPre(name=span.name, call_id=span.call_id)
    ids = RecordIds(span.turn_id, span.span_id, span.parent_span_id, span.iteration)
    return SpanRecord(end_of(operation, LOST), ids)


def with_begun(spans: Unended, record: Record) -> Unended:
    """The spans with the one that ``record`` begins, the newest last."""
    if record.span_id is None:
        return spans
    name, call_id = "", None
    if record.type == "tool:pre":
        event = tool_event(record)
        if event is None:
            return spans  # without its name no end can be written
        name, call_id = event.name, event.call_id
    ids = (record.turn_id, record.span_id, record.parent_span_id, record.iteration)
    grown = (*spans, UnendedSpan(record.type, *ids, name, call_id))
    return grown if len(grown) <= MAX_UNENDED else _without_oldest(grown)


def _without_oldest(spans: Unended) -> Unended:
    calls = (place for place, one in enumerate(spans) if one.type != "prompt:submit")
    oldest = next(calls, 0)
    return spans[:oldest] + spans[oldest + 1 :]


def tool_event(record: Record) -> ToolPre | ToolPost | ToolError | None:
    """The event of a tool call's record; None if it cannot be read.

    A view does without it: unlike a context event it only changes the words of a made-up result.
    """
    try:
        event = decode_event(record)
    except DecodeError:
        return None
    return event if isinstance(event, ToolPre | ToolPost | ToolError) else None


def without_ended(spans: Unended, record: Record) -> Unended:
    """The spans without the one that ``record`` ends."""
    if not any(one.span_id == record.span_id for one in spans):
        return spans
    return tuple([one for one in spans if one.span_id != record.span_id])


# -- demands of a person -------------------------------------------------------------------------


class Spoken(NamedTuple):
    """The demands of a person in a session, in view or not: the first task, and later demands.

    A compaction may take these messages out of view, so their places are kept here: an index or a
    summary quotes the demands from the log, and a count of the absent ones needs no text.

    ``task`` is the number of the first human message, ``demands`` are in rising order.
    ``withdrawn`` are all demands that were taken back: numbers of messages, and which of their
    demands (from 1). A message of which none is left is no longer among ``demands``.
    """

    task: int | None = None
    demands: tuple[DemandRef, ...] = ()
    withdrawn: tuple[tuple[int, int], ...] = ()

    def with_message(self, ref: MessageRef) -> Spoken:
        """The same after one more message."""
        facts = ref.facts
        if not facts.human:
            return self
        task = ref.number if self.task is None else self.task
        demands = self.demands
        if facts.demands:
            demands = (*demands, DemandRef(ref.number, ref.position, ref.index, facts.demands))
        return Spoken(task, demands, self.withdrawn)

    def only_of(self, order: Iterable[tuple[int, int]], fresh: Iterable[MessageRef]) -> Spoken:
        """The same for a transcript that was set: runs of numbers, ``fresh`` among them."""
        runs = list(order)
        task = self.task if self.task is not None and _holds(runs, self.task) else None
        demands = tuple([one for one in self.demands if _holds(runs, one.number)])
        left = Spoken(task, demands, self.withdrawn)
        for ref in fresh:
            left = left.with_message(ref)
        return left

    def without_messages(self, numbers: Collection[int]) -> Spoken:
        """The same without the demands of these messages, whose texts were erased."""
        left = [one for one in self.demands if one.number not in numbers]
        return self._replace(demands=tuple(left))

    def without_demand(self, number: int, demand: int) -> Spoken:
        """The same without demand ``demand`` (from 1) of a message, which was taken back."""
        if (number, demand) in self.withdrawn:
            return self
        demands = [
            one if one.number != number else _without_one(one, demand) for one in self.demands
        ]
        return self._replace(
            demands=tuple([one for one in demands if one.demands]),
            withdrawn=(*self.withdrawn, (number, demand)),
        )

    def count_absent(self, layout: Layout) -> int:
        """How many demands that hold are nowhere in a view, word by word, as far as facts tell.

        A shortened message holds as many as its copy's facts count. A message out of view holds
        those of an insertion that says so (``InsertionRef.demands``). No text is read, so a demand
        that another message repeats, or that an older summary quotes, counts as absent.
        """
        quoted = [run for one in layout.insertions for run in one.demands]
        wanted = {one.number: one.demands for one in self.demands if not _holds(quoted, one.number)}
        missing = sum(wanted.values())
        if not missing:
            return 0
        for ref in layout.refs:
            demands = wanted.get(ref.number)
            if demands is not None:
                missing -= min(demands, ref.facts.demands) if ref.shortened else demands
        return missing


NOTHING_SPOKEN: Final = Spoken()


def _without_one(ref: DemandRef, demand: int) -> DemandRef:
    withdrawn = tuple(sorted([*ref.withdrawn, demand]))
    return msgspec.structs.replace(ref, demands=ref.demands - 1, withdrawn=withdrawn)


def _holds(runs: Iterable[tuple[int, int]], number: int) -> bool:
    return any(first <= number <= last for first, last in runs)


# -- the state -----------------------------------------------------------------------------------


class ViewState(msgspec.Struct, frozen=True, gc=False):
    """The view after some record of a stream.

    - ``position``: of that record; -1 before the first one.
    - ``next_number``: the number of the next message to be added.
    - ``messages``: how many messages the transcript holds.
    - ``layout``: the messages and insertions in view, in order.
    - ``gone``: runs of message numbers that compactions took out of view; ``hidden`` counts them as
      summarised, dropped and merged.
    - ``plan_position``: of the record with the plan in force; None before the first compaction.
    - ``pins``: numbers of pinned messages.
    - ``breaks``: causes, since the last prepared request, for which the next one will not merely
      continue it.
    - ``size_after_compaction``: tokens of the view after the last compaction, by the estimator;
      ``messages_after_compaction``: its messages without the system messages.
    - ``compactions``: how many were applied.
    - ``turns``: the number of the last turn.
    - ``shown``: the tool round in progress in the last request, as the place of its first entry,
      its number of entries, and their digest; None if no round was in progress.
    - ``calibration``: the relation of our token counts to those that the provider reports.
    - ``tools``: digests of the tool definitions whose contents are in the log.
    - ``mirror``: the name of the file that the stream mirrors; None for a session of ours.
    - ``spoken``: the first task and the demands of a person, in view or not.
    - ``spans``: the stream's own spans that have begun and not ended, the newest last.
    """

    position: int
    next_number: int
    messages: int
    layout: Layout
    gone: tuple[Run, ...]
    plan_position: int | None
    pins: frozenset[int]
    breaks: tuple[Break, ...]
    size_after_compaction: int
    messages_after_compaction: int
    compactions: int
    hidden: tuple[int, int, int]
    turns: int
    shown: tuple[int, int, str] | None
    calibration: Calibration
    tools: frozenset[str] = frozenset()
    mirror: str | None = None
    spans: Unended = ()
    spoken: Spoken = NOTHING_SPOKEN

    @property
    def estimator(self) -> Estimator:
        """The estimator that counts this view's tokens."""
        return FAMILIES[self.calibration.family]


class ViewCounts(NamedTuple):
    """Number of the transcript's messages per disposition; their sum is the transcript's length.

    ``omitted`` are results that answer no call in view, and system messages that the host's own
    prompt replaces.
    """

    kept: int
    shortened: int
    summarised: int
    dropped: int
    merged: int
    omitted: int


def initial() -> ViewState:
    """The view of an empty stream."""
    return ViewState(
        position=-1,
        next_number=0,
        messages=0,
        layout=layouts.EMPTY,
        gone=(),
        plan_position=None,
        pins=frozenset(),
        breaks=(),
        size_after_compaction=0,
        messages_after_compaction=0,
        compactions=0,
        hidden=(0, 0, 0),
        turns=0,
        shown=None,
        calibration=calibration.UNCALIBRATED,
        tools=frozenset(),
    )


def counts(state: ViewState) -> ViewCounts:
    """How many messages of the transcript have each disposition in this view."""
    shortened = state.layout.shortened
    omitted = state.layout.omitted
    return ViewCounts(
        len(state.layout.refs) - shortened - omitted, shortened, *state.hidden, omitted
    )


def after_compaction(state: ViewState) -> ViewState:
    """The state with the present size of the view recorded as the size after a compaction.

    The next automatic compaction is due when the view has grown enough from there.
    """
    return replace(
        state,
        size_after_compaction=state.layout.tokens,
        messages_after_compaction=conversation_length(state.layout),
    )


def conversation_length(layout: Layout) -> int:
    """How many messages are in view, not counting system messages."""
    return sum([ref.facts.kind != "system" for ref in layout.refs])


def with_break(breaks: tuple[Break, ...], kind: Break) -> tuple[Break, ...]:
    """These breaks and this one; each kind is there once."""
    return breaks if kind in breaks else (*breaks, kind)
