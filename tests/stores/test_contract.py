"""The contract of `EventStore` for every store, random histories, and what workers import."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, multiple, rule

from eventctx.errors import WrongExpectedVersion
from eventctx.importers.many import import_paths
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Address, EventStore, Snapshot
from eventctx.queries.verify import verify
from eventctx.stores.memory import MemoryStore
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.sqlite import SqliteStore
from eventctx.testing.store_contract import StoreContract
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
from tests.benchmarks.importing import write_transcript
from tests.how_much import some
from tests.importers.in_workers import import_alike
from tests.services.in_memory import memory_folder


class TestEveryStore(StoreContract):
    """Each test with each store of the fixture ``store``."""


names = st.sampled_from(["a", "b", "c", "", "ü\0"])
texts = st.lists(st.sampled_from([b"", b"x", b"y" * 3000, b"z" * 20_000]), max_size=3)
batches = st.lists(texts, min_size=1, max_size=4)


class History(RuleBasedStateMachine):
    """The model: per stream a list of [event id, data of each body, None where erased]."""

    lost = Bundle("lost")

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model: dict[str, list[tuple[bytes, list[list[bytes | None]]]]] = {}
        self.order: list[bytes] = []
        self.store = self.run(self.open())

    async def open(self):
        return MemoryStore()

    def run(self, awaitable):
        async def wait():
            return await awaitable

        return self.loop.run_until_complete(wait())

    def drafts(self, batch):
        return [make_draft(*datas, type=f"type {len(datas)}") for datas in batch]

    def note(self, stream, drafts):
        for draft in drafts:
            self.order.append(draft.id)
            # A list of one per body, shared by forks, so that erasing reaches all of them.
            self.model.setdefault(stream, []).append((draft.id, [[b.data] for b in draft.bodies]))

    @rule(target=lost, stream=names, batch=batches, how=st.sampled_from(["exact", "any", "exists"]))
    def append(self, stream, batch, how):
        head = len(self.model.get(stream, ())) - 1
        expected = {"exact": head, "any": ANY, "exists": NO_STREAM if head < 0 else STREAM_EXISTS}
        drafts = self.drafts(batch)
        done = self.run(self.store.append(stream, drafts, expected[how]))
        assert done.receipt.position == head + len(drafts)
        self.note(stream, drafts)
        return stream, drafts, head, done

    @rule(appended=consumes(lost))
    def retry(self, appended):
        stream, drafts, expected, done = appended
        again = self.run(self.store.append(stream, drafts, expected))
        assert again.receipt == done.receipt
        assert [r.global_position for r in again.records] == [
            r.global_position for r in done.records
        ]

    @rule(stream=names, batch=batches, off=st.integers(-3, 3).filter(bool))
    def append_on_a_wrong_version(self, stream, batch, off):
        head = len(self.model.get(stream, ())) - 1
        ack = self.store.append(stream, self.drafts(batch), head + off)
        with pytest.raises(WrongExpectedVersion):
            self.run(ack)

    @rule(stream=names, new=names, at=st.integers(0, 30), text=texts)
    def fork(self, stream, new, at, text):
        if new in self.model or at >= len(self.model.get(stream, ())):
            return
        (first,) = self.drafts([text])
        self.run(self.store.fork(stream, at, new, first))
        self.model[new] = self.model[stream][: at + 1]
        self.note(new, [first])

    @rule(stream=names, at=st.integers(0, 30), index=st.integers(0, 2))
    def erase(self, stream, at, index):
        records = self.model.get(stream, [])
        if at >= len(records) or index >= len(records[at][1]):
            return
        place = records[at][1][index]
        count = self.run(self.store.erase({stream: {Address(at, index): b""}})).bodies
        assert count == (place[0] is not None)
        place[0] = None

    @rule(target=lost, stream=names)
    def snapshot(self, stream):
        self.store.save_snapshot(stream, "view", Snapshot(0, bytes(32), 1, b"state"))
        return multiple()

    @rule(stream=names, start=st.integers(-1, 12), stop=st.integers(-1, 12), backward=st.booleans())
    def read_a_range(self, stream, start, stop, backward):
        if stream not in self.model:
            return
        expected = [e for e, _ in self.model[stream][max(start, 0) : max(stop, -1) + 1]]
        reading = self.store.read(stream, start=start, stop=stop, backward=backward, bodies=False)
        found = [r.id for r in self.run(gather(reading))]
        assert found == (expected[::-1] if backward else expected)

    @rule()
    def compare_everything(self):
        assert {info.stream for info in self.run(gather(self.store.streams()))} == set(self.model)
        for stream, expected in self.model.items():
            records = self.run(gather(self.store.read(stream)))
            assert [(r.id, [[b.data] for b in r.bodies]) for r in records] == expected
            check_chain(records)
            info = self.run(self.store.head(stream))
            assert (info.head, info.digest) == (len(expected) - 1, records[-1].digest)
        assert [r.id for r in self.run(gather(self.store.read_all(bodies=False)))] == self.order

    def teardown(self):
        self.compare_everything()
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()


class SqliteHistory(History):
    async def open(self):
        self.folder = tempfile.TemporaryDirectory(prefix="eventctx-model-", dir=memory_folder())
        return await SqliteStore.open(Path(self.folder.name) / "store.db", durability="normal")

    @rule()
    def reopen(self):
        self.run(self.store.close())
        self.store = self.run(SqliteStore.open(self.store.path, durability="normal"))

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


class PostgresHistory(History):
    """In a schema of its own of a real server, which a second store writes in turn."""

    place = ""
    schemas = itertools.count()

    async def open(self):
        self.url = f"{self.place}?schema=model_{next(self.schemas)}"
        self.other = await PostgresStore.open(self.url)
        return await PostgresStore.open(self.url)

    @rule()
    def take_turns(self):
        self.store, self.other = self.other, self.store

    @rule()
    def reopen(self):
        self.run(self.store.close())
        self.store = self.run(PostgresStore.open(self.url))

    def teardown(self):
        self.run(self.other.close())
        super().teardown()


def tried(examples: int, steps: int = 30) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


@pytest.mark.slow
@pytest.mark.parametrize("history", [History, SqliteHistory])
def test_histories_in_this_process(history):
    stateful.run_state_machine_as_test(history, settings=tried(some(20, 60)))


def test_histories_on_postgresql(postgres):
    histories = type("Histories", (PostgresHistory,), {"place": postgres.url()})
    try:
        stateful.run_state_machine_as_test(histories, settings=tried(some(8, 25), 25))
    finally:
        for n in range(next(PostgresHistory.schemas)):
            postgres.execute(f"DROP SCHEMA IF EXISTS model_{n} CASCADE")


@pytest.mark.slow
async def test_workers_fill_a_store_and_a_second_import_finds_all_of_it(
    store: EventStore, tmp_path: Path
) -> None:
    for number in range(3):
        write_transcript(tmp_path / f"{number}.jsonl", some(150_000, 1_500_000), number)
    first, again = [
        await import_paths(store, [tmp_path], importing=import_alike, workers=2, workers_from=0)
        for _ in range(2)
    ]
    assert first.passed_over == again.passed_over == ()
    assert (first.total.sessions, again.total.added) == (3, 0)
    for one in first.sessions:
        checked = await verify(store, one.session or "")
        assert (checked.ok, checked.records) == (True, one.added)
