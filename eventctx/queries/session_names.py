"""The session that a person or an agent names: whole, by its beginning, or by pieces with a gap.

The short names of a list are such names, each as short as the other sessions allow.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from typing import Final

from eventctx.errors import InvalidSessionId, InvalidSetting, StreamNotFound
from eventctx.log.ids import check_session_id
from eventctx.log.store import EventStore, StreamInfo
from eventctx.text import pattern

_NEAR: Final = 3
_LOOKED: Final = 10_000
"""Names that are compared with one that is not there: each takes a tenth of a millisecond."""


async def find_session(store: EventStore, name: str) -> StreamInfo:
    """The session called ``name``, or the only one whose name begins with it.

    A ``…`` in it matches any characters, as screens cut long names.
    Raises StreamNotFound with similar names, InvalidSetting for an ambiguous beginning.
    """
    if _may_be_a_session(name):
        info = await store.head(name)
        if info is not None and not info.deleted:
            return info
    begins = NamesBeginning(name)
    async for info in store.streams():
        if not info.deleted:
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
        import difflib

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


GAP: Final = "…"
"""Stands for any characters in a name, on screens and on command lines."""

_LEAST: Final = 8
"""Characters of an id of hex digits that are enough in most stores."""

_WHOLE: Final = 12
"""Names up to this length are shown whole."""

_HEX: Final = pattern(r"[0-9a-f]{8}")

_LARGE: Final = 200
"""Of more names with one beginning, none is looked at for its end."""

_LAST: Final = "\U0010ffff"
"""Follows every character of a name."""


def fits(name: str, session: str) -> bool:
    """Whether ``name`` is the beginning of the session's name, or its pieces around gaps."""
    first, *rest = name.split(GAP)
    if not session.startswith(first):
        return False
    at = len(first)
    for piece in rest:
        found = session.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def short_names(sessions: Iterable[str]) -> dict[str, str]:
    """The shortest beginning of each name that no other begins with, at least 8 to 12 characters.

    For a name that others begin with, such as those of its agents, it need not tell these apart:
    it is meant then. Of a long beginning the middle is left out where the rest still tells.
    """
    ordered = sorted(sessions)
    short: dict[str, str] = {}
    for place, name in enumerate(ordered):
        behind = bisect(ordered, name + _LAST, place)  # past the names that begin with this one
        near = [*ordered[max(0, place - 1) : place], *ordered[behind : behind + 1]]
        shared = max([_shared(name, other) for other in near], default=0)
        length = max(_LEAST if _HEX.match(name) else _WHOLE, shared + 1)
        short[name] = name if len(name) <= _WHOLE or length >= len(name) else name[:length]
    families: dict[str, list[str]] = {}
    for name in ordered:
        families.setdefault(name[:_LEAST], []).append(name)
    for name in ordered:
        if len(short[name]) > _WHOLE:
            short[name] = _with_gap(name, short[name], families[name[:_LEAST]])
    return short


def _with_gap(name: str, short: str, family: list[str]) -> str:
    """A beginning and an end that mean ``name`` and no other, if that is shorter."""
    if len(family) > _LARGE:
        return short
    for length in range(3, len(short) - _LEAST - 1):
        found = name[:_LEAST] + GAP + name[-length:]
        if all(other.startswith(name) for other in family if fits(found, other)):
            return found
    return short


def _shared(one: str, other: str) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
