"""The tables of docs/reference/benchmarks.md, and of FIGURES.md beside the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tests.benchmarks import machine
from tests.benchmarks.blocks import table
from tests.benchmarks.repeats import samples_of
from tests.benchmarks.report import Run
from tests.benchmarks.rows import Row, amount


def made(run: Run) -> dict[str, str]:
    """Each block of the page."""
    return {
        "run": _run(run),
        "short": _short(run),
        "machine": _machine(run),
        "results": _results(run),
    }


SHORT = (
    ("one append", "ctx.add_message", "add a message"),
    ("next request", "1,000 messages, compacted", "prepare the next request, of 80 KB"),
    ("next request", "1,000 messages, compacted: that compact", "the same where it compacts"),
    ("compacting", "first compaction of 10,000 messages: workset", "the first compaction, late"),
    ("open a session", "open and prepare, 10,000 messages, compacted", "take up a long session"),
    (
        "open sessions",
        "memory of an open session, 10,000 of them",
        "keep a session open, in memory",
    ),
    ("questions", "why, now: first", "ask why, of 100,000 messages"),
    ("questions", "the very first question: the fold of the log", "the first question ever to it"),
    ("import", "Claude Code JSONL, 50 MB, durable", "import a history"),
    ("replay", "the same with the facts, which is the default", "verify"),
    ("a turn", "add_message: postgresql, quorum", "add a message, PostgreSQL with a quorum"),
    ("a turn", "add_message: jetstream, 3 replicas", "add a message, JetStream, three replicas"),
    ("start", "import eventctx", "`import eventctx`"),
)
"""What a user pays for: the figure, its row, and what to call it."""


def _short(run: Run) -> str:
    rows = {(row.figure, _name(row)): row for row in run.rows}
    found = [(words, rows.get((figure, name))) for figure, name, words in SHORT]
    lines = [[words, _measured(row)] for words, row in found if row is not None]
    return table(["to", ">takes"], lines)


def _run(run: Run) -> str:
    found = run.machine
    plain = ("cpus", "system", "python", "sqlite", "load")
    others = [f"{name} {value}" for name, value in found.items() if name not in plain and value]
    held = [row for row in run.rows if row.met is not None]
    met = sum(row.met is True for row in held)
    how = "once" if run.repeats == 1 else f"{run.repeats} times, the medians shown"
    quick = " This was a quick run, so its figures are rough." if run.quick else ""
    return (
        f"{run.at.partition('T')[0]}: {found['cpus']} processors, {found['system']}, Python "
        f"{found['python']}, SQLite {found['sqlite']}; {', '.join(others)}. Load average "
        f"{found['load'] or 0:.1f} at the end. Everything ran {how}.{quick} "
        f"{met} of {len(held)} targets are met.\n"
    )


def _machine(run: Run) -> str:
    heads = ["the machine's own", ">measured", ">processor time"]
    return table(heads, ([_name(row), _measured(row), _cpu(row)] for row in _floors(run)))


def _floors(run: Run) -> list[Row]:
    return [row for row in run.rows if row.figure == machine.FIGURE]


def _results(run: Run) -> str:
    others = [row for row in run.rows if row.figure != machine.FIGURE]
    parts = [_figure(name, list(rows)) for name, rows in groupby(others, lambda row: row.figure)]
    return "\n".join(parts)


def _figure(name: str, rows: list[Row]) -> str:
    heads = ["", ">measured", ">processor time", "against", ">ratio", ">target", "met"]
    return f"### {name}\n\n{table(heads, map(_line, rows))}"


def _line(row: Row) -> list[str]:
    if row.value is None:
        return [_name(row), "", "", _plain(row.note), "", "", ""]
    against = row.against
    if row.floor is not None:
        against = f"{row.against}: {amount(row.floor, row.unit)}"
    return [
        _name(row),
        _measured(row),
        _cpu(row),
        _plain(against),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        row.target,
        {None: "", True: "yes", False: "**no**"}[row.met],
    ]


def _name(row: Row) -> str:
    return _plain(row.name.strip())


def _measured(row: Row) -> str:
    """The median, and the least and the most of the repeats if there were several."""
    if row.value is None:
        return _plain(row.note)
    found = list(_values(row))
    if len(found) < 2:
        return amount(row.value, row.unit)
    spread = " to ".join(amount(one, "") for one in (min(found), max(found)))
    return f"{amount(row.value, row.unit)} ({spread})"


def _values(row: Row) -> Iterator[float]:
    for one in samples_of(row):
        if one.value is not None:
            yield one.value


def _cpu(row: Row) -> str:
    if row.cpu is None:
        return ""
    beside = "" if row.floor_cpu is None else f" ({amount(row.floor_cpu, '')})"
    return f"{amount(row.cpu, 'µs')}{beside}"


def _plain(words: str) -> str:
    """Words that a table's cell can hold."""
    return words.replace("|", "\\|").replace("<", "&lt;")
