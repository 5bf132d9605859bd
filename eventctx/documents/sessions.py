"""``sessions`` as a document: a row for each session of a store."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from eventctx.documents.times import iso
from eventctx.documents.unread import Unread
from eventctx.engine import Engine
from eventctx.errors import DecodeError, LogCorrupted
from eventctx.log.events import (
    ABOUT_A_SESSION,
    PostCompact,
    RequestPrepared,
    SessionLinked,
    SessionStart,
    known_as,
)
from eventctx.log.store import StreamInfo
from eventctx.projections import transcript
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.timelines.key_frames import KEY_FRAME, timeline_at

_COUNTED: Final = {
    "prompt:submit": "turns",
    "context:request_prepared": "requests",
    "tool:pre": "tool_calls",
}
_READ: Final = ("context:post_compact", "session:start", "session:linked")


class SessionRow(msgspec.Struct, frozen=True):
    """A session as ``sessions`` lists it. ``parent`` is the session it was forked from.

    ``observed`` and ``reconstructed`` count the requests that are known so; eventctx prepared the
    others.
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


class TimedRow(NamedTuple):
    """A session's row, and the time of its last record in UTC nanoseconds (0: not dated)."""

    row: SessionRow
    last: int


LONG: Final = 5 * KEY_FRAME
"""Records from which a row is read from the timeline, which need not read them all again."""


async def session_row(engine: Engine, info: StreamInfo, unread: Unread) -> TimedRow:
    """The row of a session as far as it can be read."""
    if info.head >= LONG and info.parent is None:
        try:
            state = await timeline_at(engine.store, info.stream)
        except (DecodeError, LogCorrupted):
            pass  # what can be read of it is counted below
        else:
            if state.audit.sizes.file.undated is None:
                return await _row_of(engine, info, state)
    return await _counted_row(engine, info, unread)


async def _row_of(engine: Engine, info: StreamInfo, state: TimelineState) -> TimedRow:
    """The row of a long session whose records have times."""
    known = Counter([one.known for one in state.audit.sizes.requests])
    imported = state.beside.about.format is not None
    compactions = [one for one in state.audit.compactions if one.outcome == "applied"]
    parents = [one for one in state.beside.links if one.relation == "parent"]
    changes = state.changes
    listed = sum(last - first + 1 for first, last in changes.listed)
    first = await _time_of(engine, info, backward=False)
    last = await _time_of(engine, info, backward=True)
    row = SessionRow(
        session=info.stream,
        records=info.head + 1,
        messages=listed + len(changes.origins) - changes.listed_to,
        turns=len(changes.time.began),
        requests=len(changes.time.requests),
        observed=known["observed"] if imported else 0,
        reconstructed=known["reconstructed"] if imported else 0,
        compactions=len(compactions),
        started=iso(first) if first else None,
        last=iso(last) if last else None,
        parent=None,
        forked_at=None,
        format=state.beside.about.format,
        belongs_to=parents[-1].session if parents else None,
        link=parents[-1].kind if parents else None,
    )
    return TimedRow(row, last)


async def _time_of(engine: Engine, info: StreamInfo, *, backward: bool) -> int:
    """The time of the first or the last record that tells of the session's own activity."""
    async for record in engine.store.read(info.stream, backward=backward, bodies=False):
        if record.type not in ABOUT_A_SESSION:
            return record.time
    return 0


async def _counted_row(engine: Engine, info: StreamInfo, unread: Unread) -> TimedRow:
    """The row from all records, each of which may be one that cannot be read."""
    lines = transcript.initial()
    counts: Counter[str] = Counter()
    first = last = 0
    imported_at: int | None = None
    kind: str | None = None
    belongs_to = link = None
    try:
        async for record in engine.records(info.stream):
            lines = unread.fold(transcript.evolve, lines, record)
            if record.type not in ABOUT_A_SESSION and record.time != imported_at:
                first = min(first or record.time, record.time)
                last = max(last, record.time)
            if record.type in _COUNTED:
                counts[_COUNTED[record.type]] += 1
                if kind is not None and record.type == "context:request_prepared":
                    asked = unread.event(record)
                    if isinstance(asked, RequestPrepared):
                        counts[known_as(asked)] += 1
            elif record.type in _READ:
                event = unread.event(record)
                match event:
                    case PostCompact(outcome="applied"):
                        counts["compactions"] += 1
                    case SessionStart():
                        kind = event.format
                        if event.imported_at == record.time:  # the file has no times
                            imported_at, first, last = event.imported_at, 0, 0
                    case SessionLinked(relation="parent"):
                        belongs_to, link = event.session, event.kind
    except Exception as error:
        unread.session(info.stream, error)
    row = SessionRow(
        session=info.stream,
        records=info.head + 1,
        messages=len(lines.lines),
        turns=counts["turns"],
        requests=counts["requests"],
        observed=counts["observed"],
        reconstructed=counts["reconstructed"],
        compactions=counts["compactions"],
        started=iso(first) if first else None,
        last=iso(last) if last else None,
        parent=info.parent,
        forked_at=info.forked_at,
        format=kind,
        belongs_to=belongs_to,
        link=link,
    )
    return TimedRow(row, last)
