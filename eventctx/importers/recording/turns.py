"""The turns of a file, with their model calls and tool calls, as spans of a session.

A turn begins and ends as the file says; a file that does not say when one ended knows only its last
record. A call ends before whatever follows its answer. No time in a turn is later than its end,
whatever the clock of its program did.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from eventctx.importers.recording.track import LineIds, Track
from eventctx.importers.source.items import CallEnded, ModelCall, TurnBegan, TurnMeasured
from eventctx.log import events
from eventctx.log.ids import RecordIds
from eventctx.log.record import Record
from eventctx.log.turn_recorder import (
    OK,
    ModelRequest,
    SpanOutcome,
    SpanRecord,
    TurnRecorder,
    TurnSpan,
    usage_record,
)

_TURN_ENDS: Final = "prompt:complete"

_TOOL_FAILED: Final = SpanOutcome("error", "ToolError")

Put = Callable[[events.Event, int | None, RecordIds], Awaitable[Record]]
"""Records an event at a time, in the span of these ids."""


class FileTurns:
    """The open turn, its open call, and the tools that run. ``put`` records their events."""

    def __init__(self, ids: LineIds, put: Put) -> None:
        self._new_ids = ids
        self._put = put
        self._turn = TurnRecorder(ids.new_span)
        self._cycle = self._turn.outside()
        self._ended: str | None = None
        self._began: int | None = None
        self.latest: int | None = None
        self.interrupted = False
        self._call: TurnSpan[ModelRequest] | None = None
        self._last_call: TurnSpan[ModelRequest] | None = None
        self._announced: dict[str, str] = {}
        self._tools: dict[str, TurnSpan[events.ToolPre]] = {}

    @property
    def ids(self) -> RecordIds:
        """The ids of records in the turn."""
        return self._turn.ids

    @property
    def answer_ids(self) -> RecordIds | None:
        """The ids of the records of an answer; None where no call is open."""
        return None if self._call is None else self._call.ids

    def saw(self, time: int | None) -> None:
        """Note the time of a record."""
        if time is not None and self.latest is not None:
            self.latest = max(self.latest, time)

    def child(self, event: type[events.Event]) -> RecordIds:
        """The ids of a span in the present cycle, which a record of this type begins."""
        return self._cycle.ids.child(self._new_ids.new_span(event))

    async def _record(self, made: SpanRecord, time: int | None) -> None:
        await self._put(made.event, time, made.ids)

    # -- turns -----------------------------------------------------------------------------------

    async def begin(self, item: TurnBegan, number: int, agent: str | None, track: Track) -> None:
        """Begin turn ``number``; the one before it ends."""
        await self.end(None, OK)
        begins = events.PromptSubmit(number=number, agent=agent)
        self._enter(TurnRecorder(self._new_ids.new_span, f"turn-{number:04d}", begins))
        self.interrupted = False
        self._began = self.latest = None
        await self._record(self._turn.span.begin(), item.time)
        self._began = self.latest = track.time

    def _enter(self, turn: TurnRecorder) -> None:
        self._turn, self._cycle = turn, turn.outside()

    async def end(self, time: int | None, outcome: SpanOutcome) -> None:
        """End the turn, if one is open."""
        await self.end_call(None)
        if self._turn.ids.turn_id is None:
            return
        if outcome.status == "ok" and self.interrupted:
            outcome = msgspec.structs.replace(outcome, status="cancelled")
        if self._turn.ids.turn_id != self._ended:
            await self._record(self._turn.span.end(outcome), self._not_before(time))
        self._enter(TurnRecorder(self._new_ids.new_span))

    async def measured(self, item: TurnMeasured) -> None:
        """Record what the file's program measured."""
        await self.end_call(None)
        if self._turn.ids.turn_id is None:
            return
        # The file has the line's time, too, but the turn took just as long as it says.
        began, self._began = self._began, None
        time = item.time if began is None else began + item.duration
        measured = events.PromptMeasured(duration=item.duration)
        await self._put(measured, self._not_before(time), self._turn.ids)

    def _not_before(self, time: int | None) -> int | None:
        return max([one for one in (time, self.latest) if one is not None], default=None)

    async def pass_over_end(self, track: Track) -> None:
        """Pass over the end that an import gave the turn, as complete, where the file has grown.

        The turn is not ended again, whether it goes on or not.
        """
        stored = track.next
        if stored is None or stored.type != _TURN_ENDS or self._turn.ids.turn_id is None:
            return
        if stored.id == self._new_ids.at_end(events.PromptComplete):
            await self.end_call(None)
            await track.pass_over()
            self._ended = self._turn.ids.turn_id

    # -- model calls -----------------------------------------------------------------------------

    def new_cycle(self) -> None:
        """Begin the next cycle of the turn, for a model call."""
        self.interrupted = False
        self._cycle = self._turn.iteration()

    async def call(self, item: ModelCall, prepared: Record, time: int | None) -> None:
        """Begin a model call, whose request is in the record ``prepared``."""
        call = self._cycle.model_call(item.model, item.provider)
        call.of.prepared = prepared.position
        call.of.usage, call.of.output_exact = item.usage, item.output_exact
        call.of.finish_reason, call.of.response_id = item.finish_reason, item.response_id
        await self._record(call.begin(), time)
        self._call = self._last_call = call

    async def call_ended(self, item: CallEnded) -> None:
        """End the open call, or add its usage to one that ended before."""
        last = self._last_call
        if self._call is not None:
            call = self._call.of
            if item.usage is not None:
                call.usage, call.output_exact = item.usage, True
            call.finish_reason = item.finish_reason or call.finish_reason
            call.response_id = item.response_id or call.response_id
            await self.end_call(item.time)
        elif item.usage is not None and last is not None and last.of.usage is None:
            # The usage came after the end of the call; a repeated report is ignored.
            last.of.usage, last.of.output_exact = item.usage, True
            await self._record(usage_record(last), item.time)

    async def end_call(self, time: int | None) -> None:
        """End the open call, if there is one, and begin the tools that it asked for."""
        call, self._call = self._call, None
        if call is None:
            return
        await self._record(call.end(), time)
        if call.of.usage is not None:
            await self._record(usage_record(call), time)
        announced, self._announced = self._announced, {}
        for call_id, name in announced.items():
            self._tools[call_id] = tool = self._cycle.tool_call(name, call_id)
            await self._record(tool.begin(), time)

    def announce(self, calls: tuple[str, ...], names: dict[str, str]) -> None:
        """Note the tools that the open call's answer asks for."""
        for call_id in calls:
            self._announced[call_id] = names.get(call_id, "unknown")

    async def tool_ended(self, call_id: str, time: int | None, *, failed: bool) -> None:
        """End a tool's span, if it is open."""
        tool = self._tools.pop(call_id, None)
        if tool is not None:
            await self._record(tool.end(_TOOL_FAILED if failed else OK), time)
