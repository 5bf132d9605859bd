"""Chooses the index of a store's search: the server's own full-text search, or a local file.

A store's driver is loaded when such a store is opened, so this module recognises one without
loading a driver.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final, cast

from eventctx.log.store import EventStore
from eventctx.search.index import TextIndex

_OWN: Final = (
    (
        ("eventctx.stores.postgres.store", "PostgresStore"),
        ("eventctx.search.postgres_index", "PostgresTextIndex"),
    ),
)
"""Stores whose server searches, and the index that asks it."""


def text_index(store: EventStore, version: int) -> TextIndex:
    """The index of a store; opens nothing yet. ``version`` is that of the documents."""
    # A search fills the index, so a store opened for reading has an index of its own.
    for (home, name), (module, index) in () if store.read_only else _OWN:
        loaded = sys.modules.get(home)
        if loaded is not None and isinstance(store, getattr(loaded, name)):
            made = getattr(import_module(module), index)(store, version=version)
            return cast(TextIndex, made)
    # Loaded by the first search: few programs search, and all of them start.
    from eventctx.search.sqlite_index import SqliteTextIndex

    return SqliteTextIndex(store.cache_path, version=version, read_only=store.read_only)
