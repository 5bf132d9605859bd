"""Names and forms of what lies in JetStream: what is written is what is read."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from eventctx.log.record import Body
from eventctx.stores.jetstream.layout import (
    Names,
    joined_body,
    name_of,
    part_of,
    split_body,
    token,
)


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
