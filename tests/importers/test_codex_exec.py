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
    Raw,
    TurnBegan,
    TurnEnded,
    Warned,
)
from eventctx.log.usage import Usage
from eventctx.stores.memory import MemoryStore
from tests.importers.given import (
    always,
    ended_usages,
    items_of,
    jsonl,
    load,
    messages,
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


def test_a_command_is_a_call_when_it_begins_and_a_result_when_it_ends() -> None:
    log = CodexExec().turn().says("hm", "reasoning").runs("a").ran("a", "jars", 2)
    items = found(log.says("end").over())
    assert roles(items) == ["reasoning", "function_call", "function_call_output", "assistant"]
    assert texts(items)[1]["name"] == "command_execution"
    assert outputs(items) == [("a", "jars", True)]
    assert len(of_type(items, ModelCall)) == 2
    assert [one.status for one in of_type(items, TurnEnded)] == ["ok"]


def test_commands_that_run_at_once_are_of_one_call_of_the_model() -> None:
    log = CodexExec().turn().runs("a").runs("b").ran("b").ran("a").says("end").over()
    assert len(of_type(found(log), ModelCall)) == 2


def test_the_prompt_is_not_in_the_output_and_the_tokens_are_of_a_whole_turn() -> None:
    items = found(CodexExec().turn().says("a").over().turn().says("b").over())
    assert len(of_type(items, TurnBegan)) == 2
    (warning,) = of_type(items, Warned)
    assert "the prompt is not in the output" in warning.text
    assert ended_usages(items) == [None, None]


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


def test_each_update_of_the_plan_is_a_call() -> None:
    todo = [{"text": "one", "completed": True}, {"text": "two", "completed": False}]
    log = CodexExec().turn().item("started", "todo_list", "t", items=todo[:1])
    for step in ("updated", "completed"):
        log.item(step, "todo_list", "t", items=todo)
    calls = [one for one in texts(found(log)) if one["type"] == "function_call"]
    assert [json.loads(one["arguments"])["plan"] for one in calls] == [
        [{"step": "one", "status": "completed"}],
        [{"step": "one", "status": "completed"}, {"step": "two", "status": "pending"}],
    ]


def test_an_agent_that_was_started_is_linked_to_its_call() -> None:
    asked = {"tool": "spawn_agent", "prompt": "look", "receiver_thread_ids": ["thread-2"]}
    log = CodexExec().turn().item("completed", "collab_tool_call", "a", **asked, agents_states={})
    (link,) = of_type(found(log), Linked)
    assert (link.session_id, link.call_id) == ("thread-2", "a")


def test_a_failed_turn_has_its_reason_and_a_notice_is_no_message() -> None:
    log = CodexExec().turn().item("completed", "error", message="too many skills")
    log.line("error", message="Reconnecting... 1/5")
    items = found(log.line("turn.failed", error={"message": "no credit"}))
    (ended,) = of_type(items, TurnEnded)
    assert (ended.status, ended.error) == ("error", "no credit")
    assert texts(items) == []
    assert all(one.understood for one in of_type(items, Raw))


async def test_an_item_of_an_unknown_type_is_kept_and_named(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = CodexExec().turn().says("a").item("completed", "hologram", text="b").over()
    path.write_bytes(b"Reading prompt from stdin...\n" + log.data())
    done = await load(MemoryStore(), path)
    assert (done.session, done.messages) == ("run", 1)
    assert done.unknown == {"item.completed/hologram": 1, "unreadable": 1}


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


async def test_usage_that_comes_after_the_results_is_of_the_call_before_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(jsonl(EVENTS))
    store = MemoryStore()
    done = await load(store, path, complete=True)
    assert (done.messages, done.calls, done.turns, done.unknown) == (11, 5, 1, {})
    assert len(await messages(store, "run")) == 11


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
