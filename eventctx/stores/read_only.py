"""Another's store, of which a reader may ask all and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from eventctx.errors import StoreReadOnly, StoreUnavailable
from eventctx.log.store import EventStore, Snapshot

_WRITES: Final = frozenset(
    ("append", "fork", "erase", "delete", "set_tombstone", "save_checkpoint")
)


class ReadOnlyStore:
    """Reads as ``store`` does, and refuses what writes. ``close`` leaves ``store`` open.

    Caches see ``read_only``, so they save nothing either. A store is asked for the attributes that
    it has beyond ``EventStore``, such as ``peek``, so each one is passed on by its name.
    """

    read_only = True

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if self._closed and callable(found):
            raise StoreUnavailable("the reader is closed; open another one with eventctx.read")
        return _refused(name) if name in _WRITES else found

    def save_snapshot(self, stream: str, name: str, snapshot: Snapshot) -> None:
        """Save nothing: a snapshot is a cache, and may always be lost."""

    async def close(self) -> None:
        """Refuse every question from here on. A second call does nothing."""
        self._closed = True


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise StoreReadOnly(
            f"{name}: expected a store that may be written, found one that was opened with "
            "eventctx.read; open it with eventctx.open"
        )

    return refuse
