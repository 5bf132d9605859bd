"""Reads of sessions in JetStream, from messages that were put there by hand."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.errors import LogCorrupted
from eventctx.log.record import Record
from eventctx.log.store import Address
from eventctx.stores.jetstream.layout import ErasedBody
from eventctx.stores.jetstream.owners import Positions
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.testing.store_contract.drafts import check_chain, make_draft
from tests.stores.jetstream.bare import Bare

pytestmark = pytest.mark.slow


async def read(reader: SessionReader, stream: str, **ranged: Any) -> list[Record]:
    scan = await reader.scan(stream, **ranged)
    found: list[Record] = []
    while page := await scan.page():
        found += page
    return found


@pytest.mark.parametrize("forgetful", [False, True], ids=["index", "no-index"])
async def test_any_range_is_read_in_both_directions(
    bare: Bare, reader: SessionReader, forgetful: bool
) -> None:
    count = 0
    for number in range(60):
        drafts = [make_draft(str(count + n)) for n in range(1 + number % 3)]
        await bare.append("s", drafts)
        await bare.append("noise", [make_draft() for _ in range(5)])
        count += len(drafts)
    everything = await read(reader, "s")
    check_chain(everything)
    assert [r.bodies[0].data for r in everything] == [str(n).encode() for n in range(count)]
    for ranged in (
        {"start": 3},
        {"stop": 7},
        {"start": 50, "stop": 60},
        {"start": 117},
        {"limit": 1},
        {"start": 99, "limit": 2},
    ):
        if forgetful:
            reader.positions = Positions(1)
        expected = everything[ranged.get("start", 0) : ranged.get("stop", count) + 1]
        limit = ranged.get("limit", count)
        assert await read(reader, "s", **ranged) == expected[:limit]
        if forgetful:
            reader.positions = Positions(1)
        assert await read(reader, "s", backward=True, **ranged) == expected[::-1][:limit]


async def test_an_erased_body_is_gone_from_the_moment_of_the_erasure(
    bare: Bare, reader: SessionReader
) -> None:
    await bare.append("s", [make_draft("a", "b"), make_draft("c")])
    await read(reader, "s")
    await bare.erase("s", [ErasedBody(0, 1, b"less")])
    (first, _) = await read(reader, "s")
    assert [(b.data, b.facts, b.erased) for b in first.bodies] == [
        (b"a", b"facts", False),
        (None, b"less", True),
    ]
    found = await reader.bodies("s", [Address(1), Address(0, 1), Address(0)])
    assert [body.data for body in found] == [b"c", None, b"a"]
    with pytest.raises(LogCorrupted):
        await reader.bodies("s", [Address(0, 2)])


async def test_what_the_leader_lacks_is_an_error_that_says_what_is_missing(
    bare: Bare, reader: SessionReader
) -> None:
    places = [await bare.append("s", [make_draft(str(n))]) for n in range(6)]
    await bare.remove(0, places[3])
    with pytest.raises(LogCorrupted, match=r"lacks 1 of the messages"):
        await read(reader, "s")
    await bare.allow(0, 1)
    with pytest.raises(LogCorrupted, match=r"records from 3 to 3 are missing"):
        await read(reader, "s")
    assert [r.position for r in await read(reader, "s", stop=2)] == [0, 1, 2]
    assert [r.position for r in await read(reader, "s", start=4)] == [4, 5]
    await bare.remove(0, places[5] + 1)
    await bare.allow(0, 2)
    with pytest.raises(LogCorrupted, match=r"content 0 is missing"):
        await read(reader, "s", start=4)


async def test_two_records_of_one_position_are_an_error(bare: Bare, reader: SessionReader) -> None:
    await bare.append("s", [make_draft("a")])
    after = bare.ends["s"]
    await bare.append("s", [make_draft("b")], after=after)
    await bare.append("s", [make_draft("other b")], after=after)
    await bare.append("s", [make_draft("c")])
    with pytest.raises(LogCorrupted, match="other records of its place"):
        await read(reader, "s")
