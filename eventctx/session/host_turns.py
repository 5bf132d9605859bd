"""Turns of a host that only tells of them: its events, one after the other, become records.

Where the host runs the agent, nobody enters our blocks; it says that a turn began, that a model
was asked, that a tool ended, and often forgets the end of something. What it told is recorded with
the ids that blocks would have given, and what it left open is closed by what comes next, so the
log keeps its promises (one end for every beginning). The session is held at the turn's place, as
a host's listeners run in tasks of their own and cannot set a context variable.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import msgspec

from eventctx.aio import KeyedLock, finish
from eventctx.log import events
from eventctx.log.ids import derive_trace_id
from eventctx.log.usage import Usage
from eventctx.session.turns import Emitter, Scope, check_turn_id

P = ParamSpec("P")

UNTOLD = "the host did not say how it ended"


class _ModelCall:
    """A model call that a host told of; ``began`` once its beginning is recorded."""

    def __init__(self, scope: Scope, provider: str | None, model: str | None) -> None:
        self.scope = scope
        self.provider = provider
        self.model = model
        self.began = False
        self.prepared: int | None = None
        self.usage: Usage | None = None
        self.response_id: str | None = None
        self.finish_reason: str | None = None


class _ToolCall:
    """A tool call that a host told of."""

    def __init__(self, scope: Scope, name: str, call_id: str | None, key: object) -> None:
        self.scope = scope
        self.name = name
        self.call_id = call_id
        self.key = key


def _whole(
    step: Callable[Concatenate[Following, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Following, P], Coroutine[Any, Any, None]]:
    """A step that is not taken before the one before it has ended, nor left halfway.

    A host's listeners run side by side and are cancelled with their turns; what began must still
    get its one end.
    """

    @wraps(step)
    async def whole(self: Following, /, *args: P.args, **named: P.kwargs) -> None:
        async def alone() -> None:
            async with self._steps(""):
                await step(self, *args, **named)

        await finish(alone())

    return whole


class Following:
    """One session's turns as its host tells of them. ``Context.following`` makes it.

    Every method may be called at any time, also where it makes no sense: then it does nothing.
    What is told at the same time is recorded one after the other, and wholly, also when the caller
    is cancelled. Raises what the store raises.
    """

    def __init__(self, emitter: Emitter, hold: Callable[[Scope | None], None]) -> None:
        self._emitter = emitter
        self._hold = hold
        self._steps = KeyedLock()
        self._turn: Scope | None = None
        self._iteration = 0
        self._call: _ModelCall | None = None
        self._parent: str | None = None
        self._tools: list[_ToolCall] = []
        self._error: str | None = None

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
        """Where the session is: the turn, in its iteration; None outside of turns."""
        if self._turn is None or self._iteration == 0:
            return self._turn
        return msgspec.structs.replace(self._turn, iteration=self._iteration)

    # -- turns -----------------------------------------------------------------------------------

    @_whole
    async def turn_began(self, turn_id: str | None = None, agent: str | None = None) -> None:
        """A turn began. One that is still open ended without a word."""
        if self._turn is not None:
            error = self._error
            await self._end_turn("cancelled" if error is None else "error", error or UNTOLD)
        session = self._emitter.session_id
        chosen = uuid.uuid4().hex if turn_id is None else check_turn_id(turn_id)
        span = self._emitter.current_span
        ambient = span.ambient() if span is not None else None
        trace_id, parent = ambient or (derive_trace_id(session, chosen), None)
        scope = Scope(session, chosen, self._emitter.new_span_id(), parent, None, trace_id)
        await self._emitter.begin_turn(scope, agent, trace_id if ambient else None)
        self._turn, self._iteration, self._error, self._parent = scope, 0, None, None
        self._hold(scope)

    @_whole
    async def turn_ended(self, status: events.Status = "ok", error: str | None = None) -> None:
        """The turn ended; so did everything in it."""
        await self._end_turn(status, error)

    async def _end_turn(self, status: events.Status, error: str | None) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        try:
            await self._nothing_open(status)
            await self._emitter.emit(events.PromptComplete(status=status, error=error), turn)
        finally:
            self._hold(None)

    # -- model calls -----------------------------------------------------------------------------

    @_whole
    async def model_asked(self, provider: str | None = None, model: str | None = None) -> None:
        """The next cycle of the turn begins, with a request that is still to be prepared."""
        if self._turn is None:
            return
        await self._nothing_open("ok")
        self._iteration += 1
        scope = self.scope
        assert scope is not None  # noqa: S101 - tells the type checker
        span = msgspec.structs.replace(
            scope, span_id=self._emitter.new_span_id(), parent_span_id=scope.span_id
        )
        self._call = _ModelCall(span, provider, model)
        self._hold(scope)

    @_whole
    async def request_prepared(self) -> None:
        """The request of the present cycle was prepared: the model is about to get it."""
        if self._call is not None:
            await self._begin(self._call)

    @_whole
    async def model_known(
        self,
        *,
        model: str | None = None,
        usage: Usage | None = None,
        response_id: str | None = None,
        finish_reason: str | None = None,
    ) -> None:
        """Something about the present call became known; its end is told apart."""
        call = self._call
        if call is not None:
            call.model = model or call.model
            call.usage = usage or call.usage
            call.response_id = response_id or call.response_id
            call.finish_reason = finish_reason or call.finish_reason

    @_whole
    async def model_answered(self) -> None:
        """The model answered."""
        await self._answered()

    async def _answered(self) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        await self._begin(call)
        self._parent = call.scope.span_id
        if call.usage is not None:
            counted = msgspec.structs.asdict(call.usage)
            reported = events.UsageReported(**counted, model=call.model, prepared=call.prepared)
            await self._emitter.emit(reported, call.scope)
        answered = events.ProviderResponse(
            model=call.model, response_id=call.response_id, finish_reason=call.finish_reason
        )
        await self._emitter.emit(answered, call.scope)

    @_whole
    async def model_failed(self, kind: str, message: str, *, cancelled: bool = False) -> None:
        """The model call failed, or was cancelled."""
        await self._failed(kind, message, cancelled)

    async def _failed(self, kind: str, message: str, cancelled: bool) -> None:
        self._error = f"{kind}: {message}"
        call, self._call = self._call, None
        if call is None:
            return
        await self._begin(call)
        failed = events.ProviderError(
            error_type=kind, message=message, status="cancelled" if cancelled else "error"
        )
        await self._emitter.emit(failed, call.scope)

    async def _begin(self, call: _ModelCall) -> None:
        if call.began:
            return
        call.began = True
        call.prepared = self._emitter.prepared_in(
            msgspec.structs.replace(call.scope, span_id=call.scope.parent_span_id)
        )
        began = events.ProviderRequest(
            model=call.model, provider=call.provider, prepared=call.prepared
        )
        await self._emitter.emit(began, call.scope)

    # -- tools -----------------------------------------------------------------------------------

    @_whole
    async def tool_began(self, name: str, call_id: str | None, key: object) -> None:
        """A tool call began; ``key`` is what the host will say of it again at its end."""
        scope = self.scope
        if scope is None:
            return
        await self._answered()
        span = msgspec.structs.replace(
            scope,
            span_id=self._emitter.new_span_id(),
            parent_span_id=self._parent or scope.span_id,
        )
        self._tools.append(_ToolCall(span, name, call_id, key))
        await self._emitter.emit(events.ToolPre(name=name, call_id=call_id), span)

    def open_call(self, name: str) -> object:
        """The key of the tool's call that began first and has not ended; None if there is none."""
        return next((one.key for one in self._tools if one.name == name), None)

    @_whole
    async def tool_ended(self, key: object) -> None:
        """The tool call ended with a result."""
        call = self._taken(key)
        if call is not None:
            ended = events.ToolPost(name=call.name, call_id=call.call_id)
            await self._emitter.emit(ended, call.scope)

    @_whole
    async def tool_failed(
        self, key: object, kind: str, message: str, *, cancelled: bool = False
    ) -> None:
        """The tool call failed, or was cancelled."""
        call = self._taken(key)
        if call is not None:
            await self._fail(call, kind, message, cancelled)

    def _taken(self, key: object) -> _ToolCall | None:
        call = next((one for one in self._tools if one.key == key), None)
        if call is not None:
            self._tools.remove(call)
        return call

    async def _fail(self, call: _ToolCall, kind: str, message: str, cancelled: bool) -> None:
        failed = events.ToolError(
            name=call.name,
            error_type=kind,
            call_id=call.call_id,
            message=message,
            status="cancelled" if cancelled else "error",
        )
        await self._emitter.emit(failed, call.scope)

    # -- what the host left open -----------------------------------------------------------------

    async def _nothing_open(self, status: events.Status) -> None:
        while self._tools:
            await self._fail(self._tools.pop(0), "NotTold", UNTOLD, True)
        if self._call is not None and status != "ok":
            await self._failed("NotTold", UNTOLD, status == "cancelled")
        await self._answered()
