"""Reads of a store: ranges, whole streams, forks, heads, contents by address."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eventctx.errors import (
    InvalidSetting,
    LogCorrupted,
    StreamExists,
    StreamNotFound,
)
from eventctx.log.store import NO_STREAM, Address, EventStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class ReadingContract:
    """Reads of a store: ranges, whole streams, heads, contents by address."""

    pytestmark = pytest.mark.asyncio

    async def test_a_peek_tells_the_last_durable_position_or_nothing_at_all(
        self, store: EventStore
    ) -> None:
        peek = getattr(store, "peek", None)
        if peek is None:
            pytest.skip("this store offers no peek: see eventctx.log.store.PeekingStore")

        async def agrees(stream: str) -> None:
            info = await store.head(stream)
            assert peek(stream) in (None, -1 if info is None else info.head)

        await agrees("nowhere")
        await store.append("s", [make_draft(), make_draft()], NO_STREAM)
        await agrees("s")
        for last in range(1, 20):
            await store.append("s", [make_draft()], last)
            await agrees("s")
        await store.fork("s", 7, "f", make_draft())
        await agrees("f")
        await store.append("f", [make_draft()], 8)
        await store.append("s", [make_draft()], 20)
        await agrees("f")
        await agrees("s")
        await store.delete("f", make_draft(), 9)
        await agrees("f")
        await store.close()
        assert peek("s") is None

    @pytest.mark.parametrize("forked", [False, True], ids=["plain", "fork"])
    async def test_a_read_returns_the_range_asked_for_in_the_order_asked_for(
        self, store: EventStore, forked: bool
    ) -> None:
        if forked:
            await store.append("root", [make_draft(str(n)) for n in range(8)], NO_STREAM)
            await store.fork("root", 2, "middle", make_draft("3"))
            await store.append("middle", [make_draft("4"), make_draft("5")], 3)
            await store.fork("middle", 4, "s", make_draft("5"))
            await store.append("s", [make_draft(str(n)) for n in range(6, 10)], 5)
        else:
            await store.append("s", [make_draft(str(n)) for n in range(10)], NO_STREAM)

        async def positions(**ranged: Any) -> list[int]:
            found = await gather(store.read("s", **ranged))
            assert [int(r.bodies[0].data or b"") for r in found] == [r.position for r in found]
            assert {r.stream for r in found} <= {"s"}
            return [r.position for r in found]

        everything = list(range(10))
        assert await positions() == everything
        assert await positions(backward=True) == everything[::-1]
        assert await positions(start=3) == everything[3:]
        assert await positions(stop=3) == everything[:4]
        assert await positions(start=2, stop=5) == [2, 3, 4, 5]
        assert await positions(start=2, stop=5, backward=True) == [5, 4, 3, 2]
        assert await positions(limit=3) == [0, 1, 2]
        assert await positions(start=1, limit=3) == [1, 2, 3]
        assert await positions(limit=3, backward=True) == [9, 8, 7]
        assert await positions(start=1, stop=6, limit=4, backward=True) == [6, 5, 4, 3]
        assert await positions(start=9, stop=99) == [9]
        assert await positions(start=-5, stop=0) == [0]
        assert await positions(start=10) == []
        assert await positions(start=5, stop=4) == []
        assert await positions(stop=-1) == []
        assert await positions(limit=0) == []

    async def test_a_long_stream_is_read_whole_in_both_directions(self, store: EventStore) -> None:
        await store.append("s", [make_draft("x" * (n % 7)) for n in range(2500)], NO_STREAM)
        records = await gather(store.read("s"))
        assert len(records) == 2500
        check_chain(records)
        assert await gather(store.read("s", backward=True)) == records[::-1]
        assert await gather(store.read("s", start=7, limit=2222)) == records[7:2229]
        assert await gather(store.read_all()) == records

    async def test_reading_without_bodies_leaves_out_data_and_salts_only(
        self, store: EventStore
    ) -> None:
        await store.append(
            "s", [make_draft("a", "b"), make_draft(), make_draft("c" * 9000)], NO_STREAM
        )
        await store.erase({"s": {Address(0, 1): b""}})
        full = await gather(store.read("s"))
        lean = await gather(store.read("s", bodies=False))
        for with_data, without in zip(full, lean, strict=True):
            assert msgspec.structs.replace(with_data, bodies=()) == msgspec.structs.replace(
                without, bodies=()
            )
            assert [(b.digest, b.facts, b.erased) for b in with_data.bodies] == [
                (b.digest, b.facts, b.erased) for b in without.bodies
            ]
            assert all(b.data is None and b.salt is None for b in without.bodies)
        assert [b.erased for b in lean[0].bodies] == [False, True]
        assert await gather(store.read_all(bodies=False)) == lean

    async def test_what_does_not_exist_is_said_so(self, store: EventStore) -> None:
        assert await store.head("nothing") is None
        assert await gather(store.streams()) == []
        with pytest.raises(StreamNotFound, match="nothing"):
            await anext(store.read("nothing"))
        with pytest.raises(StreamNotFound):
            await store.bodies("nothing", [Address(0)])
        with pytest.raises(StreamNotFound):
            await store.erase({"nothing": {Address(0): b""}})

    async def test_read_all_gives_every_record_once_in_rising_global_order(
        self, store: EventStore
    ) -> None:
        for n in range(4):
            await store.append("a", [make_draft(), make_draft()], n * 2 - 1)
            await store.append("b", [make_draft()], n - 1)
        await store.fork("a", 3, "c", make_draft())
        everything = await gather(store.read_all())
        assert [(r.stream, r.position) for r in everything] == [
            ("a", 0), ("a", 1), ("b", 0), ("a", 2), ("a", 3), ("b", 1),
            ("a", 4), ("a", 5), ("b", 2), ("a", 6), ("a", 7), ("b", 3), ("c", 4),
        ]  # fmt: skip
        places = [r.global_position for r in everything]
        assert places == sorted(set(places))
        assert places[0] >= 0
        assert await gather(store.read_all(after=places[4])) == everything[5:]
        assert await gather(store.read_all(after=places[4], limit=3)) == everything[5:8]
        assert await gather(store.read_all(after=places[-1])) == []

    async def test_head_and_streams_tell_where_each_stream_stands(self, store: EventStore) -> None:
        first = await store.append("b", [make_draft(), make_draft()], NO_STREAM)
        second = await store.append("a", [make_draft()], NO_STREAM)
        third = await store.fork("b", 0, "c", make_draft())
        infos = await gather(store.streams())
        assert [info.stream for info in infos] == ["b", "a", "c"]
        assert [(info.head, info.digest) for info in infos] == [
            (done.receipt.position, done.receipt.digest) for done in (first, second, third)
        ]
        assert [(info.parent, info.forked_at) for info in infos] == [(None, None)] * 2 + [("b", 0)]
        assert infos[0].created == first.records[0].time
        assert [await store.head(name) for name in ("b", "a", "c")] == infos

    async def test_streams_come_in_pages_that_begin_behind_any_stream(
        self, store: EventStore
    ) -> None:
        names = [f"s{n:02}" for n in range(12)][::-1]
        for name in names:
            await store.append(name, [make_draft()], NO_STREAM)
        await store.delete("s05", make_draft(type="session:deleted"), 0)

        async def page(after: str | None, limit: int | None) -> list[str]:
            return [info.stream async for info in store.streams(after=after, limit=limit)]

        assert await page(None, None) == names
        assert await page(None, 5) == names[:5]
        assert await page("s05", 3) == ["s04", "s03", "s02"]
        assert await page("s01", 3) == ["s00"]
        assert await page("s00", None) == await page(None, 0) == []
        with pytest.raises(StreamNotFound, match="nothing"):
            await page("nothing", 1)

    async def test_the_forks_of_a_stream_are_those_made_of_it_directly(
        self, store: EventStore
    ) -> None:
        await store.append("a", [make_draft(), make_draft()], NO_STREAM)
        for new, of in (("z", "a"), ("b", "a"), ("c", "b")):
            await store.fork(of, 0, new, make_draft())
        assert [await store.forks(name) for name in ("a", "b", "c")] == [["z", "b"], ["c"], []]
        await store.delete("z", make_draft(type="session:deleted"), 1)
        assert await store.forks("a") == ["b"]
        with pytest.raises(StreamNotFound, match="nothing"):
            await store.forks("nothing")

    async def test_a_description_says_what_an_acknowledged_append_survives(
        self, store: EventStore
    ) -> None:
        found = await store.describe()
        assert found.kind and found.place and found.server
        assert found.survives in ("nothing", "process", "power cut", "loss of a machine")
        assert all(type(name) is type(value) is str for name, value in found.facts.items())

    async def test_bodies_are_found_by_address_in_the_order_asked_for(
        self, store: EventStore
    ) -> None:
        await store.append(
            "p", [make_draft("a", "b", "c"), make_draft(), make_draft("d")], NO_STREAM
        )
        await store.fork("p", 2, "f", make_draft("e", "f"))
        wanted = [(3, 1), (0, 2), (2, 0), (0, 0), (0, 1), (3, 0), (0, 0)]
        found = await store.bodies("f", [Address(*place) for place in wanted])
        assert [body.data for body in found] == [b"f", b"c", b"d", b"a", b"b", b"e", b"a"]
        assert all(body.salt is not None and body.facts == b"facts" for body in found)
        assert await store.bodies("f", []) == []

    @pytest.mark.parametrize("place", [(1, 0), (0, 3), (0, -1), (3, 0), (-1, 0), (2, 1)])
    async def test_an_address_without_a_body_is_an_error(
        self, store: EventStore, place: tuple[int, int]
    ) -> None:
        await store.append(
            "s", [make_draft("a", "b", "c"), make_draft(), make_draft("d")], NO_STREAM
        )
        with pytest.raises(LogCorrupted):
            await store.bodies("s", [Address(*place)])
        with pytest.raises(LogCorrupted):
            await store.erase({"s": {Address(0): b"", Address(*place): b""}})
        (first,) = await store.bodies("s", [Address(0)])
        assert first.data == b"a"


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
