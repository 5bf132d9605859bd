"""The engine that an adapter was given, or opens itself, and the sessions that it holds open."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

from eventctx.adapters.kit.loops import EngineLoop, engine_in_loop
from eventctx.engine import Engine
from eventctx.sync.loop_thread import LoopThread
from eventctx.sync.proxy import SyncEngine, opened

MAX_SESSIONS: Final = 256
"""Most sessions whose transcripts are held; the least recently used is left first."""


class GivenEngine(EngineLoop):
    """An engine for an adapter whose host calls from any loop, or from none.

    An engine is used in the loop that runs where this is made, one of ``eventctx.sync`` in its own.
    The path or URL of a store is opened as one of ``eventctx.sync``, until ``close`` or the end of
    the program. ``adapter`` names it in errors. Raises InvalidSetting for an engine without a loop,
    and what opening a store raises.
    """

    def __init__(self, engine: Engine | SyncEngine | str | os.PathLike[str], adapter: str) -> None:
        self._own: SyncEngine | None = None
        if not isinstance(engine, Engine | SyncEngine):
            thread = LoopThread(f"eventctx-{adapter}")
            engine = self._own = opened(thread, [os.fspath(engine)], {})
        self.engine, loop = engine_in_loop(engine, adapter)
        super().__init__(loop)

    @property
    def opened_here(self) -> bool:
        """Whether the store was opened here, and is open."""
        return self._own is not None

    def close(self) -> None:
        """Close the store that was opened here. An engine that was given stays open."""
        own, self._own = self._own, None
        if own is not None:
            own.close()


class Closes(Protocol):
    """An adapter's object for a session: a ``HostSession``, or one that has it."""

    def close(self) -> None:
        """Stop observing the session."""
        ...


S = TypeVar("S", bound=Closes)


class OpenSessions(Generic[S]):
    """An adapter's objects for its sessions, by name, each made when it is first asked for.

    It is used in the loop of the engine. Of more than ``MAX_SESSIONS`` the least recently used is
    closed; its session stays in the log, and is opened again when it is asked for.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, S] = OrderedDict()

    def get(self, name: str) -> S | None:
        """The object for the session ``name``; None if it is not open."""
        return self._open.get(name)

    def forget(self, name: str) -> None:
        """Close the object for the session ``name``, if it is open: its session was deleted."""
        held = self._open.pop(name, None)
        if held is not None:
            held.close()

    async def of(self, name: str, opened: Callable[[], Awaitable[S]]) -> S:
        """The object for the session ``name``; ``opened`` makes it. Raises what that raises."""
        if name not in self._open:
            made = await opened()
            if name in self._open:  # opened by another call in the meantime
                made.close()
            else:
                self._open[name] = made
            while len(self._open) > MAX_SESSIONS:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]
