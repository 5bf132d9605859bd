"""Names and forms of what lies in JetStream: what is written is what is read."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.log.record import Body, Draft, make_body
from eventctx.stores.jetstream.append import UnitAppend, pack, records_of
from eventctx.stores.jetstream.connection import EXPECTED
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    FACTS,
    UNIT_RECORDS,
    Names,
    decode_unit,
    joined_body,
    name_of,
    part_of,
    places,
    split_body,
    split_unit,
    token,
)
from eventctx.testing.store_contract.drafts import make_draft


@given(st.text())
def test_any_name_is_one_token_and_comes_back(name: str) -> None:
    written = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", written)
    assert name_of(written) == name


@given(st.text(), st.text())
def test_two_names_never_share_a_token(one: str, other: str) -> None:
    assert (token(one) == token(other)) is (one == other)


@given(st.integers(1, 256), st.integers(0, 255), st.integers(0, 2**40), st.integers(0, 1023))
def test_a_global_position_tells_its_place(
    shards: int, shard: int, sequence: int, ordinal: int
) -> None:
    names = Names("N", shards)
    shard %= shards
    position = names.global_position(shard, sequence, ordinal)
    assert names.place(position) == (shard, sequence, ordinal)


def test_the_sessions_of_a_store_spread_over_its_shards() -> None:
    names = Names("N", 4)
    counts = [0] * 4
    for number in range(4000):
        counts[names.shard(f"session {number}")] += 1
    assert all(900 < count < 1100 for count in counts)


@given(
    st.binary(max_size=5000),
    st.binary(max_size=3000),
    st.binary(max_size=40),
    st.sampled_from([300, 1000, 70_000]),
)
def test_a_body_in_any_number_of_messages_comes_back(
    data: bytes, facts: bytes, salt: bytes, most: int
) -> None:
    body = Body(b"d" * 32, facts, data, salt)
    messages = split_body(body, most)
    assert joined_body(body.digest, messages) == body
    assert [part_of(message.headers) for message in messages] == [
        (number, len(messages)) for number in range(1, len(messages) + 1)
    ]


def test_a_body_that_was_erased_before_it_came_stays_so() -> None:
    body = Body(b"d" * 32, b"facts", erased=True)
    assert joined_body(body.digest, split_body(body, 2**20)) == body


def test_no_message_is_larger_than_the_servers_take() -> None:
    body = make_body(os.urandom(5_000_000), os.urandom(300_000), os.urandom)
    for message in split_body(body, 2**20):
        headers = sum(len(name) + len(value) + 4 for name, value in message.headers.items())
        assert headers < 2**16
        assert headers + len(message.payload) < 2**20
    for message in split_unit(os.urandom(3_000_000), 2**20):
        assert len(message.payload) <= 2**20 - 4096


def drafts_and_digests(drafts: list[Draft]) -> UnitAppend:
    """Drafts at the beginning of a session, with digests that tell their number."""
    digests = [number.to_bytes(32, "big") for number in range(len(drafts))]
    return UnitAppend("s", 0, drafts, digests)


def test_the_bodies_of_a_unit_lie_directly_behind_it() -> None:
    large = make_draft(os.urandom(2_500_000), "b")
    placed = drafts_and_digests([make_draft("a", "b"), make_draft(), large])
    packed = pack(Names("N", 1), placed, 2**20)
    ((unit, offset),) = packed.units
    assert offset == 0
    assert decode_unit(packed.messages[0].payload) == unit
    found = list(places(unit, 100))
    assert [(place.position, place.number) for place in found] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert [(place.sequence, place.messages) for place in found] == [
        (101, 1), (102, 1), (103, 3), (106, 1),
    ]  # fmt: skip
    assert len(packed.messages) == 7
    assert all(FACTS in packed.messages[place.sequence - 100].headers for place in found)


def test_many_records_are_several_units_of_rising_global_positions() -> None:
    placed = drafts_and_digests([make_draft() for _ in range(2 * UNIT_RECORDS + 1)])
    names = Names("N", 1)
    packed = pack(names, placed, 2**20)
    assert len(packed.units) > 2
    assert all(len(unit.records) <= UNIT_RECORDS for unit, _ in packed.units)
    assert sum(len(unit.records) for unit, _ in packed.units) == len(placed.drafts)
    records = records_of(names, placed, packed.units, 7)
    positions = [record.global_position for record in records]
    assert positions == sorted(set(positions))
    assert [record.position for record in records] == list(range(len(records)))


@pytest.mark.parametrize(("bodies", "fits"), [(BATCH_MESSAGES - 20, True), (BATCH_MESSAGES, False)])
def test_an_append_of_too_many_messages_does_not_fit_a_batch(bodies: int, fits: bool) -> None:
    packed = pack(Names("N", 1), drafts_and_digests([make_draft(*["x"] * bodies)]), 2**20)
    assert packed.fits is fits
    assert all(EXPECTED not in message.headers for message in packed.messages)
