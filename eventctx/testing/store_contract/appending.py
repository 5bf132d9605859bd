"""Appends that a store accepts, refuses, and recognises as made before."""

from __future__ import annotations

import msgspec
import pytest

from eventctx.errors import (
    EventctxError,
    InvalidSetting,
    WrongExpectedVersion,
)
from eventctx.log.record import Body
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, EventStore, Expected, Receipt
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft


class AppendingContract:
    """Appends that a store accepts, refuses, and recognises as made before."""

    pytestmark = pytest.mark.asyncio

    async def test_an_append_returns_what_a_read_returns(self, store: EventStore) -> None:
        drafts = [
            make_draft("one"),
            make_draft(),
            make_draft("a", "b" * 5000, "", "d"),
            make_draft(
                b"x" * 600_000,
                type="a type of tomorrow",
                version=7,
                turn_id="0123456789abcdef" * 2,
                span_id="00000000000000ff",
                parent_span_id="ABCDEF0123456789",
                iteration=3,
            ),
            make_draft("", turn_id="turn one", span_id="", iteration=0, payload=b"", time=-1),
        ]
        appended = await store.append("s", drafts, NO_STREAM)
        assert tuple(await gather(store.read("s"))) == appended.records
        for found, given in zip(appended.records, drafts, strict=True):
            fields = msgspec.structs.asdict(given)
            assert {name: getattr(found, name) for name in fields} == fields
        assert [record.position for record in appended.records] == [0, 1, 2, 3, 4]
        assert {record.stream for record in appended.records} == {"s"}
        assert appended.receipt == Receipt("s", 4, appended.records[-1].digest)

    async def test_digests_chain_from_the_first_record_through_all_appends(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
        await store.append("s", [make_draft("c")], 1)
        await store.append("s", [make_draft("d", "e"), make_draft()], ANY)
        records = await gather(store.read("s"))
        assert len(records) == 5
        check_chain(records)

    @pytest.mark.parametrize(
        ("exists", "expected", "accepted"),
        [
            (False, NO_STREAM, True),
            (False, ANY, True),
            (False, -1, True),
            (False, STREAM_EXISTS, False),
            (False, 0, False),
            (True, NO_STREAM, False),
            (True, ANY, True),
            (True, STREAM_EXISTS, True),
            (True, -1, False),
            (True, 0, False),
            (True, 1, True),
            (True, 2, False),
        ],
    )
    async def test_an_append_is_accepted_only_on_the_expected_version(
        self, store: EventStore, exists: bool, expected: Expected, accepted: bool
    ) -> None:
        if exists:
            await store.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
        before = await store.head("s")
        if accepted:
            await store.append("s", [make_draft("new")], expected)
            head = await store.head("s")
            assert head is not None
            assert head.head == (2 if exists else 0)
        else:
            with pytest.raises(WrongExpectedVersion):
                await store.append("s", [make_draft("new")], expected)
            assert await store.head("s") == before

    async def test_a_conflict_names_both_versions_and_what_to_do(self, store: EventStore) -> None:
        await store.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
        with pytest.raises(
            WrongExpectedVersion, match=r"expected version 0, found 1.*read"
        ) as caught:
            await store.append("s", [make_draft("c")], 0)
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("s", 0, 1)
        with pytest.raises(WrongExpectedVersion) as caught:
            await store.append("s", [make_draft("c")], NO_STREAM)
        assert (caught.value.expected, caught.value.actual) == ("no stream", 1)

    async def test_a_batch_of_records_with_a_conflict_leaves_nothing(
        self, store: EventStore
    ) -> None:
        await store.append("s", [make_draft("a")], NO_STREAM)
        with pytest.raises(WrongExpectedVersion):
            await store.append("s", [make_draft("b"), make_draft("c"), make_draft("d")], 5)
        assert len(await gather(store.read("s"))) == 1
        with pytest.raises(WrongExpectedVersion):
            await store.append("other", [make_draft("b")], 5)
        assert await store.head("other") is None
        assert len(await gather(store.read_all())) == 1

    async def test_a_bad_append_among_good_ones_fails_alone(self, store: EventStore) -> None:
        await store.append("s", [make_draft("a")], NO_STREAM)
        bad_id = make_draft("bad", id=b"short")
        bad_body = make_draft("bad", bodies=(Body(bytes(32), b"", None, None),))
        acks = [
            store.append("s", [make_draft("b")], 0),
            store.append("s", [make_draft("c"), bad_id], 1),
            store.append("s", [bad_body], 1),
            store.append("s", [], 1),
            store.append("s", [make_draft("x")], 77),
            store.append("s", [make_draft("late", time=2**70)], 1),
            store.append("s", [make_draft("text", turn_id="\ud800")], 1),
            store.append("t", [make_draft("d")], NO_STREAM),
            store.append("s", [make_draft("e")], 1),
        ]
        outcomes: list[object] = []
        for ack in acks:
            try:
                outcomes.append((await ack).receipt.position)
            except EventctxError as error:
                outcomes.append(type(error))
        invalid = InvalidSetting
        assert outcomes == [
            1, invalid, invalid, invalid, WrongExpectedVersion, invalid, invalid, 0, 2,
        ]  # fmt: skip
        check_chain(await gather(store.read("s")))

    @pytest.mark.parametrize("expected", [1, ANY, STREAM_EXISTS])
    async def test_a_retry_after_a_lost_acknowledgement_returns_the_first_result(
        self, store: EventStore, expected: Expected
    ) -> None:
        await store.append("s", [make_draft("a"), make_draft("b")], NO_STREAM)
        drafts = [make_draft("c", "d"), make_draft("e")]
        first = await store.append("s", drafts, expected)
        assert await store.append("s", drafts, expected) == first
        assert len(await gather(store.read("s"))) == 4

    async def test_a_retry_of_the_first_append_of_a_stream_is_recognised_later_too(
        self, store: EventStore
    ) -> None:
        drafts = [make_draft("a"), make_draft("b")]
        first = await store.append("s", drafts, NO_STREAM)
        await store.append("s", [make_draft("c")], 1)
        assert await store.append("s", drafts, NO_STREAM) == first
        assert await store.append("s", drafts, -1) == first

    async def test_other_records_at_the_place_of_a_retry_are_a_conflict(
        self, store: EventStore
    ) -> None:
        drafts = [make_draft("a"), make_draft("b")]
        await store.append("s", [drafts[0], make_draft("other")], NO_STREAM)
        for expected in (NO_STREAM, -1, 0):
            with pytest.raises(WrongExpectedVersion):
                await store.append("s", drafts, expected)

    async def test_a_retry_of_many_large_records_is_recognised(self, store: EventStore) -> None:
        drafts = [make_draft(b"x" * 100_000) for _ in range(60)] + [
            make_draft("y") for _ in range(1500)
        ]
        first = await store.append("s", drafts, NO_STREAM)
        assert await store.append("s", drafts, NO_STREAM) == first
