"""What is erased or deleted is gone, a record in the chain says so, and all else stays."""

from __future__ import annotations

import pytest

from eventctx.errors import (
    InvalidSetting,
    LogCorrupted,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.log.record import chain_digest
from eventctx.log.store import NO_STREAM, Address, EventStore, Snapshot
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class DestroyingContract:
    """What is erased or deleted is gone, a record in the chain says so, and all else stays."""

    pytestmark = pytest.mark.asyncio

    async def test_an_erasure_appends_its_records_in_the_same_step(self, store: EventStore) -> None:
        await store.append("p", [make_draft("a"), make_draft("b")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("c"))
        notes = {"p": make_draft("note"), "f": make_draft("note of f")}
        done = await store.erase({"f": {Address(0): b"", Address(2): b""}}, notes)
        assert done.bodies == 2
        assert [(r.stream, r.position) for r in done.records] == [("p", 2), ("f", 3)]
        for name in ("p", "f"):
            check_chain(await gather(store.read(name)))
        assert (await anext(store.read("p"))).bodies[0].erased

    async def test_an_erasure_that_names_a_stream_which_is_not_there_changes_nothing(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft("a")], NO_STREAM)
        for error, bodies, notes in (
            (StreamNotFound, {"s": {Address(0): b""}}, {"nobody": make_draft("note")}),
            (LogCorrupted, {"s": {Address(0): b"", Address(9): b""}}, {"s": make_draft("note")}),
        ):
            with pytest.raises(error):
                await store.erase(bodies, notes)
            (record,) = await gather(store.read("s"))
            assert not record.bodies[0].erased

    async def test_a_deletion_leaves_one_record_that_follows_in_the_chain(
        self, store: EventStore
    ) -> None:
        done = await store.append("s", [make_draft("a", "b"), make_draft("c")], NO_STREAM)
        await store.append("other", [make_draft("d")], NO_STREAM)
        store.save_snapshot("s", "view", Snapshot(1, done.receipt.digest, 1, b"state"))
        last = make_draft("gone")
        record = await store.delete("s", last, 1)
        assert record.digest == chain_digest(done.receipt.digest, 2, last)
        assert [r.id for r in await gather(store.read("s"))] == [last.id]
        assert [r.stream for r in await gather(store.read_all())] == ["other", "s"]
        assert await store.load_snapshot("s", "view") is None
        info = await store.head("s")
        assert info is not None
        assert (info.head, info.digest) == (2, record.digest)
        inspection = await store.inspect()
        assert (inspection.findings, inspection.missing) == ((), 2)
        assert await store.scrubbed()

    async def test_a_deletion_expects_the_last_position_and_no_forks(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
        with pytest.raises(WrongExpectedVersion):
            await store.delete("s", make_draft("gone"), 0)
        with pytest.raises(StreamNotFound):
            await store.delete("nobody", make_draft("gone"), 0)
        await store.fork("s", 0, "f", make_draft("c"))
        with pytest.raises(InvalidSetting, match="'f'"):
            await store.delete("s", make_draft("gone"), 1)
        assert len(await gather(store.read("s"))) == 2
        await store.delete("f", make_draft("gone"), 1)
        assert len(await gather(store.read("s"))) == 2

    async def test_an_untouched_store_has_nothing_to_find(self, store: EventStore) -> None:
        await store.append("s", [make_draft("a", "b"), make_draft("c")], NO_STREAM)
        await store.fork("s", 0, "f", make_draft("d"))
        inspection = await store.inspect()
        assert (inspection.findings, inspection.missing) == ((), 0)
