"""The output of ``claude -p --output-format stream-json``, trap by trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.detect import choose
from eventctx.importers.formats.claude_stream import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import (
    CallEnded,
    Linked,
    TurnEnded,
    Undone,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import always, call, items_of, jsonl, load, of_type, roles, text
from tests.importers.outputs import ClaudeStream


def found(log: ClaudeStream) -> list[Any]:
    return items_of(parse, log.data(), always)


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({}, "ok", None),
        ({"subtype": "error_max_turns", "errors": ["too many"]}, "error", "too many"),
        ({"subtype": "error_during_execution", "result": None}, "error", "error_during_execution"),
        ({"is_error": True, "result": "API Error: 529"}, "error", "API Error: 529"),
        ({"terminal_reason": "aborted_streaming"}, "cancelled", None),
    ],
)
def test_a_result_says_how_the_turn_ended(
    fields: dict[str, Any], status: str, error: str | None
) -> None:
    (ended,) = of_type(found(ClaudeStream().answer("m", text("a")).over(**fields)), TurnEnded)
    assert (ended.status, ended.error) == (status, error)


def test_answers_that_the_program_retracted_are_taken_back() -> None:
    log = ClaudeStream().user("go").answer("m", text("refused"))
    log.system("model_refusal_fallback", retracted_message_uuids=["u3"]).answer("n", text("b"))
    (one,) = of_type(found(log), Undone)
    assert one.places == {1}


def test_an_error_of_the_api_is_no_answer() -> None:
    log = ClaudeStream().user("go").answer("m", text("API Error"), error="rate_limit")
    log.rows[-1]["message"]["model"] = "<synthetic>"
    items = found(log)
    assert roles(items) == ["user"]
    assert of_type(items, CallEnded) == []


async def test_lines_of_a_subagent_are_a_session_of_its_own(tmp_path: Path) -> None:
    log = ClaudeStream().user("go").answer("m", call("t1", "Task"))
    log.user("look", "t1").answer("a", call("t9"), agent="t1").result("t9", agent="t1")
    log.answer("b", text("seen"), agent="t1", agent_id="task-7")
    path = tmp_path / "run.jsonl"
    path.write_bytes(log.result("t1", "seen").answer("n", text("end")).over().data())
    done = await import_file(MemoryStore(), path, complete=True)
    counts = [(one.session, one.messages, one.calls) for one in done]
    assert counts == [("run", 4, 2), ("run.agent-t1", 3, 1), ("run.agent-task-7", 1, 1)]
    assert done[0].links == ("run.agent-t1", "run.agent-task-7")
    (first, _) = of_type(found(log), Linked)
    assert first.call_id == "t1"


async def test_a_list_of_the_lines_is_read_as_the_lines_are(tmp_path: Path) -> None:
    log = ClaudeStream().answer("m", call("t1")).user("look", "t1").result("t1")
    log.answer("n", text("end")).over()
    (tmp_path / "a.jsonl").write_bytes(log.data())
    (tmp_path / "b.json").write_text(json.dumps(log.rows, indent=1))
    lines, listed = [
        await import_file(MemoryStore(), tmp_path / name, complete=True)
        for name in ("a.jsonl", "b.json")
    ]
    assert [one.messages for one in listed] == [one.messages for one in lines] == [3, 1]
    assert {one.format for one in listed} == {"claude-stream"}


async def test_sessions_are_named_after_files_since_a_resumed_one_has_its_id_again(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    for name in ("first", "second"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(ClaudeStream().answer(name, text(name)).over().data())
        assert (await load(store, path)).session == name


def test_the_first_releases_and_amp_give_their_lines_no_id(tmp_path: Path) -> None:
    log = ClaudeStream().answer("m", text("a"))
    path = tmp_path / "x.jsonl"
    path.write_bytes(jsonl([{k: v for k, v in row.items() if k != "uuid"} for row in log.rows]))
    assert choose(path, None).name == "claude-stream"
