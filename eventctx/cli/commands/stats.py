"""``stats``: the figures of a whole store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.figures import tokens
from eventctx.cli.output.passed_over import PassedOver
from eventctx.cli.output.plain import NOT_RECORDED, iso, number, one_line, plural, size
from eventctx.cli.output.program import complain, run
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.engine import Engine
from eventctx.errors import StoreError
from eventctx.log.record import Record
from eventctx.projections import figures, usage

_SIZED: Final = (
    "context:message_added",
    *("context:post_compact", "context:request_prepared", "usage:reported"),
    *figures.CHANGES,
)
_LOST: Final = {"error": "errors", "dropped": "dropped"}


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


class _Sums:
    """The sums over all records of a store, as far as they can be read."""

    def __init__(self, passed_over: PassedOver) -> None:
        self.types: Counter[str] = Counter()
        self.messages = self.message_bytes = self.erased = 0
        self.sizes: dict[str, figures.FiguresState] = {}
        self.used: usage.UsageState = usage.initial()
        self._passed_over = passed_over
        self._unread = PassedOver()  # what the sums of usage pass over, too, and tell

    def take(self, record: Record) -> None:
        """Take one record of any session."""
        self.types[record.type] += 1
        told = self._passed_over
        if record.type in ("context:message_added", "context:messages_set"):
            self.messages += len(record.bodies)
            self.message_bytes += sum(len(body.data or b"") for body in record.bodies)
        elif record.type == "usage:reported":
            self.used = told.fold(usage.evolve, self.used, record)
            told = self._unread
        if record.type in _SIZED:
            state = self.sizes.get(record.stream) or figures.initial()
            self.sizes[record.stream] = told.fold(figures.evolve, state, record)
        self.erased += sum(body.erased for body in record.bodies)


async def _stats(store: str | None, passed_over: PassedOver) -> Stats:
    sums = _Sums(passed_over)
    async with opening.existing(store) as engine:
        infos = await engine.sessions()
        own = sum(info.head - (-1 if info.forked_at is None else info.forked_at) for info in infos)
        with progress("Reading the log", own) as bar:
            done = 0
            async for record in engine.store.read_all():
                done += 1
                sums.take(record)
                if done % 1000 == 0:
                    bar.at(done)
        losses = await _losses(engine)
    url = opening.location(store)
    found = [figures.read(state) for state in sums.sizes.values()]
    applied = [one for each in found for one in each.compactions.values()]
    types = sums.types
    return Stats(
        store=url,
        sessions=len(infos),
        forks=sum(info.parent is not None for info in infos),
        records=sum(types.values()),
        messages=sums.messages,
        message_bytes=sums.message_bytes,
        turns=types["prompt:submit"],
        requests=types["context:request_prepared"],
        known=dict(Counter(one.known for each in found for one in each.requests.values())),
        tool_calls=types["tool:pre"],
        compactions=len(applied),
        tokens_saved=sum(one.taken_out for one in applied),
        tokens_saved_estimated=any(one.estimated for one in applied),
        calls_without_usage=max(0, types["provider:request"] - types["usage:reported"]),
        tool_calls_without_end=max(0, types["tool:pre"] - types["tool:post"] - types["tool:error"]),
        erased=sums.erased,
        file_bytes=_bytes_of(opening.path_of(url)),
        types=dict(types.most_common()),
        usage=dict(sums.used.models),
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
    _show_usage(screen, stats)
    screen.blank()
    columns = (Column("record type"), Column("count", right=True))
    screen.table(columns, [(one_line(name), number(count)) for name, count in stats.types.items()])
    if stats.losses:
        screen.blank()
        _show_losses(screen, stats.losses)


def _show_usage(screen: Screen, stats: Stats) -> None:
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


def _show_losses(screen: Screen, losses: tuple[LossRow, ...]) -> None:
    screen.table(
        (
            Column("hooks that failed or dropped", fold=True),
            Column("what"),
            Column("count", right=True),
            Column("last (UTC)"),
        ),
        [
            (one_line(one.handler), _LOST[one.kind], number(one.count), one.last[:19])
            for one in losses
        ],
    )
