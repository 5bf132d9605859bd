"""A fork reads like a copy, and nothing is copied."""

from __future__ import annotations

import pytest

from eventctx.errors import (
    InvalidSetting,
    StreamExists,
    StreamNotFound,
)
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class ForkingContract:
    """A fork reads like a copy, and nothing is copied."""

    pytestmark = pytest.mark.asyncio

    @pytest.mark.parametrize("at", [0, 1, 2])
    async def test_a_fork_reads_its_parents_records_up_to_the_fork_point(
        self, store: EventStore, at: int
    ) -> None:
        parent = await store.append(
            "p", [make_draft("a"), make_draft("b"), make_draft("c")], NO_STREAM
        )
        child = await store.fork("p", at, "f", make_draft("mine"))
        assert child.receipt.position == at + 1
        await store.append("p", [make_draft("later")], 2)
        await store.append("f", [make_draft("mine too")], at + 1)
        records = await gather(store.read("f"))
        check_chain(records)
        assert [r.bodies[0].data for r in records] == [
            *[r.bodies[0].data for r in parent.records[: at + 1]], b"mine", b"mine too",
        ]  # fmt: skip
        assert {r.stream for r in records} == {"f"}
        assert [r.digest for r in records[: at + 1]] == [r.digest for r in parent.records[: at + 1]]

    async def test_a_fork_needs_an_existing_stream_a_position_in_it_and_a_free_name(
        self, store: EventStore
    ) -> None:
        await store.append("p", [make_draft(), make_draft()], NO_STREAM)
        await store.append("taken", [make_draft()], NO_STREAM)
        with pytest.raises(StreamNotFound):
            await store.fork("nothing", 0, "f", make_draft())
        with pytest.raises(StreamExists):
            await store.fork("p", 0, "taken", make_draft())
        for at in (-1, 2, 99):
            with pytest.raises(InvalidSetting, match="from 0 to 1"):
                await store.fork("p", at, "f", make_draft())
        assert await store.head("f") is None

    async def test_a_retried_fork_returns_the_fork_and_another_one_is_refused(
        self, store: EventStore
    ) -> None:
        await store.append("p", [make_draft(), make_draft()], NO_STREAM)
        first = make_draft("fork")
        done = await store.fork("p", 0, "f", first)
        assert await store.fork("p", 0, "f", first) == done
        with pytest.raises(StreamExists):
            await store.fork("p", 1, "f", first)
        with pytest.raises(StreamExists):
            await store.fork("p", 0, "f", make_draft())

    async def test_forks_of_forks_at_any_point_read_like_copies(self, store: EventStore) -> None:
        await store.append("f0", [make_draft("0"), make_draft("1"), make_draft("2")], NO_STREAM)
        copies = {"f0": ["0", "1", "2"]}
        for depth in range(1, 40):
            parent, name = f"f{depth - 1}", f"f{depth}"
            # Every third fork is below its parent's own first record.
            at = len(copies[parent]) - (2 if depth % 3 else 4)
            await store.fork(parent, at, name, make_draft(f"{name} first"))
            await store.append(name, [make_draft(f"{name} second")], at + 1)
            copies[name] = [*copies[parent][: at + 1], f"{name} first", f"{name} second"]
        for name, texts in copies.items():
            records = await gather(store.read(name))
            check_chain(records)
            assert [r.bodies[0].data for r in records] == [text.encode() for text in texts]
            backward = await gather(store.read(name, backward=True, limit=3))
            assert backward == records[::-1][:3]
