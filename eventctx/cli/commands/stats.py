"""``stats``: the figures of a whole store."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from eventctx.cli.output import figures, opening
from eventctx.cli.output.figures import tokens
from eventctx.cli.output.plain import NOT_RECORDED, number, one_line, plural, size
from eventctx.cli.output.program import report_skipped, run
from eventctx.cli.output.screen import Column, Screen, progress, put_document
from eventctx.log.store import StoreDescription
from eventctx.projections import usage
from eventctx.queries.costs import read_prices
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.stats import LossRow, Stats, records_in, stats_of

_COPIED: Final = ("store", "place")
"""Lines that are never wrapped."""

_OWN_PLACE: Final = ("memory", "sqlite")
"""Stores whose place is the name that the user gave."""

_OUTLIVED: Final = {
    "nothing": "nothing",
    "process": "the end of the process, no power cut",
    "power cut": "the end of the process, and a power cut",
    "loss of a machine": "a power cut, and the loss of a machine",
}
"""The events that an acknowledged append survives, in words."""

_LOST: Final = {"error": "errors", "dropped": "dropped"}


@click.command("stats", short_help="Figures of the whole store.")
@figures.prices_option
@opening.reading
def stats_command(prices: Path | None, store: str | None, as_json: bool) -> None:
    """Figures of the whole store: sessions, records, bytes, compactions, tokens saved.

    And which hooks failed or dropped something, if any did.
    """
    errors = ReadErrors()
    stats = run(_stats(store, errors, prices))
    if as_json:
        put_document(stats)
    else:
        _show(Screen(), stats)
    report_skipped(errors)


async def _stats(store: str | None, errors: ReadErrors, prices: Path | None) -> Stats:
    table = read_prices(prices)
    url = opening.location(store)
    async with opening.open_reader(store) as reader:
        with progress("Reading the log", await records_in(reader.store)) as bar:
            return await stats_of(
                reader.store,
                url,
                opening.path_of(url),
                reader.hook_failures,
                errors,
                bar.at,
                table,
            )


def _output(used: usage.UsageTotals) -> str:
    if used.inexact_outputs == used.calls:
        return NOT_RECORDED
    missing = f", of {used.inexact_outputs} calls {NOT_RECORDED}" if used.inexact_outputs else ""
    return f"{number(used.output)}{missing}"


def _known(stats: Stats) -> str:
    """How sure we are of each request; nothing where eventctx made them all."""
    if stats.known.keys() <= {"prepared"}:
        return ""
    parts = [f"{number(count)} {known}" for known, count in sorted(stats.known.items())]
    return f" ({', '.join(parts)})"


def _without_end(stats: Stats) -> str:
    if not stats.tool_calls_without_end:
        return ""
    return f", the end of {number(stats.tool_calls_without_end)} {NOT_RECORDED}"


def _described(found: StoreDescription) -> list[tuple[str, str]]:
    """Rows about the server that keeps the records, the events they survive, and its settings."""
    facts = ", ".join(f"{name}={value}" for name, value in sorted(found.facts.items()))
    return [
        ("kept by", found.server),
        *([] if found.kind in _OWN_PLACE else [("place", found.place)]),
        ("survives", _OUTLIVED[found.survives]),
        *([("settings", facts)] if facts else []),
    ]


def _show(screen: Screen, stats: Stats) -> None:
    forks = f", {plural(stats.forks, 'fork')} among them" if stats.forks else ""
    rows = [
        ("store", stats.store),
        *_described(stats.description),
        ("sessions", f"{number(stats.sessions)}{forks}"),
        ("records", number(stats.records)),
        *([] if stats.file_bytes is None else [("on disk", size(stats.file_bytes))]),
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
        put = screen.whole if name in _COPIED else screen.line
        put((f"{name:<13}", "bold"), value)
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
    for words in figures.costs_in_words(stats.costs):
        screen.line((f"{'cost':<13}", "bold"), words)
    if stats.copied_calls:
        copied = f"{plural(stats.copied_calls, 'copied call')}, counted once"
        screen.line((f"{'usage':<13}", "bold"), copied)
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
