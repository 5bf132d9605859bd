"""A host's list held against the transcript: what is new, and whether anything was left out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.adapters.kit import held_against, plain_identity

Row = dict[str, Any]

ROWS = st.lists(st.text(max_size=3), unique=True, max_size=8).map(
    lambda texts: [said(text) for text in texts]
)


def said(text: str, role: str = "user") -> Row:
    return {"role": role, "content": text}


def call(call_id: str) -> Row:
    return {"type": "function_call", "call_id": call_id, "name": "read", "arguments": "{}"}


def result(call_id: str) -> Row:
    return {"type": "function_call_output", "call_id": call_id, "output": "text"}


def in_another_form(row: Row) -> Row:
    """The message as an API gives it back."""
    block = {"type": "input_text", "text": row["content"]}
    return {**row, "content": [block], "id": "msg_1", "status": "completed", "type": "message"}


@given(ROWS, st.integers(0, 8), st.booleans())
def test_what_stands_behind_the_transcript_is_new(rows: list[Row], known: int, other: bool) -> None:
    transcript, new = rows[:known], rows[known:]
    given_back = [in_another_form(one) if other else dict(one) for one in rows]
    found = held_against(transcript, given_back, plain_identity)
    assert found.whole
    assert [plain_identity(one) for one in found.new] == [plain_identity(one) for one in new]


@given(ROWS, st.integers(0, 8), st.data())
def test_what_the_host_left_out_is_not_new_and_said_so(
    rows: list[Row], known: int, data: st.DataObject
) -> None:
    transcript, new = rows[:known], rows[known:]
    kept = [one for one in transcript if data.draw(st.booleans())]
    found = held_against(transcript, [*kept, *new], plain_identity)
    assert found.whole == (kept == transcript)
    assert list(found.new) == new


def test_what_the_host_put_in_between_is_not_new() -> None:
    rows = [said("a"), said("b")]
    found = held_against(rows, [rows[0], said("Mind the tabs."), rows[1]], plain_identity)
    assert (list(found.new), found.whole) == ([], False)


@pytest.mark.parametrize("interrupted", [0, 1])
def test_words_of_an_earlier_turn_are_new_where_the_host_shows_no_earlier_turn(
    interrupted: int,
) -> None:
    calls = {"role": "assistant", "content": [tool_use("read", "1")]}
    turn = [said("go"), calls, {"role": "user", "content": [tool_result("1")]}]
    before = [*turn, said("done", "assistant")][: len(turn) + 1 - interrupted]
    transcript = list(before)
    for row in turn:
        shown = [*transcript[len(before) :], row]
        found = held_against(transcript, shown, by_name)
        assert (list(found.new), found.whole) == ([row], False)
        again = held_against([*transcript, row], shown, by_name)
        assert (list(again.new), again.whole) == ([], False)
        transcript.append(row)


def test_calls_that_a_crash_left_without_results_may_be_missing() -> None:
    rows = [said("a"), call("1"), result("1"), call("2"), said("b")]
    given_back = [said("a"), call("1"), result("1"), said("b"), said("c")]
    found = held_against(rows, given_back, plain_identity)
    assert (list(found.new), found.whole) == ([said("c")], True)
    assert not held_against(rows, [*given_back[:1], *given_back[3:]], plain_identity).whole


ROUND = st.lists(st.sampled_from("ab"), min_size=1, max_size=3)


@given(st.lists(st.tuples(ROUND, st.sampled_from(["done", "open", "said"])), max_size=6))
def test_a_list_without_open_calls_is_whole_at_each_step_of_the_rounds_behind_them(
    rounds: list[tuple[list[str], str]],
) -> None:
    """Calls of one name are equal: identities have no ids where the host shows none."""
    transcript: list[Row] = []
    host: list[Row] = []
    number = 0
    for names, ends in rounds:
        ids = [f"{number + at}" for at in range(len(names))]
        number += len(names)
        words = [{"type": "text", "text": "I look."}] if ends == "said" else []
        calls = [tool_use(*one) for one in zip(names, ids, strict=True)]
        for row in (said("go"), {"role": "assistant", "content": [*words, *calls]}):
            found = held_against(transcript, [*host, row], by_name)
            assert (list(found.new), found.whole) == ([row], True)
            assert held_against([*transcript, row], [*host, row], by_name) == ([], True)
            transcript, host = [*transcript, row], [*host, row]
        if ends == "done":
            row = {"role": "user", "content": [tool_result(one) for one in ids]}
            assert held_against(transcript, [*host, row], by_name) == ([row], True)
            transcript, host = [*transcript, row], [*host, row]
        else:
            host = [*host[:-1], *([{"role": "assistant", "content": words}] if words else [])]


def tool_use(name: str, call_id: str) -> Row:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def tool_result(call_id: str) -> Row:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "text"}


def by_name(row: Mapping[str, Any]) -> Hashable:
    content = row["content"]
    if isinstance(content, list):
        ids = ("id", "tool_use_id")
        content = [{k: one[k] for k in one if k not in ids} for one in content]
    return plain_identity({**row, "content": content})


def test_one_of_two_parallel_calls_may_be_missing() -> None:
    calls = {"role": "assistant", "content": [tool_use("read", "1"), tool_use("read", "2")]}
    result = {"role": "user", "content": [tool_result("1")]}
    host = [said("a"), {**calls, "content": calls["content"][:1]}, result, said("b")]
    found = held_against([said("a"), calls, result], host, plain_identity)
    assert (list(found.new), found.whole) == ([said("b")], True)
    chat = {"role": "assistant", "content": "Look.", "tool_calls": [{"id": "1", "function": {}}]}
    found = held_against([chat], [said("Look.", "assistant"), said("b")], plain_identity)
    assert (list(found.new), found.whole) == ([said("b")], True)


def test_the_first_of_two_equal_calls_may_be_the_missing_one() -> None:
    calls = [{"role": "assistant", "content": [tool_use("read", one)]} for one in "12"]
    result = {"role": "user", "content": [tool_result("2")]}
    host = [said("a"), calls[1], result, said("b")]
    found = held_against([said("a"), *calls, result], host, by_name)
    assert (list(found.new), found.whole) == ([said("b")], True)


def test_a_call_and_its_result_are_two_messages() -> None:
    assert plain_identity(call("1")) != plain_identity(result("1"))
    assert plain_identity(call("1")) != plain_identity(call("2"))


@given(st.text(), st.text())
def test_messages_that_say_different_things_are_different(one: str, other: str) -> None:
    same = plain_identity(in_another_form(said(one))) == plain_identity(said(other))
    assert same == (one == other)
    assert plain_identity(said(one)) != plain_identity(said(one, "assistant"))


def test_in_a_list_that_was_cut_a_call_under_way_is_known() -> None:
    transcript = [said("a"), said("b", "assistant"), said("c"), call("1")]
    found = held_against(transcript, [said("c"), call("1"), result("1")], plain_identity)
    assert found == ([result("1")], False)
