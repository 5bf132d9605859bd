"""Which spans count, for which request, how old they are, and what they weigh."""

from __future__ import annotations

import json
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.errors import InvalidMessage
from eventctx.projections.evidence import needs
from eventctx.projections.evidence.texts import Carriers
from tests.queries.evidence.given import (
    LINE,
    asks,
    calls,
    returns,
    says,
    spans_of,
    texts_of,
    told,
)


def test_the_model_s_messages_in_a_row_are_one_action_and_the_request_is_what_precedes_them() -> (
    None
):
    messages = [
        asks("a"),
        says("b"),
        calls(),
        returns("c"),
        asks("d"),
        calls("c2"),
        returns("e", "c2"),
    ]
    assert [(need.request, need.before) for need in needs(messages)] == [(0, 1), (1, 5)]


def test_items_of_the_responses_api_are_the_model_s_too() -> None:
    messages = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LINE}]},
        {"type": "reasoning", "summary": []},
        {
            "type": "function_call",
            "call_id": "c",
            "name": "run",
            "arguments": json.dumps({"a": LINE}),
        },
        {"type": "function_call_output", "call_id": "c", "output": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "."}]},
    ]
    found = needs(messages)
    assert [(need.before, [span.text for span in need.spans]) for need in found] == [
        (1, [LINE]),
        (4, []),
    ]


def test_what_the_model_says_before_anybody_else_answers_no_request() -> None:
    assert [need.before for need in needs([says("hello"), asks("a"), says("b")])] == [2]


def test_a_session_without_a_model_needs_nothing() -> None:
    assert needs([]) == ()
    assert needs([asks("a"), asks("b")]) == ()


def test_a_request_that_reuses_nothing_is_there_as_well() -> None:
    (need,) = needs([asks("a"), says("b")])
    assert need.spans == ()


def test_a_message_with_neither_role_nor_type_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        needs([{"content": "a"}])


def test_carriers_are_all_earlier_messages_that_contain_the_text() -> None:
    messages = [
        asks(f"{LINE}!"),
        says(f"I say x{LINE}"),
        returns(f"_{LINE}_"),
        says(LINE),
        asks(LINE),
    ]
    need = needs(messages)[1]
    assert [(span.text, span.carriers) for span in need.spans] == [(LINE, (0, 1, 2))]


def test_what_no_earlier_message_contains_is_the_model_s_own() -> None:
    assert texts_of([asks("hello"), says("src/made_up.py and 12345")]) == []


def test_what_a_later_message_contains_does_not_count() -> None:
    messages = [asks("hello"), says(LINE), returns(LINE), says("bye")]
    assert [need.spans for need in needs(messages)] == [(), ()]


def test_what_the_model_said_first_does_not_count_though_a_tool_repeats_it() -> None:
    messages = [asks("go"), calls(text=LINE), returns(f"wrote {LINE}"), says(LINE)]
    assert spans_of(messages) == []


def test_what_a_person_said_first_counts_though_the_model_repeats_it() -> None:
    messages = [asks(LINE), says(LINE), asks("again"), says(LINE)]
    assert [span.carriers for span in spans_of(messages)] == [(0, 1)]


def test_what_stands_in_an_earlier_system_message_does_not_count() -> None:
    assert texts_of([told(f"Rule: {LINE}"), asks(LINE), says(LINE)]) == []
    assert texts_of([{"role": "developer", "content": LINE}, asks(LINE), says(LINE)]) == []


def test_a_text_in_more_than_three_messages_and_a_tenth_of_all_does_not_count() -> None:
    assert texts_of([*[asks(LINE)] * 3, says(LINE)]) == [LINE]
    assert texts_of([*[asks(LINE)] * 4, says(LINE)]) == []
    assert texts_of([*[asks(LINE)] * 4, *[asks("else")] * 36, says(LINE)]) == [LINE]
    assert texts_of([*[asks(LINE)] * 4, *[asks("else")] * 35, says(LINE)]) == []


def test_rarity_is_a_setting() -> None:
    messages = [*[asks(LINE)] * 4, *[asks("else")] * 16, says(LINE)]
    assert texts_of(messages, rarity=0.2) == [LINE]
    assert texts_of(messages, few_carriers=4) == [LINE]


def test_the_weight_grows_with_the_earlier_messages_to_a_carrier() -> None:
    (span,) = spans_of([asks(LINE), asks("else"), asks(LINE), says(LINE)])
    assert span.weight == log2(1 + 3 / 2)


def test_the_age_is_the_number_of_requests_that_showed_the_latest_carrier_before() -> None:
    messages = [asks(LINE), says("1"), asks("go on"), says("2"), asks("go on"), says(LINE)]
    assert [span.age for span in spans_of(messages)] == [2]
    messages[2] = asks(LINE)
    assert [span.age for span in spans_of(messages)] == [1]
    messages[4] = asks(LINE)
    assert [span.age for span in spans_of(messages)] == [0]


def test_what_the_last_action_itself_repeated_is_fresh_as_every_policy_shows_it() -> None:
    messages = [asks(LINE), says("1"), asks("go on"), says(LINE), asks("go on"), says(LINE)]
    assert [span.age for span in spans_of(messages)] == [0]


def test_spans_of_all_messages_of_an_action_count_once() -> None:
    messages = [asks(f"{LINE} module.part_two"), says(LINE), calls(text=f"{LINE} module.part_two")]
    assert texts_of(messages) == [LINE, f"{LINE} module.part_two"]


pieces = st.sampled_from(["ab", "cab", "b", "-", ".", " ", "é", "x_1"])
joined = st.lists(pieces, max_size=8).map("".join)


@given(st.lists(joined, max_size=6), joined.filter(bool))
def test_carriers_are_exactly_the_texts_that_contain_a_text(texts: list[str], text: str) -> None:
    expected = tuple([number for number, one in enumerate(texts) if text in one])
    assert Carriers(texts).of(text) == expected


@given(st.lists(joined, min_size=1, max_size=6), st.data())
def test_a_part_of_a_text_is_found_in_it(texts: list[str], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(texts) - 1))
    start = data.draw(st.integers(0, len(texts[number])))
    part = texts[number][start : data.draw(st.integers(start, len(texts[number])))]
    assert not part or number in Carriers(texts).of(part)
