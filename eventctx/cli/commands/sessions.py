"""``sessions`` and ``stats``: the sessions of a store, and its figures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.figures import tokens
from eventctx.cli.output.passed_over import PassedOver
from eventctx.cli.output.plain import NOT_RECORDED, iso, minute, number, one_line, plural, size
from eventctx.cli.output.program import complain, run
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.engine import Engine
from eventctx.errors import StoreError
from eventctx.log.events import ABOUT_A_SESSION, PostCompact, SessionLinked, SessionStart
from eventctx.log.naming import position_name
from eventctx.log.store import StreamInfo
from eventctx.projections import figures, transcript, usage

_COUNTED = {
    "prompt:submit": "turns",
    "context:request_prepared": "requests",
    "tool:pre": "tool_calls",
}
_SIZED = (
    "context:message_added",
    "context:post_compact",
    "context:request_prepared",
    "usage:reported",
    *figures.CHANGES,
)
_READ = ("context:post_compact", "session:start", "session:linked")
_BUSY = 20


class SessionRow(msgspec.Struct, frozen=True):
    """A session as ``sessions`` lists it. ``parent`` is the session it was forked from."""

    session: str
    records: int
    messages: int
    turns: int
    requests: int
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


def _named(row: SessionRow) -> str:
    if row.parent is not None:
        return f"{row.session} (fork of {row.parent} {position_name(row.forked_at or 0)})"
    shown = row.belongs_to is None or row.session.startswith(row.belongs_to)
    role = "branch" if row.link == "branch" else "agent"
    return row.session if shown else f"{row.session} ({role} of {row.belongs_to})"


class LossRow(msgspec.Struct, frozen=True):
    """A handler's lost calls of one kind, ``error`` or ``dropped``; ``last`` is the latest time."""

    handler: str
    kind: str
    count: int
    last: str


class Stats(msgspec.Struct, frozen=True):
    """Figures of a store. ``tokens_saved`` sums the tokens that each compaction took out.

    ``tokens_saved_estimated`` is whether any of them is an estimate. ``calls_without_usage`` counts
    the model calls whose tokens are not recorded, ``tool_calls_without_end`` the tool calls whose
    end is not, ``known`` the requests by how they are known. ``message_bytes`` are the JSON bytes
    of all messages, ``file_bytes`` the store's on disk. ``losses`` is None where they cannot be
    read; the log may be sound all the same.
    """

    store: str
    sessions: int
    forks: int
    records: int
    messages: int
    message_bytes: int
    turns: int
    requests: int
    known: dict[str, int]
    tool_calls: int
    compactions: int
    tokens_saved: int
    tokens_saved_estimated: bool
    calls_without_usage: int
    tool_calls_without_end: int
    erased: int
    file_bytes: int
    types: dict[str, int]
    usage: dict[str, usage.UsageTotals]
    losses: tuple[LossRow, ...] | None


@click.command("stats", short_help="Figures of the whole store.")
@opening.reading
def stats_command(store: str | None, as_json: bool) -> None:
    """Figures of the whole store: sessions, records, bytes, compactions, tokens saved.

    And which hooks failed or dropped something, if any did.
    """
    passed_over = PassedOver()
    stats = run(_stats(store, passed_over))
    if as_json:
        put_document(stats)
    else:
        _show(Screen(), stats)
    passed_over.tell()


async def _stats(store: str | None, passed_over: PassedOver) -> Stats:
    async with opening.existing(store) as engine:
        infos = await engine.sessions()
        types: Counter[str] = Counter()
        messages = message_bytes = erased = 0
        sizes: dict[str, figures.FiguresState] = {}
        unread = PassedOver()  # what the sums of usage pass over, too, and tell
        used: usage.UsageState = usage.initial()
        own = sum(info.head - (-1 if info.forked_at is None else info.forked_at) for info in infos)
        with progress("Reading the log", own) as bar:
            done = 0
            async for record in engine.store.read_all():
                done += 1
                types[record.type] += 1
                if record.type in ("context:message_added", "context:messages_set"):
                    messages += len(record.bodies)
                    message_bytes += sum(len(body.data or b"") for body in record.bodies)
                elif record.type == "usage:reported":
                    used = passed_over.fold(usage.evolve, used, record)
                if record.type in _SIZED:
                    state = sizes.get(record.stream) or figures.initial()
                    told = unread if record.type == "usage:reported" else passed_over
                    sizes[record.stream] = told.fold(figures.evolve, state, record)
                erased += sum(body.erased for body in record.bodies)
                if done % 1000 == 0:
                    bar.at(done)
        losses = await _losses(engine)
    url = opening.location(store)
    found = [figures.read(state) for state in sizes.values()]
    applied = [one for each in found for one in each.compactions.values()]
    return Stats(
        store=url,
        sessions=len(infos),
        forks=sum(info.parent is not None for info in infos),
        records=sum(types.values()),
        messages=messages,
        message_bytes=message_bytes,
        turns=types["prompt:submit"],
        requests=types["context:request_prepared"],
        known=dict(Counter(one.known for each in found for one in each.requests.values())),
        tool_calls=types["tool:pre"],
        compactions=len(applied),
        tokens_saved=sum(one.taken_out for one in applied),
        tokens_saved_estimated=any(one.estimated for one in applied),
        calls_without_usage=max(0, types["provider:request"] - types["usage:reported"]),
        tool_calls_without_end=max(0, types["tool:pre"] - types["tool:post"] - types["tool:error"]),
        erased=erased,
        file_bytes=_bytes_of(opening.path_of(url)),
        types=dict(types.most_common()),
        usage=dict(used.models),
        losses=losses,
    )


async def _losses(engine: Engine) -> tuple[LossRow, ...] | None:
    try:
        found = await engine.losses()
    except StoreError as error:
        complain(one_line(str(error)))
        return None
    return tuple([LossRow(one.handler, one.kind, one.count, iso(one.last)) for one in found])


def _output(used: usage.UsageTotals) -> str:
    if used.inexact_outputs == used.calls:
        return NOT_RECORDED
    missing = f", of {used.inexact_outputs} calls {NOT_RECORDED}" if used.inexact_outputs else ""
    return f"{number(used.output)}{missing}"


def _known(stats: Stats) -> str:
    """How the requests are known; nothing where eventctx made them all."""
    if stats.known.keys() <= {"prepared"}:
        return ""
    parts = [f"{number(count)} {known}" for known, count in sorted(stats.known.items())]
    return f" ({', '.join(parts)})"


def _without_end(stats: Stats) -> str:
    if not stats.tool_calls_without_end:
        return ""
    return f", the end of {number(stats.tool_calls_without_end)} {NOT_RECORDED}"


def _bytes_of(path: Path | None) -> int:
    """Bytes of the store's file and of the write-ahead log beside it."""
    if path is None:
        return 0
    parts = (path, path.with_name(path.name + "-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


def _show(screen: Screen, stats: Stats) -> None:
    forks = f", {plural(stats.forks, 'fork')} among them" if stats.forks else ""
    rows = [
        ("store", stats.store),
        ("sessions", f"{number(stats.sessions)}{forks}"),
        ("records", number(stats.records)),
        ("on disk", size(stats.file_bytes)),
        ("messages", f"{number(stats.messages)}, {size(stats.message_bytes)} of JSON"),
        ("turns", number(stats.turns)),
        ("requests", f"{number(stats.requests)}{_known(stats)}"),
        ("tool calls", f"{number(stats.tool_calls)}{_without_end(stats)}"),
        ("compactions", number(stats.compactions)),
        (
            "tokens saved",
            f"{tokens(stats.tokens_saved, stats.tokens_saved_estimated)} (over all compactions)",
        ),
        ("erased", plural(stats.erased, "content")),
    ]
    for name, value in rows:
        screen.whole((f"{name:<13}", "bold"), value)
    for model, used in sorted(stats.usage.items()):
        screen.line(
            (f"{'usage':<13}", "bold"),
            f"{model or 'unknown model'}: {plural(used.calls, 'call')}, prompt "
            f"{number(used.prompt) if used.prompt else NOT_RECORDED} "
            f"({number(used.cache_read)} cached), output {_output(used)}",
        )
    if stats.calls_without_usage:
        without = f"{plural(stats.calls_without_usage, 'call')}: tokens {NOT_RECORDED}"
        screen.line((f"{'usage':<13}", "bold"), without)
    screen.blank()
    columns = (Column("record type"), Column("count", right=True))
    screen.table(columns, [(one_line(name), number(count)) for name, count in stats.types.items()])
    if stats.losses:
        screen.blank()
        screen.table(
            (
                Column("hooks that failed or dropped", fold=True),
                Column("what"),
                Column("count", right=True),
                Column("last (UTC)"),
            ),
            [
                (one_line(one.handler), _LOST[one.kind], number(one.count), one.last[:19])
                for one in stats.losses
            ],
        )


_LOST = {"error": "errors", "dropped": "dropped"}
