"""Erased and deleted contents are gone, snapshots and checkpoints stay."""

from __future__ import annotations

import pytest

from eventctx.errors import (
    InvalidSetting,
    LogCorrupted,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.log.record import Body, chain_digest
from eventctx.log.store import NO_STREAM, Address, EventStore, Snapshot
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class KeepingContract:
    """Erased bodies, and the data kept with the records: snapshots and checkpoints."""

    pytestmark = pytest.mark.asyncio

    async def test_an_erased_body_keeps_its_digest_and_the_chain_verifies(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft("a", "b"), make_draft("c")], NO_STREAM)
        before = await gather(store.read("s"))
        assert (await store.erase({"s": {Address(0, 1): b"", Address(1): b""}})).bodies == 2
        assert (await store.erase({"s": {Address(0, 0): b"", Address(1): b""}})).bodies == 1
        after = await gather(store.read("s"))
        check_chain(after)
        assert [r.digest for r in after] == [r.digest for r in before]
        for old, new in zip(before, after, strict=True):
            for was, body in zip(old.bodies, new.bodies, strict=True):
                assert body == Body(was.digest, b"", None, None, True)
        assert await store.bodies("s", [Address(1)]) == [after[1].bodies[0]]

    async def test_an_erased_body_keeps_the_facts_that_it_is_given(self, store: EventStore) -> None:
        await store.append("s", [make_draft("a", "b"), make_draft("c")], NO_STREAM)
        assert (
            await store.erase({"s": {Address(0, 1): b"less", Address(1): b"little"}})
        ).bodies == 2
        after = await gather(store.read("s", bodies=False))
        check_chain(after)
        assert [body.facts for record in after for body in record.bodies] == [
            b"facts",
            b"less",
            b"little",
        ]

    async def test_an_erasure_reaches_the_parent_and_all_its_forks(self, store: EventStore) -> None:
        await store.append("p", [make_draft("secret"), make_draft("b")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("c"))
        await store.fork("f", 0, "g", make_draft("d"))
        assert (await store.erase({"f": {Address(0): b""}})).bodies == 1
        for name in ("p", "f", "g"):
            first = await anext(store.read(name))
            assert first.bodies[0].erased
            assert first.bodies[0].data is None
        assert [r.bodies[0].data for r in await gather(store.read_all())] == [
            None,
            b"b",
            b"c",
            b"d",
        ]

    async def test_an_erased_body_can_be_copied_to_another_stream(self, store: EventStore) -> None:
        erased = Body(bytes(range(32)), b"", None, None, True)
        copied = await store.append("s", [make_draft(bodies=(erased, erased))], NO_STREAM)
        assert tuple(await gather(store.read("s"))) == copied.records
        assert copied.records[0].bodies == (erased, erased)

    async def test_a_snapshot_is_kept_until_the_next_of_its_name(self, store: EventStore) -> None:
        done = await store.append("s", [make_draft("a")], NO_STREAM)
        first = Snapshot(0, done.receipt.digest, 1, b"state")
        second = Snapshot(0, done.receipt.digest, 2, b"newer state")
        assert await store.load_snapshot("s", "transcript") is None
        store.save_snapshot("s", "transcript", first)
        store.save_snapshot("s", "usage", second)
        store.save_snapshot("nothing", "transcript", first)
        await store.append("s", [make_draft("b")], 0)
        assert await store.load_snapshot("s", "transcript") == first
        assert await store.load_snapshot("s", "usage") == second
        assert await store.load_snapshot("nothing", "transcript") is None
        store.save_snapshot("s", "transcript", second)
        await store.append("s", [make_draft("c")], 1)
        assert await store.load_snapshot("s", "transcript") == second

    async def test_an_erasure_drops_the_snapshots_that_may_hold_the_content(
        self, store: EventStore
    ) -> None:
        await store.append("p", [make_draft("secret"), make_draft("b")], NO_STREAM)
        await store.append("other", [make_draft("c")], NO_STREAM)
        await store.fork("p", 1, "f", make_draft("mine"))
        for name in ("p", "f", "other"):
            store.save_snapshot(name, "view", Snapshot(0, bytes(32), 1, b"secret, folded"))
        await store.erase({"f": {Address(2): b""}})
        assert await store.load_snapshot("f", "view") is None
        assert await store.load_snapshot("p", "view") is not None
        store.save_snapshot("f", "view", Snapshot(0, bytes(32), 1, b"secret, folded"))
        await store.erase({"f": {Address(0): b""}})
        assert await store.load_snapshot("p", "view") is None
        assert await store.load_snapshot("f", "view") is None
        assert await store.load_snapshot("other", "view") is not None

    async def test_a_checkpoint_is_kept_under_its_name(self, store: EventStore) -> None:
        assert await store.load_checkpoint("log") is None
        await store.save_checkpoint("log", 5)
        await store.save_checkpoint("trace", 7)
        await store.save_checkpoint("log", 6)
        assert await store.load_checkpoint("log") == 6
        assert await store.load_checkpoint("trace") == 7


class DestroyingContract:
    """Erased and deleted contents are gone, a record in the chain says so, and all else stays."""

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
