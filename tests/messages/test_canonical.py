"""The canonical form of sent contents: what JavaScript writes, whatever order keys came in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.messages.encoding import canonical, digest_of, message_digest
from tests.how_much import some

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (1000.5, "1000.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (-2.5, "-2.5"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (123456789012345680000.0, "123456789012345680000"),
    ],
)
def test_numbers_are_written_as_javascript_writes_them(number: float, written: str) -> None:
    assert canonical(number) == written


def test_keys_stand_in_the_order_of_their_utf_16_units() -> None:
    # U+FF5E sorts before U+1F600 by code point, and after its surrogates.
    assert canonical({"\uff5e": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\uff5e":1}'


@given(VALUES)
def test_the_canonical_form_is_json_of_the_same_value_without_cache_marks(value: Any) -> None:
    assert json.loads(canonical(value)) == _unmarked(value)


@settings(max_examples=some(30, 300))
@given(st.dictionaries(st.text(), VALUES), st.randoms())
def test_the_order_of_keys_changes_no_digest(value: dict[str, Any], random: Any) -> None:
    keys = list(value)
    random.shuffle(keys)
    assert digest_of({key: value[key] for key in keys}) == digest_of(value)


@given(st.text(), st.dictionaries(st.sampled_from(["id", "model", "usage"]), VALUES))
def test_a_text_and_its_one_block_are_one_message_whatever_stands_beside(
    words: str, beside: dict[str, Any]
) -> None:
    block = {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}
    plain = {"role": "user", "content": words}
    assert message_digest(plain) == message_digest({**beside, "role": "user", "content": [block]})
    assert message_digest(plain) != message_digest({"role": "user", "content": words + "."})


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(one) for key, one in value.items() if key != "cache_control"}
    return [_unmarked(one) for one in value] if isinstance(value, list) else value
