"""The chain of digests: fixed for all time, and different for every different record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.log.record import GENESIS, Body, Draft, body_digest, chain_digest, make_body

DRAFT = Draft(
    id=bytes(range(16)),
    type="context:message_added",
    version=1,
    time=1_700_000_000_000_000_000,
    payload=b'{"event":"context:message_added"}',
    bodies=(Body(b"\x01" * 32, b""),),
    turn_id="turn-1",
    span_id="00f067aa0ba902b7",
    parent_span_id=None,
    iteration=3,
)


def test_the_digest_of_a_known_record_never_changes() -> None:
    assert chain_digest(GENESIS, 5, DRAFT).hex() == (
        "11afa373df46dddefbeed8250b77d5f068bc81077fd7b13de09712ef32f04813"
    )
    bare = msgspec.structs.replace(DRAFT, bodies=(), turn_id=None, span_id=None, iteration=None)
    assert chain_digest(b"\xff" * 32, 0, bare).hex() == (
        "fe542c7016b2d1c7e21b3c330a393644c83d38c4a4f6a1d997536ad1579af20b"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"id": bytes(16)},
        {"type": "context:message_adde"},
        {"version": 2},
        {"time": 1},
        {"payload": b"{}"},
        {"bodies": ()},
        {"bodies": (Body(b"\x02" * 32, b""),)},
        {"turn_id": None},
        {"turn_id": ""},
        {"turn_id": "turn-2"},
        {"span_id": None},
        {"parent_span_id": "00f067aa0ba902b7"},
        {"iteration": None},
        {"iteration": 0},
    ],
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    changed = msgspec.structs.replace(DRAFT, **change)
    assert chain_digest(GENESIS, 5, changed) != chain_digest(GENESIS, 5, DRAFT)


def test_the_record_before_and_the_position_count() -> None:
    digest = chain_digest(GENESIS, 5, DRAFT)
    assert chain_digest(GENESIS, 6, DRAFT) != digest
    assert chain_digest(b"\x01" + GENESIS[1:], 5, DRAFT) != digest


@given(first=st.tuples(st.text(), st.text()), second=st.tuples(st.text(), st.text()))
def test_moving_a_character_between_neighbouring_fields_is_seen(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    one = msgspec.structs.replace(DRAFT, type=first[0], turn_id=first[1])
    two = msgspec.structs.replace(DRAFT, type=second[0], turn_id=second[1])
    same = chain_digest(GENESIS, 0, one) == chain_digest(GENESIS, 0, two)
    assert same == (first == second)


def test_a_short_text_cannot_be_guessed_from_its_digest_without_the_salt() -> None:
    one, two = (make_body(b'"yes"', b"", salt) for salt in (lambda n: b"a" * n, lambda n: b"b" * n))
    assert one.digest != two.digest
    assert one.digest == body_digest(b"a" * 16, b'"yes"')


def test_facts_are_a_cache_that_no_digest_covers() -> None:
    facts = Body(b"\x01" * 32, b"other facts")
    changed = msgspec.structs.replace(DRAFT, bodies=(facts,))
    assert chain_digest(GENESIS, 5, changed) == chain_digest(GENESIS, 5, DRAFT)
