"""The turns of a host that runs the agent itself and only reports its events.

Such a host does not enter our blocks. It reports that a turn began, a model was called, a tool
ended, and it often leaves out an end. Its reports are recorded by the rules of
``log/turn_recorder.py``. The next report ends what the host left open, so every beginning in the
log has one end. A host's listeners run in tasks of their own and cannot set a context variable, so
the append queue holds the turn's scope for them (``AppendQueue.held``).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

import msgspec

from eventctx.aio import KeyedLock, finish
from eventctx.log.events import InputTransformation, Status
from eventctx.log.ids import RecordIds, chosen_turn_id
from eventctx.log.open_calls import LEFT_OPEN, NO_END, EndedCall, OpenCalls
from eventctx.log.turn_recorder import (
    OK,
    CallSettings,
    IterationRecorder,
    ModelRequest,
    SpanOutcome,
    SpanRecord,
    TurnRecorder,
    TurnSpan,
    usage_record,
)
from eventctx.log.usage import Usage
from eventctx.session.activity import SessionEmitter, enter_turn, new_turn, own
from eventctx.session.scope import Scope

P = ParamSpec("P")

NONE_KNOWN: Final = CallSettings()


def _whole(
    step: Callable[Concatenate[HostReporter, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[HostReporter, P], Coroutine[Any, Any, None]]:
    """Make a method that runs after the one before it has ended, and always to its own end.

    A host's listeners run side by side and are cancelled with their turns, but each beginning must
    still get its one end. Only the beginning of a turn waits for anything, so a step meets another
    one, or its own cancellation, only while a turn begins.
    """

    @wraps(step)
    async def whole(self: HostReporter, /, *args: P.args, **named: P.kwargs) -> None:
        async def alone() -> None:
            async with self._steps(""):
                await step(self, *args, **named)

        if not self._beginning:
            await step(self, *args, **named)
        else:
            await finish(alone())

    return whole


class HostReporter:
    """One session's turns as its host reports them. ``Context.following`` makes it.

    Every method may be called at any time; a report that fits nothing open does nothing. Reports
    made at the same time are recorded one after the other, and completely, also when a caller is
    cancelled. Raises what the store raises.
    """

    told_at: int | None = None
    """When the host told what is reported next, in UTC nanoseconds; None for now."""

    def __init__(
        self,
        emitter: SessionEmitter,
        hold: Callable[[Scope | None], None],
        random: Callable[[int], bytes],
    ) -> None:
        self._emitter = emitter
        self._hold = hold
        self._random = random
        self._steps = KeyedLock()
        self._beginning = 0
        self._turn: TurnRecorder | None = None
        self._scope = Scope(emitter.session_id)
        self._cycle: IterationRecorder | None = None
        self._call: TurnSpan[ModelRequest] | None = None
        self._tools = OpenCalls()
        self._failure: SpanOutcome | None = None
        self._before: Scope | None = None

    @property
    def in_turn(self) -> bool:
        """Whether a turn is open."""
        return self._turn is not None

    @property
    def awaits_answer(self) -> bool:
        """Whether a model call is open."""
        return self._call is not None

    @property
    def scope(self) -> Scope | None:
        """The scope of the turn in its present iteration; None outside of turns."""
        return None if self._turn is None or self._cycle is None else self._at(self._cycle.ids)

    def _at(self, ids: RecordIds) -> Scope:
        return self._scope.at(ids)

    async def _record(self, made: SpanRecord, answer: str | None = None) -> None:
        self._emitter.note(made.event, self._at(made.ids), answer, self.told_at)

    @property
    def came_in(self) -> Scope | None:
        """The scope of what comes with the next request: the one before its iteration began."""
        return None if self.sends is None else self._before

    def send(self) -> None:
        """Let what was recorded go to the store now, without waiting for it."""
        self._emitter.send()

    @property
    def sends(self) -> TurnSpan[ModelRequest] | None:
        """The model call that will send the next request, if it has not begun yet."""
        return None if self._call is None or self._call.began else self._call

    # -- turns -----------------------------------------------------------------------------------

    async def turn_began(self, turn_id: str | None = None, agent: str | None = None) -> None:
        """A turn began. One that is still open is ended first."""
        self._beginning += 1
        try:
            await self._begin_turn(turn_id, agent)
        finally:
            self._beginning -= 1

    @_whole
    async def _begin_turn(self, turn_id: str | None, agent: str | None) -> None:
        if self._turn is not None:
            # A host that says no end of the turn ended it with the failure that it went no further.
            left_open = SpanOutcome("cancelled", message=NO_END)
            await self._end_turn(self._failure or left_open)
        turn = new_turn(self._emitter, chosen_turn_id(turn_id, self._random))
        scope, joined = enter_turn(self._emitter, turn)
        await self._emitter.begin_turn(scope, agent, joined)
        own(turn.span)
        self._turn, self._scope, self._cycle = turn, scope, turn.outside()
        self._failure = None
        self._hold(scope)

    @_whole
    async def turn_ended(self, status: Status = "ok", error: str | None = None) -> None:
        """The turn ended, and all calls in it with it. A failed turn has the error of its call."""
        outcome = SpanOutcome(status, message=error)
        if status == "error" and error is None and self._failure is not None:
            outcome = msgspec.structs.replace(self._failure, status=status)
        await self._end_turn(outcome)

    async def _end_turn(self, outcome: SpanOutcome) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        try:
            await self._end_what_is_open(outcome.status)
        finally:
            try:
                await self._record(turn.span.end(outcome))
            finally:
                self._hold(None)

    # -- model calls -----------------------------------------------------------------------------

    @_whole
    async def iteration_began(
        self,
        provider: str | None = None,
        model: str | None = None,
        settings: CallSettings = NONE_KNOWN,
    ) -> None:
        """The turn's next iteration began, with a request that is still to be prepared.

        ``settings`` are what the host knows of it (``read_settings``).
        """
        if self._turn is None:
            return
        await self._end_what_is_open("ok")
        self._failure = None  # the host went on
        self._before = self.scope
        self._cycle = self._turn.iteration()
        self._call = self._cycle.model_call(model, provider)
        self._call.of.settings = settings
        self._hold(self.scope)

    @_whole
    async def request_prepared(self) -> None:
        """The request of the present iteration was prepared, and is about to be sent.

        A host may ask again before it sends one: after it added a reminder, or for a smaller view.
        The answer is to the last one.
        """
        if self._call is not None:
            await self._begin(self._call)
            self._call.of.prepared = self._emitter.prepared_in(self._at(self._call.ids))

    @_whole
    async def model_known(
        self,
        *,
        model: str | None = None,
        usage: Usage | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
        transformed: tuple[InputTransformation, ...] = (),
    ) -> None:
        """Facts of the present model call became known; its end is reported separately."""
        if self._call is not None:
            call = self._call.of
            call.model = model or call.model
            call.usage = usage or call.usage
            call.response_id = response_id or call.response_id
            call.finish_reason = finish_reason or call.finish_reason
            call.transformed = transformed or call.transformed

    @_whole
    async def model_answered(self) -> None:
        """The model answered."""
        await self._end_call(OK)

    @_whole
    async def model_failed(self, kind: str, message: str, *, cancelled: bool = False) -> None:
        """The model call failed, or was cancelled."""
        await self._end_call(_failed(kind, message, cancelled))

    async def _end_call(self, outcome: SpanOutcome) -> None:
        if outcome.status != "ok":
            self._failure = outcome
        call, self._call = self._call, None
        if call is None:
            return
        await self._begin(call)
        if outcome.status == "ok" and call.of.usage is not None:
            await self._record(usage_record(call))
        await self._record(call.end(outcome))

    async def _begin(self, call: TurnSpan[ModelRequest]) -> None:
        if call.beginning:
            call.begun()  # its record goes to the disk before that of its end
        if not call.began:
            call.of.prepared = self._emitter.prepared_in(self._at(call.ids))
            own(call)
            await self._record(call.begin())

    # -- tools -----------------------------------------------------------------------------------

    @property
    def open_tools(self) -> int:
        """How many tool calls are open."""
        return len(self._tools)

    @_whole
    async def tool_began(
        self, name: str, call_id: str | None, key: object, *, alike: int = 0
    ) -> None:
        """A tool call began; the host reports its end with the same ``key``.

        ``alike`` calls of the answer that have this key, too, are still to begin.
        """
        if self._turn is None or self._cycle is None:
            return
        await self._end_call(OK)
        call = self._cycle.tool_call(name, call_id)
        own(call)
        await self._record(call.begin())
        self._tools.begin(key, call, alike)

    @_whole
    async def tool_ended(
        self, key: object, answer: str | None = None, *, name: str | None = None
    ) -> None:
        """The tool call ended with a result, whose text is ``answer``.

        The text is kept in the log while another call of the answer is open or has yet to begin,
        whose crash would take it along; that of the last call is added as a message at once. A call
        of the tool ``name`` is meant where no open call has the key. If several calls may be meant,
        the end is recorded when it is known whose it is (``log/open_calls.py``).
        """
        await self._end_tools(self._tools.end(key, name, OK, answer))

    @_whole
    async def tool_failed(
        self,
        key: object,
        kind: str,
        message: str,
        *,
        cancelled: bool = False,
        answer: str | None = None,
        name: str | None = None,
    ) -> None:
        """The tool call failed, or was cancelled; ``tool_ended`` says which call is meant."""
        failed = _failed(kind, message, cancelled)
        self._failure = self._failure or failed
        await self._end_tools(self._tools.end(key, name, failed, answer))

    @_whole
    async def tool_result_added(
        self, call_id: str, text: str, failure: tuple[str, str] | None = None
    ) -> None:
        """The host is about to add a call's result, which may tell whose an end is that waits.

        ``failure`` is the type and the message of the failure that the text tells.
        """
        failed = None if failure is None else _failed(*failure, cancelled=False)
        await self._end_tools(self._tools.result_added(call_id, text, failed))

    async def _end_tools(self, ended: list[EndedCall]) -> None:
        others = len(ended) + len(self._tools)
        for call in ended:
            others -= 1
            answer = call.answer
            if not others and answer is not None:
                waits = await self._emitter.has_open_calls(call.span.of.call_id)
                answer = answer if waits else None
            await self._record(call.span.end(call.outcome), answer)

    # -- open calls ------------------------------------------------------------------------------

    async def _end_what_is_open(self, status: Status) -> None:
        """End the calls that are still open, in a turn or iteration that ends with ``status``."""
        await self._end_tools(self._tools.close())
        if self._call is not None:
            ended = OK if status == "ok" else msgspec.structs.replace(LEFT_OPEN, status=status)
            await self._end_call(ended)


def _failed(kind: str, message: str, cancelled: bool) -> SpanOutcome:
    return SpanOutcome("cancelled" if cancelled else "error", kind, message)
