"""Bytes on disk: of a live session over its messages, and of an import over its file."""

from __future__ import annotations

from pathlib import Path

import msgspec

import eventctx
from eventctx.importers.load import import_file
from tests.benchmarks.agent import run_rounds, session_of
from tests.benchmarks.place import Place, bytes_on_disk
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.workload import message

FIGURE = "disk"
SESSIONS = Path(__file__).parents[2].parent / "shared" / "sessions"
PER_MESSAGE_BYTE = 1.3
PER_RECORD = 400

_PATTERNS = (
    "claude-code/**/*.jsonl",
    "codex/*.jsonl",
    "swe-agent/*.traj",
    "mini-swe-agent/*.json",
)


async def measure(place: Place) -> list[Row]:
    return [
        await _live(place, "a conversation in turns, all in view", None),
        await _live(place, "the same with a request a round, compacted", 40_000),
        *await _imports(place),
    ]


async def _live(place: Place, name: str, window: int | None) -> Row:
    count = place.count(10_000, 1000)
    path = place.path("live.db")
    async with eventctx.open(path, durability="normal") as engine:
        if window is None:
            context = await engine.session("live", max_tokens=10**9)
            for first in range(0, count, 20):
                async with context.turn():
                    for number in range(first, first + 20):
                        await context.add_message(message(number))
        else:
            context = await session_of(engine, "live")
            await run_rounds(context, 0, count)
        head = await engine.store.head("live")
    if head is None:
        raise RuntimeError("the session was not stored")
    size = sum(len(msgspec.json.encode(message(number))) for number in range(count))
    records = head.head + 1
    allowed = PER_MESSAGE_BYTE * size + PER_RECORD * records
    return Row(
        figure=FIGURE,
        name=f"{name}, {count:,} messages",
        value=bytes_on_disk(path) / 2**20,
        unit="MiB",
        against=f"{PER_MESSAGE_BYTE} × JSON + {PER_RECORD} B × {records:,} records",
        floor=allowed / 2**20,
        limit=1.0,
        note=f"{bytes_on_disk(path) / size:.2f} × the messages' JSON",
    )


async def _imports(place: Place) -> list[Row]:
    files = importable()
    if not files:
        return [missing(FIGURE, "imports", f"no session files in {SESSIONS}")]
    return [await _import(place, file) for file in files]


def importable() -> list[Path]:
    """The recorded sessions that this release has a reader for."""
    found = [file for pattern in _PATTERNS for file in SESSIONS.glob(pattern)]
    # A subagent's file is imported with the session that it belongs to.
    return sorted(file for file in found if file.parent.name != "subagents")


async def _import(place: Place, file: Path) -> Row:
    path = place.path("import.db")
    async with eventctx.open(path, durability="normal") as engine:
        summaries = await import_file(engine.store, file)
    size = sum(summary.bytes for summary in summaries)
    return Row(
        figure=FIGURE,
        name=f"import of {file.relative_to(SESSIONS).parts[0]}: {file.name[:32]}",
        value=bytes_on_disk(path) / 2**20,
        unit="MiB",
        against="the file" if len(summaries) == 1 else f"the {len(summaries)} files",
        floor=size / 2**20,
        limit=1.2,
        note="an empty store's 48 KB and more included",
    )
