"""The sessions of a store in the order that somebody asked for, a title and a project with each."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from eventctx.documents.known_sums import SessionStatsCache
from eventctx.documents.session_texts import project_of, title_of
from eventctx.documents.sessions import ListedSession, listed, session_sums_of
from eventctx.documents.unread import ReadErrors
from eventctx.log.store import StreamInfo
from eventctx.projections.session_sums import SessionSums

if TYPE_CHECKING:
    from eventctx.engine import Engine

Order = Literal["last", "made", "messages", "requests", "compactions", "tokens"]
"""By the last activity, by creation (the first one first), or the largest first."""


class Summed(NamedTuple):
    """A session and its sums."""

    info: StreamInfo
    sums: SessionSums


_KEYS: Final[dict[Order, Callable[[Summed], Any]]] = {
    "last": lambda one: one.sums.last,
    "messages": lambda one: one.sums.messages,
    "requests": lambda one: one.sums.requests,
    "compactions": lambda one: one.sums.compactions,
    "tokens": lambda one: one.sums.tokens or 0,
}


async def summed_sessions(
    engine: Engine, unread: ReadErrors, done: Callable[[int], None] = lambda _: None
) -> list[Summed]:
    """All sessions in order of creation; ``done`` is called with how many were summed up.

    Of a session that was summed up before, only what was appended since is read.
    """
    cache = SessionStatsCache(engine.store)
    found: list[Summed] = []
    kept: dict[str, SessionSums] = {}
    async for info in engine.each_session():
        before = unread.count
        sums = await session_sums_of(engine, info, unread, cache.get(info.stream))
        if unread.count == before:  # what could not be read is to be told again
            kept[info.stream] = sums
        found.append(Summed(info, sums))
        done(len(found))
    cache.keep(kept)
    return found


def ordered(sessions: list[Summed], order: Order) -> list[Summed]:
    """The sessions in this order; of equal ones the last made first."""
    if order == "made":
        return sessions
    last_made_first = sessions[::-1]
    return sorted(last_made_first, key=_KEYS[order], reverse=True)


async def listed_sessions(
    engine: Engine,
    sessions: list[Summed],
    *,
    project: str | None = None,
    grep: str | None = None,
    limit: int | None = None,
) -> AsyncIterator[ListedSession]:
    """Their rows; only those whose ``project`` and whose texts hold these words, in any case."""
    now = time.time_ns()
    count = 0
    for info, sums in sessions:
        row = listed(
            info,
            sums,
            await title_of(engine, info.stream, sums),
            await project_of(engine, info.stream, sums),
            now,
        )
        if not _holds(project, row.project) or not _holds(
            grep, row.title, row.project, row.session, row.model
        ):
            continue
        yield row
        count += 1
        if count == limit:
            return


def _holds(wanted: str | None, *texts: str | None) -> bool:
    return wanted is None or any(wanted.casefold() in (text or "").casefold() for text in texts)
