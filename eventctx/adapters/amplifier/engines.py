"""Engines that the sessions of a process share: one for each store and set of sinks, while used.

A host runs a session and its children at the same time. On one engine their appends share commits,
and a child finds its parent even in a store in memory. A session is opened by its first message or
turn; ``LateEmitter`` is the emitter of a turn that opens it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from eventctx.adapters.amplifier.sinks import NO_SINKS, SinksWanted, open_sinks
from eventctx.aio import KeyedLock
from eventctx.engine import Engine, open_engine
from eventctx.errors import StoreUnavailable
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, new_span_id, random_bytes
from eventctx.log.private_files import make_folder
from eventctx.session.activity import Emitter
from eventctx.session.context import Context
from eventctx.session.scope import Scope
from eventctx.stores.location import is_on_a_server


class _Shared:
    def __init__(self, engine: Engine, release: Callable[[], None]) -> None:
        self.engine = engine
        self.release = release
        self.users: Counter[str] = Counter()


_Key = tuple[str, str | None, SinksWanted, asyncio.AbstractEventLoop]


class Engines:
    """Opens an engine for its first user and closes it after its last."""

    def __init__(self) -> None:
        self._shared: dict[_Key, _Shared] = {}
        self._opening = KeyedLock()

    async def acquire(
        self, store: str, durability: Any, session: str, wanted: SinksWanted = NO_SINKS
    ) -> Engine:
        """The engine on a store, of this event loop, for a session. Raises what opening raises."""
        # The loop is in the key: the next loop must not get the engine of one that has ended.
        key = (store, durability, wanted, asyncio.get_running_loop())
        async with self._opening(store):
            shared = self._shared.get(key)
            if shared is None:
                _make_folder(store)
                shared = await _opened(store, durability, wanted)
                self._shared[key] = shared
            shared.users[session] += 1
            return shared.engine

    async def release(self, store: str, engine: Engine, session: str) -> None:
        """Release an engine. A session's last user closes the session, the last of all the engine.

        Hosts run the parts of a session in several loops, so this loop may not be that of
        ``acquire``.
        """
        async with self._opening(store):
            key, shared = next(
                (key, one) for key, one in list(self._shared.items()) if one.engine is engine
            )
            shared.users[session] -= 1
            if shared.users[session] > 0:
                return
            del shared.users[session]
            if shared.users:
                await shared.engine.close_session(session)
            else:
                del self._shared[key]
                try:
                    await shared.engine.close()
                finally:
                    shared.release()


async def _opened(store: str, durability: Any, wanted: SinksWanted) -> _Shared:
    sinks, release = open_sinks(wanted)
    try:
        return _Shared(await open_engine(store, durability=durability, sinks=sinks), release)
    except BaseException:
        release()
        raise


def _make_folder(store: str) -> None:
    """Make the folder that a host's configuration names, if it is missing."""
    if store == "memory://" or is_on_a_server(store):
        return
    folder = Path(store).parent
    # If a file is in the way, the store raises the clearer error.
    if folder.exists() or any(one.is_file() for one in folder.parents):
        return
    try:
        make_folder(folder)
    except OSError as error:
        raise StoreUnavailable(f"{store}: its folder cannot be made: {error}") from error


ENGINES = Engines()
"""The engines of this process. None is open longer than its sessions."""


class LateEmitter:
    """An ``Emitter`` that opens the session when a turn begins."""

    def __init__(self, session_id: str, opened: Callable[[], Awaitable[Context]]) -> None:
        self.session_id = session_id
        self._opened = opened
        self._emitter: Emitter | None = None

    @property
    def current_span(self) -> CurrentSpan | None:
        """Makes a span the host's current one; None before the session is open."""
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

    async def has_open_calls(self, beside: str | None) -> bool:
        """Whether calls of the last answer wait for an end, beside the one named."""
        return self._emitter is not None and await self._emitter.has_open_calls(beside)

    async def emit(self, event: Event, scope: Scope, answer: str | None = None) -> None:
        """Append an activity event without waiting for the disk."""
        if self._emitter is None:
            self._emitter = (await self._opened()).emitter
        await self._emitter.emit(event, scope, answer)
