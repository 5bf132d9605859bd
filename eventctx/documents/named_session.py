"""The session that a person or an agent means by a name, or by the beginning of one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from eventctx.documents.short_names import fits
from eventctx.errors import InvalidSessionId, InvalidSetting, StreamNotFound
from eventctx.log.ids import check_session_id
from eventctx.log.store import StreamInfo

if TYPE_CHECKING:
    from eventctx.engine import Engine

_NEAR: Final = 3
_LOOKED: Final = 10_000
"""Names that are compared with one that is not there: each takes a tenth of a millisecond."""


async def find_session(engine: Engine, name: str) -> StreamInfo:
    """The session called ``name``, or the only one whose name begins with it.

    A ``…`` in it stands for any characters, as screens cut long names.
    Raises StreamNotFound with similar names, InvalidSetting for an ambiguous beginning.
    """
    if _may_be_a_session(name):
        info = await engine.store.head(name)
        if info is not None and not info.deleted:
            return info
    begins = NamesBeginning(name)
    async for info in engine.each_session():
        begins.take(info)
    if begins.main is not None:
        return begins.main
    if begins.count:
        raise InvalidSetting(
            f"session {name!r} could be {_listed(begins.names, begins.count)}; "
            "give more of the name"
        )
    raise _not_found(name, begins)


def _may_be_a_session(name: str) -> bool:
    try:
        check_session_id(name)
    except InvalidSessionId:
        return False
    return True


class NamesBeginning:
    """The sessions whose names begin with ``name``: however many there are, a few are held.

    ``main`` is the only one, or the one with whose name all others begin: a subagent's stream
    begins with the name of the session that it belongs to. ``near`` are similar names of the first
    sessions of the store, ``all`` counts its sessions.
    """

    def __init__(self, name: str) -> None:
        self.names: list[str] = []
        self.count = self.all = 0
        self._name = name
        self._shortest: StreamInfo | None = None
        self._shared = ""
        self._looked: list[str] = []

    def take(self, info: StreamInfo) -> None:
        """Take the next session of the store."""
        self.all += 1
        if len(self._looked) < _LOOKED:
            self._looked.append(info.stream)
        if not self._name or not fits(self._name, info.stream):
            return
        self.count += 1
        if len(self.names) < _NEAR:
            self.names.append(info.stream)
        if self._shortest is None:
            self._shortest, self._shared = info, info.stream
            return
        while not info.stream.startswith(self._shared):
            self._shared = self._shared[:-1]
        if len(info.stream) < len(self._shortest.stream):
            self._shortest = info

    @property
    def main(self) -> StreamInfo | None:
        """The session that is meant; None where it may be any of several, or there is none."""
        shortest = self._shortest
        return shortest if shortest is not None and shortest.stream == self._shared else None

    @property
    def near(self) -> list[str]:
        """Similar names."""
        return difflib.get_close_matches(self._name, self._looked, n=_NEAR, cutoff=0.5)

    @property
    def first(self) -> list[str]:
        """The names of the first sessions of the store."""
        return self._looked[:_NEAR]


def _not_found(name: str, begins: NamesBeginning) -> StreamNotFound:
    error = StreamNotFound(name)
    near = begins.near
    if near:
        error.args = (f"no session {name!r} in this store; did you mean {_listed(near)}?",)
    elif 0 < begins.all <= _NEAR:
        error.args = (f"no session {name!r} in this store; it holds {_listed(begins.first)}",)
    elif not begins.all:
        error.args = (f"no session {name!r} in this store, which is empty",)
    return error


def _listed(names: list[str], count: int = 0) -> str:
    shown = " or ".join(repr(name) for name in names)
    return f"{shown} or {count - len(names)} others" if count > len(names) else shown
