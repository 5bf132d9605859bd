"""A record's digest, its codec, and names."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.errors import DecodeError, InvalidMessage, InvalidSetting, UpcastMissing
from eventctx.log import naming
from eventctx.log.codec import Unknown, decode_event, encode_event, upcast
from eventctx.log.events import CATALOGUE, Cleared, MessagesSet
from eventctx.log.naming import RequestName
from eventctx.log.record import GENESIS, Body, Draft, Record, body_digest, chain_digest, make_body
from eventctx.messages.encoding import MAX_DEPTH, decode_bodies, decode_body, encode_message
from tests.how_much import some

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


CHANGES: list[Any] = [
    *[{"id": bytes(16)}, {"type": "context:message_adde"}, {"version": 2}, {"time": 1}],
    *[{"payload": b"{}"}, {"bodies": ()}, {"bodies": (Body(b"\x02" * 32, b""),)}],
    *[{"turn_id": None}, {"turn_id": ""}, {"turn_id": "turn-2"}, {"span_id": None}],
    *[{"parent_span_id": "00f067aa0ba902b7"}, {"iteration": None}, {"iteration": 0}],
]


def test_every_field_the_position_and_the_record_before_count_and_facts_do_not() -> None:
    digest = chain_digest(GENESIS, 5, DRAFT)
    for change in CHANGES:
        assert chain_digest(GENESIS, 5, msgspec.structs.replace(DRAFT, **change)) != digest, change
    assert chain_digest(GENESIS, 6, DRAFT) != digest
    assert chain_digest(b"\x01" + GENESIS[1:], 5, DRAFT) != digest
    # Facts are a cache.
    other = msgspec.structs.replace(DRAFT, bodies=(Body(b"\x01" * 32, b"other facts"),))
    assert chain_digest(GENESIS, 5, other) == digest
    # A short text cannot be guessed from its digest without the salt.
    one, two = (make_body(b'"yes"', b"", salt) for salt in (lambda n: b"a" * n, lambda n: b"b" * n))
    assert one.digest != two.digest
    assert one.digest == body_digest(b"a" * 16, b'"yes"')


@given(first=st.tuples(st.text(), st.text()), second=st.tuples(st.text(), st.text()))
def test_a_character_moved_to_the_next_field_is_seen(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    one = msgspec.structs.replace(DRAFT, type=first[0], turn_id=first[1])
    two = msgspec.structs.replace(DRAFT, type=second[0], turn_id=second[1])
    same = chain_digest(GENESIS, 0, one) == chain_digest(GENESIS, 0, two)
    assert same == (first == second)


# -- codec -----------------------------------------------------------------------------------------

plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def record(name: str, version: int, payload: bytes) -> Record:
    return Record(
        "s", 7, 7, bytes(16), name, version, 0, payload, (), None, None, None, None, GENESIS
    )


@settings(max_examples=some(50, 400))
@given(message=st.dictionaries(st.text(), plain_json, max_size=6))
def test_a_message_comes_out_equal_with_its_keys_in_order(message: dict[str, Any]) -> None:
    data = encode_message(message)
    back = decode_body(data)
    assert back == message
    assert _order(back) == _order(message)
    assert encode_message(back) == data
    assert decode_bodies([data, data]) == [message, message]


def _order(value: Any) -> Any:
    if isinstance(value, dict):
        return [(key, _order(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [_order(item) for item in value]
    return repr(value)


class Odd(dict):  # type: ignore[type-arg]
    pass


AT = r"\$\.x\[1\]\.y"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        *[(math.nan, AT), (math.inf, AT), ((1, 2), AT), ({1, 2}, AT), (b"bytes", AT)],
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), AT),
        *[("\ud800", "lone surrogate"), ({"\udfff": 2}, "lone surrogate")],
        *[(2**64, "64 bits"), (-(2**63) - 1, "64 bits"), ({1: 2}, "string keys")],
        *[(Odd(), "a Odd"), (object(), "a object")],
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidMessage, match=path):
        encode_message({"role": "user", "x": [0, {"y": value}]})
    if not isinstance(value, dict):
        with pytest.raises(InvalidMessage, match=r"at \$: expected a dict"):
            encode_message(value)


def test_nesting_is_limited_so_that_a_message_can_always_be_read_back() -> None:
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"x": deep}
    assert decode_body(encode_message(deep)) == deep
    with pytest.raises(InvalidMessage, match="nesting"):
        encode_message({"x": deep})


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_event_type_is_stored_under_its_catalogue_name(name: str) -> None:
    row = CATALOGUE[name]
    assert row.payload.__struct_config__.tag == name
    assert row.payload.__struct_config__.frozen
    assert row.payload.__doc__
    assert row.promise


def test_an_event_comes_back_and_what_is_unknown_is_kept_or_does_no_harm() -> None:
    event = MessagesSet(order=((0, 4), (7, 7)))
    assert decode_event(record(*encode_event(event))) == event
    payload = b'{"event":"context:dreamt","of":"sheep"}'
    dreamt = Unknown("context:dreamt", 1, payload)
    assert decode_event(record("context:dreamt", 1, payload)) == dreamt
    assert isinstance(decode_event(record("context:cleared", 99, payload)), Unknown)
    payload = b'{"event":"context:cleared","messages":3,"mood":"blue"}'
    assert decode_event(record("context:cleared", 1, payload)) == Cleared(messages=3)


def test_a_payload_that_its_type_does_not_allow_names_stream_and_position() -> None:
    with pytest.raises(DecodeError, match="'s', position 7"):
        decode_event(record("context:cleared", 1, b'{"event":"context:cleared"}'))
    with pytest.raises(DecodeError, match="position 7"):
        decode_event(record("context:cleared", 1, b"{half"))


def test_upcasters_run_one_step_at_a_time_and_a_missing_one_is_named() -> None:
    steps = {
        ("x", 1): lambda old: {**old, "two": True},
        ("x", 2): lambda old: {**old, "three": old["two"]},
    }
    assert upcast("x", 1, 3, {"one": True}, steps) == {"one": True, "two": True, "three": True}
    assert upcast("x", 3, 3, {"kept": 1}, steps) == {"kept": 1}
    with pytest.raises(UpcastMissing, match="x is stored in version 3"):
        upcast("x", 1, 4, {}, steps)


def test_no_payload_type_holds_content() -> None:
    """Contents stand in bodies: of all payloads only a session's settings may hold free JSON."""
    for name, row in CATALOGUE.items():
        for field in msgspec.structs.fields(row.payload):
            if field.type in (Any, bytes) or "Any" in str(field.type):
                assert (name, field.name) == ("session:start", "settings")


# -- names -----------------------------------------------------------------------------------------


def test_names_are_written_in_one_way_and_read_again_and_plain_numbers_too() -> None:
    assert naming.message_name(6) == "#6"
    assert [naming.range_name(3, last) for last in (9, 3)] == ["#3–#9", "#3"]
    assert naming.ranges_name([(3, 9), (12, 12)]) == "#3–#9, #12"
    assert naming.position_name(48) == "@48"
    # A request outside a turn or an iteration is named by its position.
    places = [(2, 3), (None, None), (2, None), (None, 3)]
    names = [naming.request_name(turn, iteration, 48) for turn, iteration in places]
    assert names == ["2.3", "@48", "@48", "@48"]
    assert naming.read_message("#6") == naming.read_message("6") == 6
    for text in (naming.range_name(3, 6), "3-6", "#3-#6", "3 – 6"):
        assert naming.read_messages(text) == (3, 4, 5, 6)
    assert naming.read_messages("#6") == (6,)
    assert naming.read_position("@48") == naming.read_position(" 48 ") == 48
    read = [naming.read_request(text) for text in ("2.3", "2", "@48")]
    assert read == [RequestName(2, 3), RequestName(2), RequestName(position=48)]


@pytest.mark.parametrize("text", ["", "#", "#-1", "six", "@6", "6.1", "٦", "9" * 19])
def test_another_text_is_no_message_and_the_error_says_what_is(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected a message such as #6 or 6, found"):
        naming.read_message(text)
    for range_ in ("#6–#3", "0-999999999999"):  # empty, and enormous
        with pytest.raises(InvalidSetting, match="expected a range of 1 to 100,000 messages"):
            naming.read_messages(range_)
