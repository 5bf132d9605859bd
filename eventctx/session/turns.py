"""Turn, iteration and span identity, carried by a context variable of the running task.

Only the ``async with`` blocks in this file set the variable, never a listener, and no block spans a
``yield``. Parallel tool calls are separate tasks, so each sees its own span.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Protocol

import msgspec

from eventctx.aio import finish, insist
from eventctx.errors import InvalidSetting
from eventctx.log import events
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, derive_trace_id
from eventctx.log.outcomes import described, failure_of, status_of, words_of


class Scope(msgspec.Struct, frozen=True):
    """Where in a session the running task is. ``outer`` is the scope around it, of any session."""

    session_id: str
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None
    trace_id: str | None = None
    outer: Scope | None = None


_current: ContextVar[Scope | None] = ContextVar("eventctx_scope", default=None)


def current_scope() -> Scope | None:
    """The innermost scope of the running task, of whichever session; None outside of any."""
    return _current.get()


def scope_of(session_id: str) -> Scope:
    """The innermost scope of this session; one with null ids outside of any."""
    scope = _current.get()
    while scope is not None:
        if scope.session_id == session_id:
            return scope
        scope = scope.outer
    return Scope(session_id)


class Emitter(Protocol):
    """What the blocks need of the session they belong to."""

    @property
    def session_id(self) -> str:
        """The session's id."""
        ...

    @property
    def current_span(self) -> CurrentSpan | None:
        """How to make a span the host's current one; None without a trace sink."""
        ...

    def new_span_id(self) -> str:
        """A fresh span id."""
        ...

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        """Append the beginning of a turn and return the turn's number."""
        ...

    def prepared_in(self, scope: Scope) -> int | None:
        """Position of the request last prepared in a turn's iteration; None if there is none."""
        ...

    async def emit(self, event: Event, scope: Scope) -> None:
        """Append an activity event without waiting for the disk."""
        ...


class _Block:
    """A span: makes its scope the running task's, and emits how it began and ended."""

    def __init__(self, emitter: Emitter, span_id: str | None) -> None:
        self._emitter = emitter
        self._token: Token[Scope | None] | None = None
        self._span_token: object = None
        self._before: Scope | None = None
        self.span_id = span_id or emitter.new_span_id()

    async def _enter(self, scope: Scope, began: Event | None) -> None:
        # First the record, then the scope: a block that could not be entered leaves nothing set.
        if began is not None:
            await self._emitter.emit(began, scope)
        self.scope = scope
        self._before = _current.get()
        self._token = _current.set(scope)
        span = self._emitter.current_span
        if span is not None and scope.trace_id is not None and scope.span_id is not None:
            self._span_token = span.enter(scope.session_id, scope.trace_id, scope.span_id)

    def _ended(self, kind: type[BaseException] | None, error: BaseException | None) -> Event | None:
        """The event that says how the block ended; None for a block that is no span."""
        return None

    async def _say(self, ended: Event | None) -> None:
        if ended is not None:
            await insist(lambda: self._emitter.emit(ended, self.scope))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._say(self._ended(kind, error))
        finally:
            span = self._emitter.current_span
            if span is not None and self._span_token is not None:
                span.exit(self._span_token)
            _leave(self._token, self._before)


def _leave(token: Token[Scope | None] | None, before: Scope | None) -> None:
    if token is None:
        return
    try:
        _current.reset(token)
    except ValueError:
        # The block was closed in another task's context than it was opened in.
        _current.set(before)


def check_turn_id(turn_id: object) -> str:
    """Return a turn id that can be used. Raises InvalidSetting."""
    if isinstance(turn_id, str) and 0 < len(turn_id) <= MAX_TURN_ID and turn_id.isprintable():
        return turn_id
    raise InvalidSetting(
        f"turn_id: expected a text of 1 to {MAX_TURN_ID} printable characters, found {turn_id!r}"
    )


MAX_TURN_ID = 256


class Turn(_Block):
    """One request/response cycle: ``async with ctx.turn() as turn``.

    ``number`` counts the session's turns from 1 and is set on entry. A turn inside a host's span
    joins the host's trace; else its trace id follows from the session and turn ids.
    """

    def __init__(self, emitter: Emitter, turn_id: str, agent: str | None = None) -> None:
        super().__init__(emitter, None)
        self.turn_id = turn_id
        self.agent = agent
        self.number = 0
        self._iterations = 0

    async def __aenter__(self) -> Turn:
        session = self._emitter.session_id
        span = self._emitter.current_span
        ambient = span.ambient() if span is not None else None
        trace_id = ambient[0] if ambient else derive_trace_id(session, self.turn_id)
        parent = ambient[1] if ambient else None
        scope = Scope(session, self.turn_id, self.span_id, parent, None, trace_id, _current.get())
        began = self._emitter.begin_turn(scope, self.agent, ambient[0] if ambient else None)
        try:
            self.number = await finish(began)
        except asyncio.CancelledError as error:
            self.scope = scope
            if error.__cause__ is None:  # it is in the log, and nobody will leave this block
                await self._say(self._ended(type(error), error))
            raise
        await self._enter(scope, None)
        return self

    def _ended(self, kind: type[BaseException] | None, error: BaseException | None) -> Event | None:
        return events.PromptComplete(status=status_of(kind), error=described(error))

    def iteration(self, number: int | None = None) -> Iteration:
        """The next provider/tool cycle of this turn (numbered from 1)."""
        if number is not None and (type(number) is not int or not 0 <= number < 2**31):
            raise InvalidSetting(f"iteration: expected an int from 0, found {number!r}")
        self._iterations = number if number is not None else self._iterations + 1
        return Iteration(self._emitter, self.scope, self._iterations)


class Iteration(_Block):
    """One provider/tool cycle. It is no span of its own: it numbers the records inside."""

    def __init__(self, emitter: Emitter, turn: Scope, number: int) -> None:
        super().__init__(emitter, turn.span_id)
        self.number = number
        self._turn = turn
        self._provider_span: str | None = None

    async def __aenter__(self) -> Iteration:
        scope = msgspec.structs.replace(
            self._turn, iteration=self.number, trace_id=None, outer=_current.get()
        )
        # The turn's span is current already; a scope without trace id does not enter it again.
        await self._enter(scope, None)
        self.scope = msgspec.structs.replace(scope, trace_id=self._turn.trace_id)
        return self

    def provider_call(self, model: str | None = None, provider: str | None = None) -> ProviderCall:
        """A model call: a span under the turn's. Report its usage on the block."""
        call = ProviderCall(self._emitter, self.scope, model, provider)
        self._provider_span = call.span_id
        return call

    def tool_call(self, name: str, call_id: str | None = None) -> ToolCall:
        """A tool call: a span under that of the iteration's model call."""
        return ToolCall(self._emitter, self.scope, name, call_id, self._provider_span)

    def plan(self, name: str | None = None) -> PlanPhase:
        """A planning phase: a span under the turn's. Model calls inside of it are made on it."""
        return PlanPhase(self._emitter, self.scope, name)


class _Call(_Block):
    """A span inside an iteration."""

    def __init__(self, emitter: Emitter, around: Scope, parent: str | None) -> None:
        super().__init__(emitter, None)
        self._around = around
        self._parent = parent or around.span_id
        self.scope = msgspec.structs.replace(
            around, span_id=self.span_id, parent_span_id=self._parent
        )

    async def _begin(self, began: Event) -> None:
        await self._enter(msgspec.structs.replace(self.scope, outer=_current.get()), began)


class PlanPhase(_Call):
    """A planning phase in progress."""

    def __init__(self, emitter: Emitter, around: Scope, name: str | None) -> None:
        super().__init__(emitter, around, None)
        self.name = name

    async def __aenter__(self) -> PlanPhase:
        await self._begin(events.PlanStart(name=self.name))
        return self

    def provider_call(self, model: str | None = None, provider: str | None = None) -> ProviderCall:
        """A model call: a span under the plan's. Report its usage on the block."""
        return ProviderCall(self._emitter, self.scope, model, provider)

    def _ended(self, kind: type[BaseException] | None, error: BaseException | None) -> Event | None:
        return events.PlanEnd(status=status_of(kind), error=described(error))


class ProviderCall(_Call):
    """A model call in progress. ``prepared`` is the position of the request that it sends."""

    def __init__(
        self,
        emitter: Emitter,
        around: Scope,
        model: str | None,
        provider: str | None,
        *,
        sends_view: bool = True,
    ) -> None:
        super().__init__(emitter, around, None)
        self.model = model
        self.provider = provider
        self._sends_view = sends_view
        self._finish_reason: str | None = None
        self._response_id: str | None = None
        self.prepared: int | None = None

    async def __aenter__(self) -> ProviderCall:
        # A call that summarizes the view is no request of it, and its usage says nothing about it.
        self.prepared = self._emitter.prepared_in(self._around) if self._sends_view else None
        await self._begin(
            events.ProviderRequest(model=self.model, provider=self.provider, prepared=self.prepared)
        )
        return self

    async def usage(
        self,
        prompt: int | None,
        output: int | None = 0,
        *,
        cache_read: int | None = 0,
        cache_write: int | None = 0,
        reasoning: int | None = 0,
    ) -> None:
        """Record what the provider counted, in tokens; ``prompt`` holds the caches.

        None, where a provider leaves a count out, is recorded as 0.
        """
        reported = events.UsageReported(
            prompt=prompt or 0,
            output=output or 0,
            cache_read=cache_read or 0,
            cache_write=cache_write or 0,
            reasoning=reasoning or 0,
            model=self.model,
            prepared=self.prepared,
        )
        await self._emitter.emit(reported, self.scope)

    def finished(self, reason: str | None = None, response_id: str | None = None) -> None:
        """Say why the model stopped and how the provider calls its answer."""
        self._finish_reason, self._response_id = reason, response_id

    def _ended(self, kind: type[BaseException] | None, error: BaseException | None) -> Event | None:
        if kind is None:
            return events.ProviderResponse(
                model=self.model,
                response_id=self._response_id,
                finish_reason=self._finish_reason,
            )
        return events.ProviderError(
            error_type=kind.__name__, message=words_of(error), status=failure_of(kind)
        )


class ToolCall(_Call):
    """A tool call in progress."""

    def __init__(
        self, emitter: Emitter, around: Scope, name: str, call_id: str | None, parent: str | None
    ) -> None:
        super().__init__(emitter, around, parent)
        self.name = name
        self.call_id = call_id

    async def __aenter__(self) -> ToolCall:
        await self._begin(events.ToolPre(name=self.name, call_id=self.call_id))
        return self

    def _ended(self, kind: type[BaseException] | None, error: BaseException | None) -> Event | None:
        if kind is None:
            return events.ToolPost(name=self.name, call_id=self.call_id)
        return events.ToolError(
            name=self.name,
            call_id=self.call_id,
            error_type=kind.__name__,
            message=words_of(error),
            status=failure_of(kind),
        )
