"""The contract of EventStore: appending, reading, forking, erasing. Run for every store."""

from __future__ import annotations

import msgspec
import pytest

from eventctx.errors import (
    EventctxError,
    InvalidSetting,
    LogCorrupted,
    StreamExists,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.record import Body
from eventctx.store import ANY, NO_STREAM, STREAM_EXISTS, Address, Receipt, Snapshot


async def test_an_append_returns_what_a_read_returns(store, draft, collect):
    drafts = [
        draft("one"),
        draft(),
        draft("a", "b" * 5000, "", "d"),
        draft(
            b"x" * 600_000,
            type="a type of tomorrow",
            version=7,
            turn_id="0123456789abcdef" * 2,
            span_id="00000000000000ff",
            parent_span_id="ABCDEF0123456789",
            iteration=3,
        ),
        draft("", turn_id="turn one", span_id="", iteration=0, payload=b"", time=-1),
    ]
    appended = await store.append("s", drafts, NO_STREAM)
    assert tuple(await collect(store.read("s"))) == appended.records
    for found, given in zip(appended.records, drafts, strict=True):
        fields = msgspec.structs.asdict(given)
        assert {name: getattr(found, name) for name in fields} == fields
    assert [record.position for record in appended.records] == [0, 1, 2, 3, 4]
    assert {record.stream for record in appended.records} == {"s"}
    assert appended.receipt == Receipt("s", 4, appended.records[-1].digest)


async def test_digests_chain_from_the_first_record_through_all_appends(
    store, draft, collect, chained
):
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    await store.append("s", [draft("c")], 1)
    await store.append("s", [draft("d", "e"), draft()], ANY)
    records = await collect(store.read("s"))
    assert len(records) == 5
    chained(records)


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
    store, draft, collect, exists, expected, accepted
):
    if exists:
        await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    before = await store.head("s")
    if accepted:
        await store.append("s", [draft("new")], expected)
        head = await store.head("s")
        assert head is not None
        assert head.head == (2 if exists else 0)
    else:
        with pytest.raises(WrongExpectedVersion):
            await store.append("s", [draft("new")], expected)
        assert await store.head("s") == before


async def test_a_conflict_names_both_versions_and_what_to_do(store, draft):
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    with pytest.raises(WrongExpectedVersion, match=r"expected version 0, found 1.*read") as caught:
        await store.append("s", [draft("c")], 0)
    assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("s", 0, 1)
    with pytest.raises(WrongExpectedVersion) as caught:
        await store.append("s", [draft("c")], NO_STREAM)
    assert (caught.value.expected, caught.value.actual) == ("no stream", 1)


async def test_a_batch_of_records_with_a_conflict_leaves_nothing(store, draft, collect):
    await store.append("s", [draft("a")], NO_STREAM)
    with pytest.raises(WrongExpectedVersion):
        await store.append("s", [draft("b"), draft("c"), draft("d")], 5)
    assert len(await collect(store.read("s"))) == 1
    with pytest.raises(WrongExpectedVersion):
        await store.append("other", [draft("b")], 5)
    assert await store.head("other") is None
    assert len(await collect(store.read_all())) == 1


async def test_a_bad_append_among_good_ones_fails_alone(store, draft, collect, chained):
    await store.append("s", [draft("a")], NO_STREAM)
    bad_id = draft("bad", id=b"short")
    bad_body = draft("bad", bodies=(Body(bytes(32), b"", None, None),))
    acks = [
        store.append("s", [draft("b")], 0),
        store.append("s", [draft("c"), bad_id], 1),
        store.append("s", [bad_body], 1),
        store.append("s", [], 1),
        store.append("s", [draft("x")], 77),
        store.append("s", [draft("late", time=2**70)], 1),
        store.append("s", [draft("text", turn_id="\ud800")], 1),
        store.append("t", [draft("d")], NO_STREAM),
        store.append("s", [draft("e")], 1),
    ]
    outcomes = []
    for ack in acks:
        try:
            outcomes.append((await ack).receipt.position)
        except EventctxError as error:
            outcomes.append(type(error))
    invalid = InvalidSetting
    assert outcomes == [
        1, invalid, invalid, invalid, WrongExpectedVersion, invalid, invalid, 0, 2,
    ]  # fmt: skip
    chained(await collect(store.read("s")))


@pytest.mark.parametrize("expected", [1, ANY, STREAM_EXISTS])
async def test_a_retry_after_a_lost_acknowledgement_returns_the_first_result(
    store, draft, collect, expected
):
    await store.append("s", [draft("a"), draft("b")], NO_STREAM)
    drafts = [draft("c", "d"), draft("e")]
    first = await store.append("s", drafts, expected)
    assert await store.append("s", drafts, expected) == first
    assert len(await collect(store.read("s"))) == 4


async def test_a_retry_of_the_first_append_of_a_stream_is_recognised_later_too(store, draft):
    drafts = [draft("a"), draft("b")]
    first = await store.append("s", drafts, NO_STREAM)
    await store.append("s", [draft("c")], 1)
    assert await store.append("s", drafts, NO_STREAM) == first
    assert await store.append("s", drafts, -1) == first


async def test_other_records_at_the_place_of_a_retry_are_a_conflict(store, draft):
    drafts = [draft("a"), draft("b")]
    await store.append("s", [drafts[0], draft("other")], NO_STREAM)
    for expected in (NO_STREAM, -1, 0):
        with pytest.raises(WrongExpectedVersion):
            await store.append("s", drafts, expected)


async def test_a_retry_of_many_large_records_is_recognised(store, draft):
    drafts = [draft(b"x" * 100_000) for _ in range(60)] + [draft("y") for _ in range(1500)]
    first = await store.append("s", drafts, NO_STREAM)
    assert await store.append("s", drafts, NO_STREAM) == first


@pytest.mark.parametrize("forked", [False, True], ids=["plain", "fork"])
async def test_a_read_returns_the_range_asked_for_in_the_order_asked_for(
    store, draft, collect, forked
):
    if forked:
        await store.append("root", [draft(str(n)) for n in range(8)], NO_STREAM)
        await store.fork("root", 2, "middle", draft("3"))
        await store.append("middle", [draft("4"), draft("5")], 3)
        await store.fork("middle", 4, "s", draft("5"))
        await store.append("s", [draft(str(n)) for n in range(6, 10)], 5)
    else:
        await store.append("s", [draft(str(n)) for n in range(10)], NO_STREAM)

    async def positions(**ranged):
        found = await collect(store.read("s", **ranged))
        assert [int(r.bodies[0].data) for r in found] == [r.position for r in found]
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


async def test_a_long_stream_is_read_whole_in_both_directions(store, draft, collect, chained):
    await store.append("s", [draft("x" * (n % 7)) for n in range(2500)], NO_STREAM)
    records = await collect(store.read("s"))
    assert len(records) == 2500
    chained(records)
    assert await collect(store.read("s", backward=True)) == records[::-1]
    assert await collect(store.read("s", start=7, limit=2222)) == records[7:2229]
    assert await collect(store.read_all()) == records


async def test_reading_without_bodies_leaves_out_data_and_salts_only(store, draft, collect):
    await store.append("s", [draft("a", "b"), draft(), draft("c" * 9000)], NO_STREAM)
    await store.erase("s", {Address(0, 1): b""})
    full = await collect(store.read("s"))
    lean = await collect(store.read("s", bodies=False))
    for with_data, without in zip(full, lean, strict=True):
        assert msgspec.structs.replace(with_data, bodies=()) == msgspec.structs.replace(
            without, bodies=()
        )
        assert [(b.digest, b.facts, b.erased) for b in with_data.bodies] == [
            (b.digest, b.facts, b.erased) for b in without.bodies
        ]
        assert all(b.data is None and b.salt is None for b in without.bodies)
    assert [b.erased for b in lean[0].bodies] == [False, True]
    assert await collect(store.read_all(bodies=False)) == lean


async def test_what_does_not_exist_is_said_so(store):
    assert await store.head("nothing") is None
    assert await store.streams() == []
    with pytest.raises(StreamNotFound, match="nothing"):
        await anext(store.read("nothing"))
    with pytest.raises(StreamNotFound):
        await store.bodies("nothing", [Address(0)])
    with pytest.raises(StreamNotFound):
        await store.erase("nothing", {Address(0): b""})


async def test_read_all_gives_every_record_once_in_rising_global_order(store, draft, collect):
    for n in range(4):
        await store.append("a", [draft(), draft()], n * 2 - 1)
        await store.append("b", [draft()], n - 1)
    await store.fork("a", 3, "c", draft())
    everything = await collect(store.read_all())
    assert [(r.stream, r.position) for r in everything] == [
        ("a", 0), ("a", 1), ("b", 0), ("a", 2), ("a", 3), ("b", 1),
        ("a", 4), ("a", 5), ("b", 2), ("a", 6), ("a", 7), ("b", 3), ("c", 4),
    ]  # fmt: skip
    places = [r.global_position for r in everything]
    assert places == sorted(set(places))
    assert places[0] >= 0
    assert await collect(store.read_all(after=places[4])) == everything[5:]
    assert await collect(store.read_all(after=places[4], limit=3)) == everything[5:8]
    assert await collect(store.read_all(after=places[-1])) == []


async def test_head_and_streams_tell_where_each_stream_stands(store, draft):
    first = await store.append("b", [draft(), draft()], NO_STREAM)
    second = await store.append("a", [draft()], NO_STREAM)
    third = await store.fork("b", 0, "c", draft())
    infos = await store.streams()
    assert [info.stream for info in infos] == ["b", "a", "c"]
    assert [(info.head, info.digest) for info in infos] == [
        (done.receipt.position, done.receipt.digest) for done in (first, second, third)
    ]
    assert [(info.parent, info.forked_at) for info in infos] == [(None, None)] * 2 + [("b", 0)]
    assert infos[0].created == first.records[0].time
    assert [await store.head(name) for name in ("b", "a", "c")] == infos


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_a_fork_reads_its_parents_records_up_to_the_fork_point(
    store, draft, collect, chained, at
):
    parent = await store.append("p", [draft("a"), draft("b"), draft("c")], NO_STREAM)
    child = await store.fork("p", at, "f", draft("mine"))
    assert child.receipt.position == at + 1
    await store.append("p", [draft("later")], 2)
    await store.append("f", [draft("mine too")], at + 1)
    records = await collect(store.read("f"))
    chained(records)
    assert [r.bodies[0].data for r in records] == [
        *[r.bodies[0].data for r in parent.records[: at + 1]], b"mine", b"mine too",
    ]  # fmt: skip
    assert {r.stream for r in records} == {"f"}
    assert [r.digest for r in records[: at + 1]] == [r.digest for r in parent.records[: at + 1]]


async def test_a_fork_needs_an_existing_stream_a_position_in_it_and_a_free_name(store, draft):
    await store.append("p", [draft(), draft()], NO_STREAM)
    await store.append("taken", [draft()], NO_STREAM)
    with pytest.raises(StreamNotFound):
        await store.fork("nothing", 0, "f", draft())
    with pytest.raises(StreamExists):
        await store.fork("p", 0, "taken", draft())
    for at in (-1, 2, 99):
        with pytest.raises(InvalidSetting, match="from 0 to 1"):
            await store.fork("p", at, "f", draft())
    assert await store.head("f") is None


async def test_a_retried_fork_returns_the_fork_and_another_one_is_refused(store, draft):
    await store.append("p", [draft(), draft()], NO_STREAM)
    first = draft("fork")
    done = await store.fork("p", 0, "f", first)
    assert await store.fork("p", 0, "f", first) == done
    with pytest.raises(StreamExists):
        await store.fork("p", 1, "f", first)
    with pytest.raises(StreamExists):
        await store.fork("p", 0, "f", draft())


async def test_forks_of_forks_at_any_point_read_like_copies(store, draft, collect, chained):
    await store.append("f0", [draft("0"), draft("1"), draft("2")], NO_STREAM)
    copies = {"f0": ["0", "1", "2"]}
    for depth in range(1, 40):
        parent, name = f"f{depth - 1}", f"f{depth}"
        # Every third fork is below its parent's own first record.
        at = len(copies[parent]) - (2 if depth % 3 else 4)
        await store.fork(parent, at, name, draft(f"{name} first"))
        await store.append(name, [draft(f"{name} second")], at + 1)
        copies[name] = [*copies[parent][: at + 1], f"{name} first", f"{name} second"]
    for name, texts in copies.items():
        records = await collect(store.read(name))
        chained(records)
        assert [r.bodies[0].data.decode() for r in records] == texts
        backward = await collect(store.read(name, backward=True, limit=3))
        assert backward == records[::-1][:3]


async def test_bodies_are_found_by_address_in_the_order_asked_for(store, draft):
    await store.append("p", [draft("a", "b", "c"), draft(), draft("d")], NO_STREAM)
    await store.fork("p", 2, "f", draft("e", "f"))
    wanted = [(3, 1), (0, 2), (2, 0), (0, 0), (0, 1), (3, 0), (0, 0)]
    found = await store.bodies("f", [Address(*place) for place in wanted])
    assert [body.data for body in found] == [b"f", b"c", b"d", b"a", b"b", b"e", b"a"]
    assert all(body.salt is not None and body.facts == b"facts" for body in found)
    assert await store.bodies("f", []) == []


@pytest.mark.parametrize("place", [(1, 0), (0, 3), (0, -1), (3, 0), (-1, 0), (2, 1)])
async def test_an_address_without_a_body_is_an_error(store, draft, place):
    await store.append("s", [draft("a", "b", "c"), draft(), draft("d")], NO_STREAM)
    with pytest.raises(LogCorrupted):
        await store.bodies("s", [Address(*place)])
    with pytest.raises(LogCorrupted):
        await store.erase("s", {Address(0): b"", Address(*place): b""})
    (first,) = await store.bodies("s", [Address(0)])
    assert first.data == b"a"


async def test_an_erased_body_keeps_its_digest_and_the_chain_verifies(
    store, draft, collect, chained
):
    await store.append("s", [draft("a", "b"), draft("c")], NO_STREAM)
    before = await collect(store.read("s"))
    assert await store.erase("s", {Address(0, 1): b"", Address(1): b""}) == 2
    assert await store.erase("s", {Address(0, 0): b"", Address(1): b""}) == 1
    after = await collect(store.read("s"))
    chained(after)
    assert [r.digest for r in after] == [r.digest for r in before]
    for old, new in zip(before, after, strict=True):
        for was, body in zip(old.bodies, new.bodies, strict=True):
            assert body == Body(was.digest, b"", None, None, True)
    assert await store.bodies("s", [Address(1)]) == [after[1].bodies[0]]


async def test_an_erased_body_keeps_the_facts_that_it_is_given(store, draft, collect, chained):
    await store.append("s", [draft("a", "b"), draft("c")], NO_STREAM)
    assert await store.erase("s", {Address(0, 1): b"less", Address(1): b"little"}) == 2
    after = await collect(store.read("s", bodies=False))
    chained(after)
    assert [body.facts for record in after for body in record.bodies] == [
        b"facts",
        b"less",
        b"little",
    ]


async def test_an_erasure_reaches_the_parent_and_all_its_forks(store, draft, collect):
    await store.append("p", [draft("secret"), draft("b")], NO_STREAM)
    await store.fork("p", 1, "f", draft("c"))
    await store.fork("f", 0, "g", draft("d"))
    assert await store.erase("f", {Address(0): b""}) == 1
    for name in ("p", "f", "g"):
        first = await anext(store.read(name))
        assert first.bodies[0].erased
        assert first.bodies[0].data is None
    assert [r.bodies[0].data for r in await collect(store.read_all())] == [None, b"b", b"c", b"d"]


async def test_an_erased_body_can_be_copied_to_another_stream(store, draft, collect):
    erased = Body(bytes(range(32)), b"", None, None, True)
    copied = await store.append("s", [draft(bodies=(erased, erased))], NO_STREAM)
    assert tuple(await collect(store.read("s"))) == copied.records
    assert copied.records[0].bodies == (erased, erased)


async def test_a_snapshot_is_kept_until_the_next_of_its_name(store, draft):
    done = await store.append("s", [draft("a")], NO_STREAM)
    first = Snapshot(0, done.receipt.digest, 1, b"state")
    second = Snapshot(0, done.receipt.digest, 2, b"newer state")
    assert await store.load_snapshot("s", "transcript") is None
    store.save_snapshot("s", "transcript", first)
    store.save_snapshot("s", "usage", second)
    store.save_snapshot("nothing", "transcript", first)
    await store.append("s", [draft("b")], 0)
    assert await store.load_snapshot("s", "transcript") == first
    assert await store.load_snapshot("s", "usage") == second
    assert await store.load_snapshot("nothing", "transcript") is None
    store.save_snapshot("s", "transcript", second)
    await store.append("s", [draft("c")], 1)
    assert await store.load_snapshot("s", "transcript") == second


async def test_an_erasure_drops_the_snapshots_that_may_hold_the_content(store, draft):
    await store.append("p", [draft("secret"), draft("b")], NO_STREAM)
    await store.append("other", [draft("c")], NO_STREAM)
    await store.fork("p", 1, "f", draft("mine"))
    for name in ("p", "f", "other"):
        store.save_snapshot(name, "view", Snapshot(0, bytes(32), 1, b"secret, folded"))
    await store.erase("f", {Address(2): b""})
    assert await store.load_snapshot("f", "view") is None
    assert await store.load_snapshot("p", "view") is not None
    store.save_snapshot("f", "view", Snapshot(0, bytes(32), 1, b"secret, folded"))
    await store.erase("f", {Address(0): b""})
    assert await store.load_snapshot("p", "view") is None
    assert await store.load_snapshot("f", "view") is None
    assert await store.load_snapshot("other", "view") is not None


async def test_a_checkpoint_is_kept_under_its_name(store):
    assert await store.load_checkpoint("log") is None
    await store.save_checkpoint("log", 5)
    await store.save_checkpoint("trace", 7)
    await store.save_checkpoint("log", 6)
    assert await store.load_checkpoint("log") == 6
    assert await store.load_checkpoint("trace") == 7
