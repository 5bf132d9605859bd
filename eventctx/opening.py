"""Opening a store by its URL or path, and an engine on it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.store import EventStore


class Opening:
    """What ``open`` returns: ``async with`` it, or ``await`` it and close the engine yourself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._engine: Engine | None = None

    def __await__(self) -> Any:
        return self._make().__await__()

    async def __aenter__(self) -> Engine:
        self._engine = await self._make()
        return self._engine

    async def __aexit__(self, *exc: Any) -> None:
        if self._engine is not None:
            await self._engine.close()


def open_engine(
    url: str | os.PathLike[str] = "memory://",
    *,
    durability: Literal["full", "normal"] = "full",
    create: bool = True,
    lock_timeout: float = 5.0,
    **options: Any,
) -> Opening:
    """Open a store: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, a path.

    ``durability="normal"`` may lose the last moments of acknowledged records when the power fails,
    never when the process does. ``options`` are those of ``Engine``. Raises on entering:
    NotAStore, StoreTooNew, StoreUnavailable, InvalidSetting.
    """

    async def make() -> Engine:
        store = await _open_store(
            os.fspath(url), durability=durability, create=create, lock_timeout=lock_timeout
        )
        return Engine(store, **options)

    return Opening(make)


async def _open_store(url: str, **options: Any) -> EventStore:
    if url in ("memory://", ":memory:"):
        from eventctx.stores.memory import MemoryStore

        return MemoryStore()
    scheme, separator, rest = url.partition("://")
    if not separator:
        path = url
    elif scheme == "sqlite":
        path = rest.removeprefix("/")
    else:
        raise InvalidSetting(f"store: expected memory://, sqlite:///PATH or a path, found {url!r}")
    if not path:
        raise InvalidSetting(f"store: expected a path after sqlite:///, found {url!r}")
    from eventctx.stores.sqlite import SqliteStore

    return await SqliteStore.open(Path(path), **options)
