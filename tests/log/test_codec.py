"""Messages and events to bytes and back: strict on the way in, faithful on the way out."""

from __future__ import annotations

import datetime
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.errors import DecodeError, InvalidMessage, UpcastMissing
from eventctx.log.codec import Unknown, decode_event, encode_event, upcast
from eventctx.log.events import CATALOGUE, Cleared, MessagesSet
from eventctx.log.record import GENESIS, Record
from eventctx.messages.encoding import MAX_DEPTH, decode_bodies, decode_body, encode_message

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


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, r"\$\.x\[1\]\.y"),
        (math.inf, r"\$\.x\[1\]\.y"),
        ((1, 2), r"\$\.x\[1\]\.y"),
        ({1, 2}, r"\$\.x\[1\]\.y"),
        (b"bytes", r"\$\.x\[1\]\.y"),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), r"\$\.x\[1\]\.y"),
        ("\ud800", "lone surrogate"),
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        ({1: 2}, "string keys"),
        ({"\udfff": 2}, "lone surrogate"),
        (Odd(), "a Odd"),
        (object(), "a object"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidMessage, match=path):
        encode_message({"role": "user", "x": [0, {"y": value}]})


@pytest.mark.parametrize("value", [None, [], "text", 3, object()])
def test_a_message_that_is_no_dict_is_refused(value: Any) -> None:
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


def test_an_event_comes_back_from_its_payload() -> None:
    event = MessagesSet(order=((0, 4), (7, 7)))
    name, version, payload = encode_event(event)
    assert decode_event(record(name, version, payload)) == event


def test_an_unknown_type_or_a_later_version_is_kept_as_it_is() -> None:
    payload = b'{"event":"context:dreamt","of":"sheep"}'
    assert decode_event(record("context:dreamt", 1, payload)) == Unknown(
        "context:dreamt", 1, payload
    )
    assert isinstance(decode_event(record("context:cleared", 99, payload)), Unknown)


def test_an_unknown_field_of_a_known_type_does_no_harm() -> None:
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
