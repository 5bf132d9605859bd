"""SWE-agent, mini-swe-agent and plain message lists (reference/formats.md 3.4 and 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats import chat, trajectories
from eventctx.importers.source.items import (
    CallEnded,
    MessageItem,
    ModelCall,
    Session,
    TurnBegan,
    TurnEnded,
)
from tests.importers.given import items_of, jsonl, of_type, texts

TASK: list[dict[str, Any]] = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "fix it"},
]


def doc(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


# -- SWE-agent -----------------------------------------------------------------------------------


def swe_file() -> dict[str, Any]:
    function = {"name": "bash", "arguments": "{}"}
    answer = {
        "role": "assistant",
        "content": "t",
        "thought": "t",
        "action": "ls",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    result = {"role": "tool", "content": "out", "tool_call_ids": ["c1"]}
    demo = {"role": "user", "content": "a demonstration", "is_demo": True}
    steps = [{"action": "ls", "observation": "out", "response": "t"}]
    info = {"exit_status": "submitted", "model_stats": {"api_calls": 1}}
    return {"trajectory": steps, "history": [TASK[0], demo, TASK[1], answer, result], "info": info}


def test_swe_agent_turns_have_the_agent_that_the_rows_name_and_not_a_demonstrations() -> None:
    value = swe_file()
    value["history"][1]["agent"] = "teacher"
    unnamed = items_of(trajectories.parse_swe_agent, doc(value))
    assert of_type(unnamed, Session)[0].agent is None
    _, demo, *rows = value["history"]
    value["history"] = [demo, *[{**row, "agent": "main"} for row in rows]]
    named = items_of(trajectories.parse_swe_agent, doc(value))
    assert of_type(named, Session)[0].agent == "main"


def test_swe_agent_runs_that_failed_end_with_their_reason() -> None:
    value = swe_file()
    value["info"]["exit_status"] = "exit_cost"
    end = of_type(items_of(trajectories.parse_swe_agent, doc(value)), TurnEnded)[0]
    assert (end.status, end.error) == ("error", "exit_cost")


def test_swe_agent_text_runs_have_one_turn() -> None:
    rows = [*TASK, {"role": "assistant", "content": "ls"}, {"role": "user", "content": "out"}]
    found = items_of(trajectories.parse_swe_agent, doc({"history": rows, "trajectory": []}))
    assert len(of_type(found, TurnBegan)) == 1
    assert len(of_type(found, ModelCall)) == 1
    assert [m.by_harness for m in of_type(found, MessageItem)] == [False, False, False, True]


# -- mini-swe-agent ------------------------------------------------------------------------------


def test_mini_exit_status_may_be_the_name_of_an_exception() -> None:
    value = {"messages": TASK, "info": {"exit_status": "LimitsExceeded"}}
    end = of_type(items_of(trajectories.parse_mini, doc(value)), TurnEnded)[0]
    assert (end.status, end.error) == ("error", "LimitsExceeded")


# -- plain lists ---------------------------------------------------------------------------------

CHAT: list[dict[str, Any]] = [
    *TASK,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": '{"output":"{\\"x\\":1}"}'},
    {"role": "tool", "tool_call_id": "b", "content": ""},
    {"role": "assistant", "content": "   "},
    {"role": "user", "content": [{"type": "text", "text": "more"}]},
]


@pytest.mark.parametrize(
    "data",
    [doc(CHAT), json.dumps(CHAT).encode(), jsonl(CHAT), doc({"messages": CHAT})],
    ids=["pretty array", "array on one line", "jsonl", "object"],
)
def test_a_list_reads_the_same_in_every_wrapping(data: bytes) -> None:
    found = items_of(chat.parse, data)
    assert texts(found) == CHAT
    assert len(of_type(found, TurnBegan)) == len(of_type(found, ModelCall)) == 2


@pytest.mark.parametrize("data", [b'{"messages": [', b'{"messages": 3}', b"3", b"\n\n"])
def test_a_document_that_is_none_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(MalformedTranscript, match="expected"):
        items_of(chat.parse, data)


def test_the_answer_of_a_logged_request_may_be_a_message_or_a_list_of_items() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 45, "output_tokens": 3}
    body = {"id": "m1", "type": "message", "model": "m", "stop_reason": "end_turn", **said}
    log = {"system": "be good", "messages": TASK[1:], "response": {**body, "usage": usage}}
    found = items_of(chat.parse, doc(log))
    assert texts(found) == [{"role": "system", "content": "be good"}, TASK[1], said]
    (request,) = of_type(found, ModelCall)
    assert (request.usage.prompt, request.finish_reason) == (50, "end_turn")
    items = [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
    ]
    answer = {"id": "r1", "status": "completed", "output": items, "created_at": 5}
    found = items_of(chat.parse, doc({"input": TASK, "response": answer}))
    assert texts(found) == [*TASK, *items]
    assert (len(of_type(found, ModelCall)), of_type(found, CallEnded)[0].time) == (1, 5 * 10**9)
