"""Engines that the sessions of a process share: one for each store, while somebody uses it.

A host runs a session and its children side by side; on one engine their appends share commits, and
a child finds its parent also in a store in memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from eventctx.aio import KeyedLock
from eventctx.engine import Engine, open_engine
from eventctx.errors import StoreUnavailable


class _Shared:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.users: Counter[str] = Counter()


class Engines:
    """Opens an engine for its first user and closes it after its last."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str, asyncio.AbstractEventLoop], _Shared] = {}
        self._opening = KeyedLock()

    async def acquire(self, store: str, durability: Any, session: str) -> Engine:
        """The engine on a store, of this event loop, for a session. Raises what opening raises."""
        # A loop that ended without letting go must not hand its engine on to the next one.
        key = (store, durability, asyncio.get_running_loop())
        async with self._opening(store):
            shared = self._shared.get(key)
            if shared is None:
                _make_folder(store)
                shared = _Shared(await open_engine(store, durability=durability))
                self._shared[key] = shared
            shared.users[session] += 1
            return shared.engine

    async def release(self, store: str, engine: Engine, session: str) -> None:
        """Let go of it; the session's last user closes the session, the last of all the engine.

        The loop may be another one than at the beginning: hosts run a session's parts in several.
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
                await shared.engine.close()


def _make_folder(store: str) -> None:
    """A host's configuration names a folder that nobody has made yet."""
    if store == "memory://":
        return
    folder = Path(store).parent
    # What stands in the way is for the store to say, in its own words.
    if folder.exists() or any(one.is_file() for one in folder.parents):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{store}: its folder cannot be made: {error}") from error


ENGINES = Engines()
"""The process's. What the last session let go of is closed: nothing outlives the sessions."""
