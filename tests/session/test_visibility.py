"""What each audience is shown of a transcript, and that nothing of it is lost in the log."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx import InvalidSetting, for_audience
from tests.transcripts import DIALECTS, stories

MARKS = ("internal", "developer", "user")

THINKS = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALLS = {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}}
SAYS = {"type": "text", "text": "I read it."}
TOLD = {"type": "tool_result", "tool_use_id": "a", "content": "bytes"}

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Read x."},
    {"role": "user", "content": "<system-reminder>Mind the time.</system-reminder>"},
    {"role": "assistant", "content": [THINKS, SAYS, CALLS]},
    {"role": "user", "content": [TOLD, {"type": "text", "text": "And now y."}]},
    {"role": "assistant", "content": "Done."},
]


def marked(block: dict[str, Any], mark: str) -> dict[str, Any]:
    return {**block, "visibility": mark}


async def test_marked_blocks_come_back_byte_for_byte_from_request_view_transcript_and_log(tmp_path):
    row = {"role": "assistant", "content": [marked(THINKS, "internal"), marked(SAYS, "user")]}
    rows = [
        {"role": "user", "content": [marked({"type": "text", "text": "Hello"}, "developer")]},
        row,
        {"role": "user", "content": "Go on.", "visibility": None},
    ]
    wanted = [msgspec.json.encode(one) for one in rows]

    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        for one in rows:
            await ctx.add_message(one)
        request = await ctx.get_messages_for_request()
        assert [msgspec.json.encode(one) for one in request] == wanted
    async with eventctx.open(tmp_path / "s.db") as engine:
        transcript = await engine.transcript("s")
        assert [msgspec.json.encode(one.message) for one in transcript] == wanted


def test_internal_tools_are_shown_everything():
    assert for_audience(TALK, "internal") == TALK


def test_a_developer_is_shown_everything_but_what_is_marked_internal():
    assert for_audience(TALK, "developer") == TALK
    row = {"role": "assistant", "content": [marked(THINKS, "internal"), SAYS]}
    assert for_audience([row], "developer") == [{"role": "assistant", "content": [SAYS]}]


def test_a_user_is_shown_what_people_said_and_were_answered():
    assert for_audience(TALK, "user") == [
        {"role": "user", "content": "Read x."},
        {"role": "assistant", "content": [SAYS]},
        {"role": "user", "content": [{"type": "text", "text": "And now y."}]},
        {"role": "assistant", "content": "Done."},
    ]


@pytest.mark.parametrize("block", [THINKS, CALLS, TOLD], ids=lambda block: block["type"])
def test_a_mark_wins_over_the_kind_of_a_block(block):
    role = "user" if block is TOLD else "assistant"
    row = {"role": role, "content": [marked(block, "user")]}
    assert for_audience([row], "user") == [row]


def test_the_mark_of_a_message_holds_for_its_blocks_without_one():
    row = {"role": "assistant", "content": [SAYS, marked(SAYS, "user")], "visibility": "developer"}
    assert for_audience([row], "developer") == [row]
    assert for_audience([row], "user") == []
    system = {"role": "system", "content": "Welcome!", "visibility": "user"}
    assert for_audience([system], "user") == [system]


def test_what_is_marked_inside_a_result_is_hidden_there():
    inner = [marked({"type": "text", "text": "secret"}, "internal"), SAYS]
    row = {"role": "user", "content": [{**TOLD, "content": inner}]}
    (shown,) = for_audience([row], "developer")
    assert shown["content"] == [{**TOLD, "content": [SAYS]}]


def test_the_copies_that_an_amplifier_row_holds_are_shown_as_their_blocks_are():
    row = {
        "role": "assistant",
        "content": [
            marked(THINKS, "internal"),
            marked({**CALLS, "type": "tool_call"}, "internal"),
            {**CALLS, "type": "tool_call", "id": "b"},
        ],
        "tool_calls": [{"id": name, "tool": "read", "arguments": {}} for name in ("a", "b")],
        "thinking_block": THINKS,
        "metadata": {"provider": "x"},
    }
    (shown,) = for_audience([row], "developer")
    assert [call["id"] for call in shown["tool_calls"]] == ["b"]
    assert "thinking_block" not in shown
    assert shown["metadata"] == {"provider": "x"}
    assert for_audience([row], "user") == []


def test_an_answer_is_shown_to_a_user_without_its_calls_reasoning_and_provider_state():
    row = {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        "metadata": {"response_id": "r"},
    }
    assert for_audience([row], "user") == [{"role": "assistant", "content": "Let me look."}]


def test_items_without_a_role_and_what_a_hook_wrote_are_no_talk():
    hidden: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "r"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "o"},
        {"role": "tool", "tool_call_id": "a", "content": ""},
        {"role": "system", "content": []},
        {"role": "user", "content": "It is late.", "metadata": {"source": "hook"}},
    ]
    assert for_audience(hidden, "user") == []
    assert for_audience(hidden, "developer") == hidden


def test_a_model_that_writes_like_a_harness_is_still_the_model():
    row = {"role": "assistant", "content": "<system-reminder> is a tag of some harnesses"}
    assert for_audience([row], "user") == [row]


def test_an_audience_that_does_not_exist_is_refused():
    with pytest.raises(InvalidSetting, match="internal, developer, user, found everybody"):
        for_audience([], "everybody")  # type: ignore[arg-type]


# -- whatever the transcript ---------------------------------------------------------------------

unhurried = settings(deadline=None)  # a busy machine takes longer than Hypothesis allows
marks = st.sampled_from([None, None, "odd", 7, *MARKS])


@st.composite
def marked_stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A story of any dialect with marks here and there, every leaf told from every other."""
    rows = copy.deepcopy(draw(stories(draw(st.sampled_from(DIALECTS)), most=6)).messages)
    for row in rows:
        blocks = row["content"] if isinstance(row.get("content"), list) else []
        for block in (row, *blocks, *(row.get("tool_calls") or ())):
            if draw(st.booleans()):
                block["visibility"] = draw(marks)
    return rows


def leaves(rows: list[dict[str, Any]]) -> list[str]:
    """Every block, call and other content that is shown, in order."""
    found = []
    for row in rows:
        content = row.get("content")
        blocks = content if isinstance(content, list) else [content] if content else []
        keys = {key: row[key] for key in row if key not in ("content", "tool_calls")}
        parts = [*blocks, *(row.get("tool_calls") or ()), *keys.items()]
        found += [repr(part) for part in parts]
    return found


def is_part(some: list[str], of: list[str]) -> bool:
    rest = iter(of)
    return all(any(one == other for other in rest) for one in some)


@unhurried
@given(marked_stories())
def test_audiences_are_nested_and_see_the_same_order(rows):
    before = copy.deepcopy(rows)
    shown = [leaves(for_audience(rows, audience)) for audience in ("internal", "developer", "user")]
    assert rows == before
    assert shown[0] == leaves(rows)
    for wider, narrower in itertools.pairwise(shown):
        assert is_part(narrower, wider)


@unhurried
@given(marked_stories(), st.sampled_from(MARKS))
def test_showing_to_an_audience_what_it_was_shown_changes_nothing(rows, audience):
    once = for_audience(rows, audience)
    assert for_audience(once, audience) == once


@unhurried
@given(marked_stories())
def test_what_is_marked_internal_is_shown_to_nobody_else(rows):
    for audience in ("developer", "user"):
        for leaf in leaves(for_audience(rows, audience)):
            assert "'visibility': 'internal'" not in leaf


def test_a_block_that_is_no_list_is_shown_as_it_would_be_in_one() -> None:
    thought = {"role": "assistant", "content": {"type": "thinking", "thinking": "hm"}}
    said = {"role": "assistant", "content": {"type": "text", "text": "yes"}}
    assert for_audience([thought, said], "user") == [said]
