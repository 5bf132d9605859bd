"""Twenty writers, readers and subscribers work on a store while something is done to its servers.

They use the ``EventStore`` protocol alone, and note what they saw in a ``History``. Any error but
those of ``eventctx.errors`` ends the run: no caller should meet a driver's.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from eventctx.errors import LogCorrupted, StoreUnavailable, WrongExpectedVersion
from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.histories import Append, History, Look, Outcome, Seen, Stored
from tests.how_much import some

_CLOSING = 100.0
"""Seconds that a store may take to close: its servers may be gone, and it is patient."""

Opening = Callable[[], Awaitable[EventStore]]
Fault = Callable[[], Awaitable[None]]

_AGAIN = 0.05
"""Seconds before a client that met an unavailable store asks again."""


class Load(NamedTuple):
    """How much is done: ``before`` and ``after`` are acknowledged appends around the fault.

    ``stores`` are opened for the writers, as so many processes would. ``patience`` is how many
    seconds each wait may take that the run cannot do without, until it counts as broken.
    """

    writers: int = 20
    sessions: int = 6
    stores: int = some(3, 5)
    before: int = some(50, 150)
    after: int = some(50, 150)
    patience: float = 90.0


class Run(NamedTuple):
    """A finished run: what clients saw, what is there, and when the fault began and ended."""

    history: History
    stored: Stored
    began: float
    ended: float
    loud: list[str]
    """What was said of damage: where there is none, an error of its own."""

    @property
    def stall(self) -> float:
        """The longest time from the fault on without an acknowledgement, in seconds."""
        return self.history.longest_wait(self.began)


class Stuck(AssertionError):
    """Something that has to happen did not: an append, or the reading of the store."""


class _Clients:
    def __init__(self, load: Load, seed: int) -> None:
        self.load = load
        self.history = History([], [], {})
        self.loud: list[str] = []
        self.sessions = [f"s{number}" for number in range(load.sessions)]
        self.ending = asyncio.Event()
        self._seed = seed
        self._counted = asyncio.Condition()

    async def write(self, store: EventStore, writer: int) -> None:
        """Append to random sessions, each time after the last position that was seen."""
        chance = random.Random(f"{self._seed} {writer}")
        heads: dict[str, int] = {}
        made = 0
        while not self.ending.is_set():
            stream = chance.choice(self.sessions)
            if stream not in heads:
                heads[stream] = await self._head(store, stream)
            made += 1
            drafts = _drafts(f"{self._seed} {writer} {made}", chance)
            heads[stream] = await self.append(store, writer, stream, heads[stream], drafts)

    async def append(
        self, store: EventStore, writer: int, stream: str, expected: int, drafts: list[Draft]
    ) -> int:
        """Append until there is an answer; returns the last position that is known now."""
        began = time.monotonic()
        ids = tuple(one.id for one in drafts)

        async def note(outcome: Outcome, records: Sequence[Record] = ()) -> None:
            seen = (writer, stream, expected, ids, began, time.monotonic(), outcome)
            first = records[0].position if records else -1
            self.history.appends.append(Append(*seen, tuple(one.digest for one in records), first))
            async with self._counted:
                self._counted.notify_all()

        while True:
            try:
                wanted = NO_STREAM if expected < 0 else expected
                records = (await store.append(stream, drafts, wanted)).records
            except WrongExpectedVersion as error:
                await note("refused")
                return error.actual
            except LogCorrupted as error:
                self._heard(error)
                await note("unknown")
                return await self._head(store, stream)
            except StoreUnavailable:
                if self.ending.is_set() and time.monotonic() - began > self.load.patience:
                    await note("unknown")
                    return expected
                await asyncio.sleep(_AGAIN)
            else:
                await note("acknowledged", records)
                return records[-1].position

    async def _head(self, store: EventStore, stream: str) -> int:
        while True:
            try:
                found = await store.head(stream)
            except (StoreUnavailable, LogCorrupted) as error:
                self._heard(error)
                if self.ending.is_set():
                    return -1
                await asyncio.sleep(_AGAIN)
            else:
                return -1 if found is None else found.head

    async def acknowledged(self, more: int) -> None:
        """Wait until so many more appends were acknowledged. Raises Stuck."""
        wanted = len(self.history.acknowledged()) + more
        try:
            async with asyncio.timeout(self.load.patience), self._counted:
                await self._counted.wait_for(lambda: len(self.history.acknowledged()) >= wanted)
        except TimeoutError:
            missing = wanted - len(self.history.acknowledged())
            raise Stuck(f"{missing} of {more} appends were not acknowledged") from None

    async def look(self, store: EventStore) -> None:
        chance = random.Random(f"{self._seed} look")
        while not self.ending.is_set():
            stream = chance.choice(self.sessions)
            began = time.monotonic()
            try:
                records = [Seen.of(one) async for one in store.read(stream, bodies=False)]
            except (StoreUnavailable, LogCorrupted) as error:
                self._heard(error)
            else:
                self.history.looks.append(Look(stream, began, tuple(records)))
            await asyncio.sleep(_AGAIN)

    async def follow(self, store: EventStore, stream: str | None) -> None:
        """Subscribe, and after an error go on behind the last record that came."""
        got = self.history.delivered.setdefault(f"session:{stream}" if stream else "log", [])
        while True:
            after = -1 if not got else got[-1].position if stream else got[-1].global_position
            try:
                async for record in store.subscribe(stream=stream, after=after):
                    got.append(Seen.of(record))
                raise Stuck("a subscription ended although its store is open")
            except (StoreUnavailable, LogCorrupted) as error:
                self._heard(error)
                await asyncio.sleep(_AGAIN)

    async def poll(self, store: EventStore) -> None:
        """Read the log of the whole store again and again, each time behind the last record."""
        got = self.history.delivered.setdefault("polled log", [])
        while True:
            try:
                after = got[-1].global_position if got else -1
                async for record in store.read_all(after=after, bodies=False):
                    got.append(Seen.of(record))
            except (StoreUnavailable, LogCorrupted) as error:
                self._heard(error)
            await asyncio.sleep(_AGAIN / 5)

    def _heard(self, error: Exception) -> None:
        if isinstance(error, LogCorrupted):
            self.loud.append(str(error))

    async def caught_up(self, stored: Stored) -> None:
        """Wait until every subscriber has got the last record; gaps are the checker's affair."""
        ends = {f"session:{name}": Seen.of(one[-1]) for name, one in stored.streams.items() if one}
        last = stored.log[-1]
        subscribers, until = self.history.delivered.items(), time.monotonic() + 60
        while time.monotonic() < until:
            if all(ends.get(name, last) in got[-50:] for name, got in subscribers):
                return
            await asyncio.sleep(_AGAIN)


async def nothing() -> None:
    """Do nothing."""


async def run(
    opening: Opening, fault: Fault, load: Load, *, settle: Fault = nothing, seed: int = 1
) -> Run:
    """Let clients work, do ``fault`` meanwhile, let them go on, and read all that is there.

    ``settle`` is awaited when every session has its first record.

    Raises Stuck when writers cannot go on or the store cannot be read in the end, and whatever a
    client met that is no error of a store.
    """
    clients = _Clients(load, seed)
    async with AsyncExitStack() as opened:
        stores = [await opened.enter_async_context(_closing(opening)) for _ in range(load.stores)]
        reading = await opened.enter_async_context(_closing(opening))
        for stream in clients.sessions:
            first = _drafts(f"{seed} {stream}", random.Random(seed))
            await clients.append(stores[0], -1, stream, -1, first)
        await settle()
        async with _tasks() as start:
            writing = [
                start(clients.write(stores[writer % len(stores)], writer))
                for writer in range(load.writers)
            ]
            writing.append(start(clients.look(reading)))
            for stream in (None, *clients.sessions):
                start(clients.follow(reading, stream))
            start(clients.poll(reading))
            await clients.acknowledged(load.before)
            began = time.monotonic()
            await fault()
            ended = time.monotonic()
            await clients.acknowledged(load.after)
            clients.ending.set()
            _, late = await asyncio.wait(writing, timeout=load.patience * 1.5)
            if late:
                raise Stuck(f"{len(late)} of {len(writing)} writers had no answer")
            stored = await read(opening, clients.sessions, load.patience)
            await clients.caught_up(stored)
    return Run(clients.history, stored, began, ended, clients.loud)


async def read(opening: Opening, sessions: list[str], patience: float = 60.0) -> Stored:
    """All that a new client finds in the store, contents included. Raises Stuck."""
    try:
        async with asyncio.timeout(patience), _closing(opening) as store:
            streams = {name: [one async for one in store.read(name)] for name in sessions}
            log = [Seen.of(one) async for one in store.read_all(bodies=False)]
    except TimeoutError:
        raise Stuck(f"the store was not read in {patience:g} s") from None
    return Stored(streams, log)


def _drafts(seed: str, chance: random.Random) -> list[Draft]:
    """One to three drafts, some with a body; the same seed gives the same ids."""
    return [
        make_draft(*(f"words of {seed}",) * chance.choice((0, 1, 1, 2)), seed=f"{seed} {index}")
        for index in range(chance.choice((1, 1, 2, 3)))
    ]


@asynccontextmanager
async def _closing(opening: Opening) -> AsyncIterator[EventStore]:
    store = await opening()
    try:
        yield store
    finally:
        async with asyncio.timeout(_CLOSING):
            await store.close()


Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


@asynccontextmanager
async def _tasks() -> AsyncIterator[Start]:
    """Starts tasks that end with the block; raises the first error of all."""
    tasks: list[asyncio.Task[None]] = []
    try:
        async with asyncio.TaskGroup() as group:

            def start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
                tasks.append(group.create_task(work))
                return tasks[-1]

            try:
                yield start
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors
