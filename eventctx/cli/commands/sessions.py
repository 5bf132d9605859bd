"""``sessions``: the sessions of a store."""

from __future__ import annotations

from collections import Counter

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.passed_over import PassedOver
from eventctx.cli.output.plain import iso, minute, number, one_line, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.engine import Engine
from eventctx.log.events import (
    ABOUT_A_SESSION,
    PostCompact,
    RequestPrepared,
    SessionLinked,
    SessionStart,
    known_as,
)
from eventctx.log.naming import position_name
from eventctx.log.store import StreamInfo
from eventctx.projections import transcript

_COUNTED = {
    "prompt:submit": "turns",
    "context:request_prepared": "requests",
    "tool:pre": "tool_calls",
}
_READ = ("context:post_compact", "session:start", "session:linked")
_BUSY = 20


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


async def _row(engine: Engine, info: StreamInfo, passed_over: PassedOver) -> tuple[SessionRow, int]:
    """The row of a session as far as it can be read, and the time of its last record."""
    lines = transcript.initial()
    counts: Counter[str] = Counter()
    first = last = 0
    imported_at: int | None = None
    kind: str | None = None
    belongs_to = link = None
    try:
        async for record in engine.records(info.stream):
            lines = passed_over.fold(transcript.evolve, lines, record)
            if record.type not in ABOUT_A_SESSION and record.time != imported_at:
                first = min(first or record.time, record.time)
                last = max(last, record.time)
            if record.type in _COUNTED:
                counts[_COUNTED[record.type]] += 1
                if kind is not None and record.type == "context:request_prepared":
                    asked = passed_over.event(record)
                    if isinstance(asked, RequestPrepared):
                        counts[known_as(asked)] += 1
            elif record.type in _READ:
                event = passed_over.event(record)
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
        passed_over.session(info.stream, error)
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
    return row, last


@click.command("sessions", short_help="The sessions of the store.")
@opening.reading
def sessions_command(store: str | None, as_json: bool) -> None:
    """List the sessions of the store, in the order in which they were made."""
    run(_sessions(store, as_json))


async def _sessions(store: str | None, as_json: bool) -> None:
    rows: list[SessionRow] = []
    times: list[int] = []
    passed_over = PassedOver()
    async with opening.existing(store) as engine:
        infos = await engine.sessions()
        with progress("Reading sessions", len(infos) if len(infos) > _BUSY else None) as bar:
            for done, info in enumerate(infos, 1):
                row, last = await _row(engine, info, passed_over)
                rows.append(row)
                times.append(last)
                bar.at(done)
    if as_json:
        put_document(rows)
    else:
        _show_rows(Screen(), rows, times)
    passed_over.tell()


def _show_rows(screen: Screen, rows: list[SessionRow], times: list[int]) -> None:
    if not rows:
        screen.line("The store holds no sessions yet; `eventctx import FILE` adds some.")
        return
    narrow = screen.live and screen.width < 110
    columns = (
        Column("session", fold=True, style="bold"),
        Column("msgs" if narrow else "messages", right=True),
        Column("turns", right=True),
        Column("reqs" if narrow else "requests", right=True),
        Column("comp" if narrow else "compactions", right=True),
        Column("last (UTC)" if narrow else "last record (UTC)"),
    )
    screen.table(
        columns,
        [
            (
                one_line(_named(row)),
                number(row.messages),
                number(row.turns),
                number(row.requests),
                number(row.compactions),
                minute(last)[: 10 if narrow else None] if last else "–",
            )
            for row, last in zip(rows, times, strict=True)
        ],
    )
    inferred = sum(row.reconstructed > 0 for row in rows)
    if inferred:
        words = (
            f"Requests of {plural(inferred, 'session')} were reconstructed by an importer; "
            "`audit SESSION` says what is not known of them."
        )
        screen.line((words, "dim"))


def _named(row: SessionRow) -> str:
    if row.parent is not None:
        return f"{row.session} (fork of {row.parent} {position_name(row.forked_at or 0)})"
    shown = row.belongs_to is None or row.session.startswith(row.belongs_to)
    role = "branch" if row.link == "branch" else "agent"
    return row.session if shown else f"{row.session} ({role} of {row.belongs_to})"
