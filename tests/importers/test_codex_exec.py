"""The output of ``codex exec --json``, of each release's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.detect import choose
from eventctx.importers.formats.codex_exec import parse
from eventctx.importers.source.items import (
    Linked,
    MessageItem,
    ModelCall,
    TurnBegan,
    TurnEnded,
    Warned,
)
from eventctx.log.usage import Usage
from tests.importers.given import (
    always,
    ended_usages,
    items_of,
    jsonl,
    of_type,
    roles,
    texts,
)
from tests.importers.outputs import CodexExec


def found(log: CodexExec) -> list[Any]:
    return items_of(parse, log.data(), always)


def outputs(items: list[Any]) -> list[tuple[str, str, bool]]:
    results = [one for one in of_type(items, MessageItem) if "output" in one.message]
    return [(one.message["call_id"], one.message["output"], one.failed) for one in results]


def test_an_item_that_is_told_only_at_its_end_is_a_call_and_its_result() -> None:
    changes = [{"path": "a.py", "kind": "update"}]
    asked = {"server": "store", "tool": "find", "arguments": {"q": 1}}
    two = {"content": [{"type": "text", "text": "three"}, {"type": "text", "text": "jars"}]}
    log = CodexExec().turn().item("completed", "file_change", "a", changes=changes, status="failed")
    log.item("completed", "mcp_tool_call", "b", **asked, result=two, status="completed")
    log.item("completed", "mcp_tool_call", "c", **asked, error={"message": "no"}, status="failed")
    items = found(log)
    calls = [one for one in texts(items) if one["type"] == "function_call"]
    asked_for = [json.loads(one["arguments"]) for one in calls]
    assert asked_for == [{"changes": changes}, {"q": 1}, {"q": 1}]
    assert [one["name"] for one in calls] == ["file_change"] + ["mcp__store__find"] * 2
    assert outputs(items) == [("a", "failed", True), ("b", "three\njars", False), ("c", "no", True)]


def test_an_agent_that_was_started_is_linked_to_its_call() -> None:
    asked = {"tool": "spawn_agent", "prompt": "look", "receiver_thread_ids": ["thread-2"]}
    log = CodexExec().turn().item("completed", "collab_tool_call", "a", **asked, agents_states={})
    (link,) = of_type(found(log), Linked)
    assert (link.session_id, link.call_id) == ("thread-2", "a")


def test_the_first_form_of_items_is_read_too(tmp_path: Path) -> None:
    rows = [
        {"type": "session.created", "session_id": "s"},
        {"type": "item.completed", "item": {"id": "0", "item_type": "reasoning", "text": "hm"}},
        {
            "type": "item.completed",
            "item": {"id": "1", "item_type": "assistant_message", "text": "hi"},
        },
    ]
    items = items_of(parse, jsonl(rows), always)
    assert roles(items) == ["reasoning", "assistant"]
    assert len(of_type(items, TurnBegan)) == 1


# -- the events of releases before 0.40 ----------------------------------------------------------


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "1", "msg": {"type": kind, **fields}}


USAGE = {"input_tokens": 70, "cached_input_tokens": 5, "output_tokens": 7}
EVENTS = [
    {"model": "test-model", "provider": "openai", "workdir": "/w"},
    {"prompt": "Count the jars."},
    event("task_started", model_context_window=9000),
    event("agent_reasoning", text="hm"),
    event("exec_command_begin", call_id="c", command=["ls"], cwd="/w"),
    event("exec_command_end", call_id="c", stdout="a", stderr="b", exit_code=1),
    event("token_count", info={"last_token_usage": USAGE}),
    event("patch_apply_begin", call_id="p", changes={"a.py": {"add": {}}}),
    event("patch_apply_end", call_id="p", stdout="Success.", stderr="", success=True),
    event("token_count", **USAGE),
    event("mcp_tool_call_begin", call_id="m", invocation={"server": "s", "tool": "t"}),
    event("mcp_tool_call_end", call_id="m", result={"Err": "timed out"}),
    event("plan_update", plan=[{"step": "one", "status": "pending"}]),
    event("agent_message", message="Three."),
    event("task_complete", last_agent_message="Three."),
]


def test_events_are_the_prompt_calls_results_and_answers_with_their_usage() -> None:
    items = items_of(parse, jsonl(EVENTS), always)
    calls = ["function_call", "function_call_output"]
    assert roles(items) == ["user", "reasoning", *calls * 4, "assistant"]
    assert outputs(items) == [
        ("c", "ab", True),
        ("p", "Success.", False),
        ("m", "timed out", True),
        ("plan-13", "Plan updated", False),
    ]
    assert [one for one in ended_usages(items) if one] == [Usage(70, 7, 5)] * 2
    first = of_type(items, ModelCall)[0]
    assert (first.model, first.provider, first.context_window) == ("test-model", "openai", 9000)
    assert len(of_type(items, TurnBegan)) == len(of_type(items, TurnEnded)) == 1
    assert of_type(items, Warned) == []


@pytest.mark.parametrize(
    ("kind", "status"), [("turn_aborted", "cancelled"), ("error", "error"), ("task_complete", "ok")]
)
def test_an_event_says_how_the_turn_ended(kind: str, status: str) -> None:
    rows = [event("task_started"), event("agent_message", message="a"), event(kind, message="no")]
    (ended,) = of_type(items_of(parse, jsonl(rows), always), TurnEnded)
    assert ended.status == status


@pytest.mark.parametrize(
    "row",
    [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "session.created", "session_id": "s"},
        {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": "a"}},
        event("task_started"),
    ],
)
def test_a_line_of_each_form_is_told_by_more_than_its_type(
    row: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(jsonl([row]))
    assert choose(path, None).name == "codex-exec"
