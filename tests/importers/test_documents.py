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
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Warned,
)
from tests.importers.given import call, items_of, jsonl, of_type, prompts, raw_kinds, roles, texts

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


def test_swe_agent_rows_stay_as_they_are_and_the_copy_is_raw() -> None:
    value = swe_file()
    found = items_of(trajectories.parse_swe_agent, doc(value))
    assert texts(found) == value["history"]
    assert raw_kinds(found) == ["trajectory", "document"]
    assert [item.line for item in of_type(found, TurnBegan)] == [3]
    assert prompts(found) == [None]


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


def test_of_the_rows_in_role_user_only_the_task_is_a_persons() -> None:
    found = of_type(items_of(trajectories.parse_swe_agent, doc(swe_file())), MessageItem)
    assert [m.by_harness for m in found] == [False, True, False, False, False]


def test_a_history_row_without_a_role_is_kept_and_not_understood() -> None:
    found = items_of(trajectories.parse_swe_agent, doc({"history": [*TASK, {"x": 1}]}))
    assert [i.kind for i in of_type(found, Raw) if not i.understood] == ["history"]
    assert len(of_type(found, Warned)) == 1


# -- mini-swe-agent ------------------------------------------------------------------------------


def mini_row(**extra: Any) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens_details": None,
    }
    response = {"id": "r1", "model": "m", "usage": usage, "choices": [{"finish_reason": "stop"}]}
    return {"role": "assistant", "content": "ls", "extra": {"response": response, **extra}}


def test_mini_v1_takes_usage_from_extra_and_the_submission_begins_no_turn() -> None:
    submission = {"role": "user", "content": "diff --git a/x b/x"}
    rows = [*TASK, mini_row(timestamp=1_700_000_000.5), submission]
    value = {"trajectory_format": "mini-swe-agent-1", "messages": rows, "info": {}}
    found = items_of(trajectories.parse_mini, doc(value))
    assert roles(found) == ["system", "user", "assistant", "user"]
    assert prompts(found) == [1000]
    assert of_type(found, ModelCall)[0].usage.cache_read == 900
    assert of_type(found, CallEnded)[0].time == 1_700_000_000_500_000_000
    assert len(of_type(found, TurnBegan)) == 1
    assert len(of_type(found, ModelCall)) == 1
    assert [m.by_harness for m in of_type(found, MessageItem)] == [False, False, False, True]
    assert "extra" not in texts(found)[2]
    assert raw_kinds(found) == ["extra", "document"]


def test_mini_v2_exit_is_no_message_and_leaves_its_call_open() -> None:
    function = {"name": "bash", "arguments": "{}"}
    answer = {**mini_row(), "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    leave = {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}}
    info = {"exit_status": "Submitted"}
    found = items_of(
        trajectories.parse_mini, doc({"messages": [*TASK, answer, leave], "info": info})
    )
    assert roles(found) == ["system", "user", "assistant"]
    assert "exit" in raw_kinds(found)
    assert of_type(found, TurnEnded)[0].status == "ok"


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


def test_anthropic_results_belong_to_the_turn_that_asked() -> None:
    rows = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call("t1")], "usage": {"input_tokens": 5}},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
        {"role": "assistant", "content": []},
    ]
    found = items_of(chat.parse, doc({"system": "sys", "messages": rows, "model": "m"}))
    assert texts(found) == [{"role": "system", "content": "sys"}, *rows]
    assert len(of_type(found, TurnBegan)) == 1
    assert prompts(found) == [5, None]
    assert raw_kinds(found) == ["document"]


def test_responses_items_in_a_row_are_one_call() -> None:
    rows = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y"}]},
    ]
    found = items_of(chat.parse, doc({"input": rows}))
    assert texts(found) == rows
    assert len(of_type(found, ModelCall)) == 2


def test_rows_that_are_no_messages_are_kept_and_not_understood() -> None:
    found = items_of(chat.parse, jsonl([*TASK, {"note": 1}, "text", TASK[1]]))
    assert texts(found) == [*TASK, TASK[1]]
    assert [i.understood for i in of_type(found, Raw)] == [False, False]


def test_nan_becomes_null_and_the_document_is_kept() -> None:
    found = items_of(chat.parse, b'[{"role":"user","content":"x","score":NaN}]')
    assert texts(found) == [{"role": "user", "content": "x", "score": None}]
    assert raw_kinds(found) == ["document.repaired"]


@pytest.mark.parametrize("data", [b'{"messages": [', b'{"messages": 3}', b"3", b"\n\n"])
def test_a_document_that_is_none_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(MalformedTranscript, match="expected"):
        items_of(chat.parse, data)


def test_the_log_of_a_request_ends_with_its_answer_and_usage() -> None:
    answer = {"role": "assistant", "content": "hi"}
    usage = {"prompt_tokens": 50, "completion_tokens": 3}
    choice = {"finish_reason": "stop", "message": answer}
    response = {"id": "r1", "model": "m", "choices": [choice], "usage": usage, "created": 5}
    log = {"messages": TASK, "response": response, "context_window": 200, "cost": 0.1}
    found = items_of(chat.parse, doc(log))
    assert texts(found) == [*TASK, answer]
    (request,) = of_type(found, ModelCall)
    assert (request.model, request.response_id, request.finish_reason) == ("m", "r1", "stop")
    assert (request.usage.prompt, request.context_window) == (50, 200)
    assert of_type(found, CallEnded)[0].time == 5_000_000_000


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


@pytest.mark.parametrize("response", [None, 3, {}, {"choices": [3]}, {"choices": [{"message": 3}]}])
def test_a_response_without_an_answer_stays_in_the_document(response: Any) -> None:
    found = items_of(chat.parse, doc({"messages": TASK, "response": response}))
    assert texts(found) == TASK
    assert raw_kinds(found) == ["document"]
