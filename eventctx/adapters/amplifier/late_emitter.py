"""The emitter of a session that its first turn opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, new_span_id, random_bytes
from eventctx.session.activity import Emitter
from eventctx.session.context import Context
from eventctx.session.scope import Scope


class LateEmitter:
    """An ``Emitter`` that opens the session when a turn begins."""

    def __init__(self, session_id: str, opened: Callable[[], Awaitable[Context]]) -> None:
        self.session_id = session_id
        self._opened = opened
        self._emitter: Emitter | None = None

    @property
    def current_span(self) -> CurrentSpan | None:
        """How to make a span the host's current one; None before the session is open."""
        return None if self._emitter is None else self._emitter.current_span

    def new_span_id(self) -> str:
        """A fresh span id."""
        return new_span_id(random_bytes)

    async def begin_turn(self, scope: Scope, agent: str | None, trace_id: str | None) -> int:
        """Open the session and begin a turn in it."""
        self._emitter = (await self._opened()).emitter
        return await self._emitter.begin_turn(scope, agent, trace_id)

    def prepared_in(self, scope: Scope) -> int | None:
        """Position of the request last prepared in a turn's iteration."""
        return None if self._emitter is None else self._emitter.prepared_in(scope)

    def first_usage(self, response_id: str | None) -> bool:
        """Note that the usage of an answer is taken; return whether it is for the first time."""
        return self._emitter is None or self._emitter.first_usage(response_id)

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        """Append an activity event without waiting for the disk."""
        if self._emitter is None:
            self._emitter = (await self._opened()).emitter
        await self._emitter.emit(event, scope, answer)
