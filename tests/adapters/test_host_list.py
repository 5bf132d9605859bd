"""A host's list held against the transcript: what is new, and whether anything was left out."""

from __future__ import annotations

from typing import Any

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


def test_calls_that_a_crash_left_without_results_may_be_missing() -> None:
    rows = [said("a"), call("1"), result("1"), call("2"), said("b")]
    given_back = [said("a"), call("1"), result("1"), said("b"), said("c")]
    found = held_against(rows, given_back, plain_identity)
    assert (list(found.new), found.whole) == ([said("c")], True)
    assert not held_against(rows, [*given_back[:1], *given_back[3:]], plain_identity).whole


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
