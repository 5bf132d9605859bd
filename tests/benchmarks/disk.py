"""Bytes on disk: of live sessions over their messages, and of imports over their files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

import eventctx
from eventctx.importers.load import import_file
from tests.benchmarks.questions import long_store
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Place
from tests.benchmarks.workload import SESSION, message

FIGURE: Final = "disk"
SESSIONS: Final = Path(__file__).parents[2].parent / "shared" / "sessions"
PER_MESSAGE_BYTE: Final = 1.3
PER_RECORD: Final = 400

_PATTERNS: Final = (
    *("claude-code/**/*.jsonl", "codex/*.jsonl", "swe-agent/*.traj", "mini-swe-agent/*.json"),
)


async def measure(place: Place) -> list[Row]:
    return [
        await _live("messages in turns, all in view", await _turns(place), "live"),
        await _live("with requests, tools and compactions", await long_store(place), SESSION),
        await _imports(place),
    ]


async def _turns(place: Place) -> Path:
    path = place.path("live.db")
    async with eventctx.open(path, durability="normal") as engine:
        context = await engine.session("live", max_tokens=10**9)
        for first in range(0, place.count(10_000, 1000), 20):
            async with context.turn():
                for number in range(first, first + 20):
                    await context.add_message(message(number))
    return path


async def _live(name: str, path: Path, session: str) -> Row:
    async with eventctx.open(path, receipts=False) as engine:
        transcript = await engine.transcript(session)
        head = await engine.store.head(session)
    assert head is not None
    size = sum(len(msgspec.json.encode(one)) for one in transcript)
    records = head.head + 1
    return Row(
        figure=FIGURE,
        name=f"{name}, {len(transcript):,} messages",
        value=bytes_on_disk(path) / 2**20,
        unit="MiB",
        against=f"{PER_MESSAGE_BYTE} × JSON + {PER_RECORD} B × {records:,} records",
        floor=(PER_MESSAGE_BYTE * size + PER_RECORD * records) / 2**20,
        limit=1.0,
        note=f"{bytes_on_disk(path) / size:.2f} × the messages' JSON",
    )


async def _imports(place: Place) -> Row:
    """The recorded sessions that this release has a reader for, each in a store of its own."""
    found = [file for pattern in _PATTERNS for file in SESSIONS.glob(pattern)]
    # A subagent's file is imported with the session that it belongs to.
    files = [file for file in found if file.parent.name != "subagents"]
    if not files:
        return missing(FIGURE, "imports", f"no recorded sessions in {SESSIONS.name}/")
    stored = read = 0
    for file in files:
        path = place.path("import.db")
        async with eventctx.open(path, durability="normal") as engine:
            read += sum(one.bytes for one in await import_file(engine.store, file))
        stored += bytes_on_disk(path)
    return Row(
        figure=FIGURE,
        name="imports of recorded sessions",
        value=stored / 2**20,
        unit="MiB",
        against=f"{len(files)} files and their subagents'",
        floor=read / 2**20,
        limit=1.2,
        note="empty stores' 48 KB each and more included",
    )


def bytes_on_disk(path: Path) -> int:
    """Size of a database with what lies beside it."""
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*") if file.is_file())
