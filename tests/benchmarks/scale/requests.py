"""What a request of an agent is to a store: appends, records and bytes, of recorded sessions.

Each recording, and the session of the demo, is played live through the engine, with a budget of
40 % of all its tokens. So the log holds what an agent's own would hold, compactions and all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import eventctx
from eventctx.cli.demo.command import SAMPLE
from eventctx.cli.demo.play import Player, measure
from eventctx.engine import Engine
from eventctx.importers.detect import choose
from eventctx.importers.load import import_file
from eventctx.importers.source.items import Item
from eventctx.importers.source.lines import read_lines
from eventctx.log.record import Draft
from eventctx.log.store import Appended, EventStore, Expected
from tests.benchmarks.disk import importable

SHARE = 0.4
"""Of a recording's tokens, in a request at most: as ``eventctx demo FILE`` has it."""


class Counts(msgspec.Struct):
    """Totals of sessions; sizes in bytes, as the records hold them."""

    name: str
    requests: int = 0
    appends: int = 0
    records: int = 0
    payload: int = 0
    bodies: int = 0
    body_bytes: int = 0
    facts_bytes: int = 0

    def add(self, other: Counts) -> None:
        """Count another session, too."""
        for field in self.__struct_fields__[1:]:
            setattr(self, field, getattr(self, field) + getattr(other, field))

    @property
    def bytes(self) -> int:
        """What the records hold, without their envelope."""
        return self.payload + self.body_bytes + self.facts_bytes


class CountingStore:
    """A store that counts the appends to it, and is otherwise the one that it was given."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.appends = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        self.appends += 1
        return self._store.append(stream, drafts, expected)


def recordings() -> list[Path]:
    """The demo's session, and every recorded one that has model calls."""
    return [SAMPLE, *[file for file in importable() if measure(_items(file)).calls]]


async def play_all(store: EventStore, prefix: str) -> list[Counts]:
    """Play every recording into a session of its own, whose name begins with ``prefix``."""
    return [await play(store, file, f"{prefix}-{n}") for n, file in enumerate(recordings())]


async def play(store: EventStore, file: Path, session: str) -> Counts:
    """Play one recording; what its session holds."""
    counting: Any = CountingStore(store)
    size = measure(_items(file))
    budget = max(1_000, round(size.tokens * SHARE))
    engine = Engine(counting)
    context = await engine.session(session, max_tokens=budget, on_overflow="send_floor")
    player = Player(context, budget, began=lambda *_: None, ended=lambda *_: None)
    await player.play(_items(file))
    await engine.close_session(session)
    counts = await counted(store, session, "the demo" if file == SAMPLE else _kind(file))
    counts.appends = counting.appends
    return counts


async def counted(store: EventStore, session: str, name: str) -> Counts:
    """What a session's own records hold. Imported sessions have no appends of their own."""
    counts = Counts(name)
    async for record in store.read(session):
        counts.requests += record.type == "context:request_prepared"
        counts.records += 1
        counts.payload += len(record.payload)
        counts.bodies += len(record.bodies)
        counts.body_bytes += sum(len(body.data or b"") for body in record.bodies)
        counts.facts_bytes += sum(len(body.facts or b"") for body in record.bodies)
    return counts


async def imported() -> list[Counts]:
    """The same recordings as ``eventctx import`` stores them, subagents' sessions included."""
    found: list[Counts] = []
    for file in recordings()[1:]:
        with tempfile.TemporaryDirectory(prefix="eventctx-scale-") as folder:
            async with eventctx.open(Path(folder, "imported.db"), durability="normal") as engine:
                total = Counts(_kind(file))
                for summary in await import_file(engine.store, file):
                    total.add(await counted(engine.store, summary.session, ""))
                found.append(total)
    return found


def _kind(file: Path) -> str:
    """The program that a recording is of: the folder it lies in."""
    sessions = [folder for folder in file.parents if (folder / "MANIFEST.json").exists()]
    return file.relative_to(sessions[0]).parts[0] if sessions else file.parent.name


def _items(file: Path) -> Iterator[Item]:
    return choose(file, None).parse(read_lines(file), file.name, lambda: True)


def mean(counts: Sequence[Counts]) -> Counts:
    """All sessions as one, by which a request is as often one kind as it is recorded."""
    total = Counts("all")
    for one in counts:
        total.add(one)
    return total
