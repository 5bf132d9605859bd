"""``sessions`` as a document: a row for each session of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventctx.documents.times import iso
from eventctx.documents.unread import ReadErrors
from eventctx.log.store import StreamInfo
from eventctx.projections import session_sums
from eventctx.projections.session_sums import SessionSums

if TYPE_CHECKING:
    from eventctx.engine import Engine

LIVE: Final = 300 * 10**9
"""Nanoseconds after its last record in which a session counts as live."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session as ``sessions`` lists it. ``parent`` is the session it was forked from.

    ``observed`` and ``reconstructed`` count the requests that are known so; eventctx prepared the
    others. ``model`` and ``tokens`` are those of the last request (``audit`` has the same figure).
    """

    session: str
    records: int
    messages: int
    turns: int
    requests: int
    observed: int
    reconstructed: int
    compactions: int
    started: str | None
    last: str | None
    parent: str | None
    forked_at: int | None
    format: str | None
    belongs_to: str | None
    link: str | None
    model: str | None
    tokens: int | None
    tokens_estimated: bool


class ListedSession(SessionRow, frozen=True):
    """A row of ``eventctx sessions``, with texts of the session.

    ``title`` is the imported file's own, else the first words of a person; ``project`` the folder
    that the file names. A session is ``live`` for five minutes after its last record.
    """

    title: str | None
    project: str | None
    live: bool


async def session_sums_of(
    engine: Engine, info: StreamInfo, unread: ReadErrors, known: SessionSums | None = None
) -> SessionSums:
    """The sums of a session as far as it can be read, from those that are ``known`` of it on."""
    if known is not None and (known.position, known.digest) == (info.head, info.digest):
        return known
    sums = session_sums.initial()
    start = 0
    if known is not None and 0 <= known.position < info.head:
        start = known.position
    try:
        async for record in engine.store.read(info.stream, start=start, bodies=False):
            if start and record.position == start:
                assert known is not None  # noqa: S101 - tells the type checker
                if record.digest != known.digest:  # another session has this name by now
                    return await session_sums_of(engine, info, unread)
                sums = known
                continue
            sums = session_sums.counted(sums, record)
            sums = unread.fold(session_sums.told, sums, record)
    except Exception as error:
        unread.session(info.stream, error)
    return sums


def row_of(info: StreamInfo, sums: SessionSums) -> SessionRow:
    """The row of a session with these sums."""
    return SessionRow(**_fields(info, sums))


def listed(
    info: StreamInfo, sums: SessionSums, title: str | None, project: str | None, now: int
) -> ListedSession:
    """The row with these texts at the time ``now`` (UTC nanoseconds)."""
    live = 0 <= now - sums.last < LIVE
    return ListedSession(**_fields(info, sums), title=title, project=project, live=live)


def _fields(info: StreamInfo, sums: SessionSums) -> dict[str, Any]:
    return {
        "session": info.stream,
        "records": info.head + 1,
        "messages": sums.messages,
        "turns": sums.turns,
        "requests": sums.requests,
        "observed": sums.observed,
        "reconstructed": sums.reconstructed,
        "compactions": sums.compactions,
        "started": iso(sums.first) if sums.first else None,
        "last": iso(sums.last) if sums.last else None,
        "parent": info.parent,
        "forked_at": info.forked_at,
        "format": sums.format,
        "belongs_to": sums.belongs_to,
        "link": sums.link,
        "model": sums.model,
        "tokens": sums.tokens,
        "tokens_estimated": sums.estimated,
    }
