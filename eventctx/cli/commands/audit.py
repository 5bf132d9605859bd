"""``audit``: a row for every request, with the compactions between them."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from eventctx.cli.output import figures, opening
from eventctx.cli.output.figures import RAW_HINT, session_in_words
from eventctx.cli.output.opening import session_or_last
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Column, Screen, put_document
from eventctx.log.naming import position_name
from eventctx.log.plan import TAKEN_BACK
from eventctx.projections.audit import AuditRow, CompactionRow
from eventctx.projections.figures import ImportedFile
from eventctx.projections.presence import PROVIDER_EDITS, describe_loss, describe_trigger
from eventctx.queries.audit import audit_answer, audit_of
from eventctx.queries.costs import read_prices

if TYPE_CHECKING:
    from eventctx.queries.audit import Audit

OURS: Final = ImportedFile()
"""Of a session that was not imported."""

_MEANINGS: Final = (
    "Counts are messages of the transcript; tokens are the provider's count of the whole prompt, "
    "or, behind ~, our estimate."
)

Note = Sequence[str | tuple[str, str]]

_FEW: Final = 20
"""Requests that a terminal shows all of."""

_NARROW: Final = 70
"""Characters of a line below which there is no room for budget and digest."""

_WIDE: Final = 120
"""Characters of a line from which on the parts of a request's tokens have columns."""


@click.command("audit", short_help="The requests: what was kept, shortened and dropped.")
@click.argument("session", required=False)
@click.option("--turn", type=int, metavar="N", help="Only the requests of turn N.")
@click.option("--all", "every", is_flag=True, help="Every request, also on a terminal.")
@figures.prices_option
@opening.reading
def audit_command(
    session: str | None,
    turn: int | None,
    every: bool,
    prices: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the requests of SESSION: what was kept, shortened, summarised and dropped.

    A row per request, the compactions in between where they happened. A terminal shows the last
    request of each turn and those around compactions, where there are many. Without SESSION: the
    last one used.
    """
    audit, file = run(_audit(session, turn, store, prices))
    if as_json:
        put_document(audit_answer(audit, file.undated))
    else:
        screen = Screen()
        every = every or not screen.live or turn is not None
        show_audit(screen, audit, None if every else telling(audit), file)


async def _audit(
    session: str | None, turn: int | None, store: str | None, prices: Path | None
) -> tuple[Audit, ImportedFile]:
    table = read_prices(prices)
    async with opening.answering(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        return await audit_of(reader.store, info.stream, turn, table)


def telling(audit: Audit) -> list[AuditRow]:
    """The first request, the last one of each turn, and those around compactions; of few, all."""
    rows = audit.requests
    if len(rows) <= _FEW:
        return list(rows)
    compacted = [one.position for one in audit.compactions]
    chosen = []
    for place, row in enumerate(rows):
        before = rows[place - 1] if place else None
        behind = rows[place + 1] if place + 1 < len(rows) else None
        first = before is None or _between(compacted, before, row)
        last = behind is None or behind.turn != row.turn or _between(compacted, row, behind)
        if first or last:
            chosen.append(row)
    return chosen


def _between(positions: Sequence[int], one: AuditRow, other: AuditRow) -> bool:
    return bisect(positions, other.position) > bisect(positions, one.position)


def show_audit(
    screen: Screen,
    audit: Audit,
    requests: Iterable[AuditRow | int] | None = None,
    file: ImportedFile = OURS,
) -> None:
    """The audit as a table. ``requests`` selects rows; a number counts rows that are left out."""
    chosen = list(audit.requests if requests is None else requests)
    rows = [row for row in chosen if isinstance(row, AuditRow)]
    if not audit.requests:
        screen.line("No request was prepared in this session; a fork's parent has its own audit.")
        if not audit.compactions:
            return
    optional = _optional(rows)
    parts = _shows_parts(screen, rows)
    columns = _columns(screen, optional, parts)
    notes = _notes(chosen, audit)
    cells = [_cells(screen, row, optional, parts) for row in rows]
    if rows:
        screen.table(columns, cells, notes)
    if requests is not None and len(chosen) == len(rows) < len(audit.requests):
        words = (
            f"{number(len(rows))} of {plural(len(audit.requests), 'request')}: the last of each "
            "turn and those around compactions; --all shows the rest."
        )
        screen.line((words, "dim"))
    screen.line((_summary(audit), "dim"))
    for footnote in _footnotes(audit, file, whole=requests is None):
        screen.line((footnote, "dim"))


def _optional(rows: Sequence[AuditRow]) -> list[str]:
    """Names of the rare counts that are not zero in every row; only these get a column."""
    return [
        name for name in ("merged", "omitted") if any(getattr(row.counts, name) for row in rows)
    ]


def _columns(screen: Screen, optional: Sequence[str], parts: bool) -> list[Column]:
    short = screen.live and screen.width < 100
    titles = ("in messages", "beside") if parts else ()
    return [
        Column("request", right=True),
        Column("at" if short else "position", right=True),
        Column("kept", right=True),
        Column("short" if short else "shortened", right=True),
        Column("summ" if short else "summarised", right=True),
        Column("drop" if short else "dropped", right=True),
        *[Column(name[:4] if short else name, right=True) for name in optional],
        Column("tokens", right=True, style="bold"),
        *[Column(title, right=True) for title in titles],
        *([] if _narrow(screen) else [Column("budget", right=True)]),
        *([] if _narrow(screen) else [Column("digest", style="cyan")]),
    ]


def _shows_parts(screen: Screen, rows: Sequence[AuditRow]) -> bool:
    """Whether the table has the parts of each request: there is room, and there are two parts."""
    room = not screen.live or screen.width >= _WIDE
    return room and any(row.figures.beside != 0 for row in rows)


def _cells(screen: Screen, row: AuditRow, optional: Sequence[str], parts: bool) -> list[str]:
    counts = row.counts
    return [
        row.name,
        position_name(row.position),
        number(counts.kept),
        number(counts.shortened),
        number(counts.summarised),
        number(counts.dropped),
        *[number(getattr(counts, name)) for name in optional],
        figures.request_tokens(row.figures) + ("!" if row.floor_sent else ""),
        *(_parts(row) if parts else []),
        *([] if _narrow(screen) else [number(row.budget), _digest(screen, row)]),
    ]


def _narrow(screen: Screen) -> bool:
    return screen.live and screen.width < _NARROW


def _digest(screen: Screen, row: AuditRow) -> str:
    return row.digest[: (12 if screen.width < 100 else 16) if screen.live else None]


def _parts(row: AuditRow) -> list[str]:
    return [figures.tokens(row.figures.messages, True), figures.beside_tokens(row.figures)]


def _notes(chosen: Sequence[AuditRow | int], audit: Audit) -> dict[int, Note]:
    """Lines for compactions and gaps, by the index of the row after them."""
    notes: dict[int, list[str | tuple[str, str]]] = {}
    waiting = list(audit.compactions)
    place = 0
    for row in chosen:
        if isinstance(row, int):
            notes.setdefault(place, []).append((f"… {plural(row, 'more request')}\n", "dim"))
            continue
        while waiting and waiting[0].position < row.position:
            notes.setdefault(place, []).extend(_compaction_lines(waiting.pop(0), audit))
        place += 1
    for one in waiting:
        notes.setdefault(place, []).extend(_compaction_lines(one, audit))
    return {at: _without_last_break(note) for at, note in notes.items()}


def _without_last_break(note: list[str | tuple[str, str]]) -> Note:
    last = note[-1]
    stripped = last.rstrip("\n") if isinstance(last, str) else (last[0].rstrip("\n"), last[1])
    return [*note[:-1], stripped]


def _compaction_lines(row: CompactionRow, audit: Audit) -> list[str | tuple[str, str]]:
    """A compaction, and under it what it costs and saves."""
    cost, prices = audit.caches.get(row.position), audit.prices.get(row.position)
    words = [] if cost is None else figures.cache_cost_in_words(cost, prices)
    return [*compaction_line(row), *[(f"  {one}\n", "dim") for one in words]]


def compaction_line(row: CompactionRow) -> list[str | tuple[str, str]]:
    """A compaction in words: trigger, and the view before and after."""
    if row.strategy == TAKEN_BACK:
        counts = f"{number(row.messages_before)} → {plural(row.messages_after, 'message')}"
        return [(f"↓ taken back {position_name(row.position)}: ", "bold red"), f"{counts}\n"]
    head = (f"↓ compaction {position_name(row.position)} ", "bold red")
    if row.outcome != "applied" or row.figures is None:
        return [head, f"{row.outcome} ({row.trigger}){f': {row.error}' if row.error else ''}\n"]
    words: list[str | tuple[str, str]] = [
        head,
        (f"{_trigger(row)}: ", "red"),
        f"{figures.compaction_tokens(row.figures)}, ",
        f"{number(row.messages_before)} → {plural(row.messages_after, 'message')}",
    ]
    if row.fallback is not None:
        words.append((f"; {row.fallback} decided, as {row.strategy} failed", "yellow"))
        words.append(f": {row.error or 'no error was recorded'}")
    return [*words, "\n"]


def _trigger(row: CompactionRow) -> str:
    if row.strategy not in PROVIDER_EDITS:
        return describe_trigger(row.trigger).short
    return (
        f"by the provider, which cleared {PROVIDER_EDITS[row.strategy]} (inferred: it names none)"
    )


def _summary(audit: Audit) -> str:
    applied = [
        row.figures
        for row in audit.compactions
        if row.figures is not None and row.strategy != TAKEN_BACK
    ]
    saved = sum(one.taken_out for one in applied)
    # A fork's audit has its parent's turns, too, so only turns with a request are counted.
    turns = {row.turn for row in audit.requests} - {None}
    text = f"{_requests(audit, len(turns))}"
    text += f", {plural(len(applied), 'compaction')}"
    if not applied:
        return text
    mark = any(one.estimated for one in applied)
    what = "took out" if saved >= 0 else "added"
    return f"{text} that {what} {figures.tokens(abs(saved), mark)} tokens"


def _requests(audit: Audit, turns: int) -> str:
    """How many requests there are, and how many of them in turns."""
    outside = sum(row.turn is None for row in audit.requests)
    found = plural(len(audit.requests), "request")
    if not outside:
        return f"{found} in {plural(turns, 'turn')}"
    if not turns:
        return f"{found}, none in a turn"
    return f"{found}, {number(len(audit.requests) - outside)} of them in {plural(turns, 'turn')}"


def _untold(audit: Audit) -> list[str]:
    """What is not known of the texts that a host added to requests."""
    untold = [row.untold for row in audit.requests if row.untold is not None]
    if not untold:
        return []
    added = sum(1 for one in untold if one)
    counted = f"; to {number(added)} of them it added messages, by its count" if added else ""
    what = f"What the host added to {plural(len(untold), 'request')} is not known{counted}."
    return [f"{what} {RAW_HINT}"]


def _other_beginnings(requests: Sequence[AuditRow]) -> list[str]:
    """The requests whose beginning changed, but for compactions, which have lines of their own."""
    found: dict[str, list[str]] = {}
    for row in requests:
        for one in row.breaks:
            if one != "compaction":
                found.setdefault(one.replace("_", " "), []).append(row.name)
    return [
        f"The beginning changed ({reason}) in {_some(names)}." for reason, names in found.items()
    ]


def _some(names: Sequence[str]) -> str:
    more = f" and {number(len(names) - _FEW)} more (--json)" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _footnotes(audit: Audit, file: ImportedFile, *, whole: bool) -> list[str]:
    found = [_MEANINGS]
    if any(row.floor_sent for row in audit.requests):
        found.append("! Over the budget: what must stay was larger, and was sent all the same.")
    if audit.little_room is not None:
        found.append(f"There is little room: {audit.little_room.sentence}.")
    differing = sum(1 for row in audit.requests if row.additions or row.missing)
    if differing:
        found.append(
            f"{plural(differing, 'request')} did not leave as prepared, as the host said; "
            "`view --position` shows what it added."
        )
    found += _untold(audit)
    names = {row.position: row.name for row in audit.requests}
    losses = [one for one in audit.losses if one.position in names]
    told = [one for one in losses if one.kind == "prompt"]
    found += [describe_loss(one, names[one.position]) for one in told[:_FEW]]
    found += _other_beginnings(audit.requests)
    if missed := [names[one.position] for one in losses if one.kind != "prompt"]:
        found.append(
            "The cache served less than before, without a compaction (inferred), in "
            f"{_some(missed)}."
        )
    known = session_in_words((row.figures for row in audit.requests), file)
    if known:
        found.append(known)
    if whole and audit.costs is not None and audit.costs.calls is not None:
        found += figures.costs_in_words(audit.costs.calls)
    errors = figures.errors_in_words(audit.errors) if whole else ""
    return [*found, errors] if errors else found
