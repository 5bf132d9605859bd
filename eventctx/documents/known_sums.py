"""The sums of a store's sessions in a file beside it: a list reads what was appended since.

The file is a cache that anybody may delete. It says at which record, by digest, each sums were
made, and holds no text of a message or of an imported file. It is replaced as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from eventctx.log.private_files import whole_file
from eventctx.log.store import EventStore
from eventctx.projections.session_sums import VERSION, SessionSums

SUFFIX: Final = "-sessions.json"
"""Behind the name of the store."""

_MARK: Final = b'{"eventctx_sessions":'

_log = logging.getLogger("eventctx.sessions")


class _Known(msgspec.Struct, frozen=True):
    eventctx_sessions: int
    sums: dict[str, SessionSums]


class SessionStatsCache:
    """The sums that are known of a store's sessions. No call raises for the file."""

    def __init__(self, store: EventStore) -> None:
        beside: Path | None = store.cache_path
        self._path = None if beside is None else beside.with_name(beside.name + SUFFIX)
        self._writes = not store.read_only
        self._known: Mapping[str, SessionSums] = {}
        if self._path is None:
            return
        try:
            data = self._path.read_bytes()
            self._writes = self._writes and data.startswith(_MARK)
            found = msgspec.json.decode(data, type=_Known)
            if found.eventctx_sessions == VERSION:
                self._known = found.sums
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            _log.debug("%s cannot be read: %s", self._path, error)

    def get(self, session: str) -> SessionSums | None:
        """What is known of a session, perhaps up to an earlier record."""
        return self._known.get(session)

    def keep(self, sums: Mapping[str, SessionSums]) -> None:
        """Keep these for the next list, in the place of all that was known."""
        if self._path is None or not self._writes or sums == self._known:
            return
        try:
            with whole_file(self._path) as file:
                file.write(msgspec.json.encode(_Known(VERSION, dict(sums))))
        except (OSError, UnicodeEncodeError) as error:
            _log.debug("%s cannot be written: %s", self._path, error)
