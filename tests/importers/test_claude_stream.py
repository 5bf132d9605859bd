"""The output of ``claude -p --output-format stream-json``, trap by trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import NotATranscript
from eventctx.importers.detect import choose
from eventctx.importers.formats.claude_stream import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Linked,
    MessageItem,
    ModelCall,
    TurnBegan,
    TurnEnded,
    TurnMeasured,
    Undone,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import always, call, items_of, jsonl, load, of_type, roles, text
from tests.importers.outputs import ClaudeStream

BOUNDARY = {"trigger": "auto", "pre_tokens": 900, "duration_ms": 30}


def found(log: ClaudeStream) -> list[Any]:
    return items_of(parse, log.data(), always)


def test_lines_of_one_answer_are_one_message_and_one_call() -> None:
    log = ClaudeStream().user("go").answer("m", text("a")).answer("m", call("t")).result("t")
    items = found(log.answer("n", text("b")).over())
    assert roles(items) == ["user", "assistant", "user", "assistant"]
    calls = of_type(items, ModelCall)
    assert [(one.model, one.usage.prompt) for one in calls] == [("claude-test-1", 543)] * 2


def test_an_answer_begins_a_turn_where_the_prompt_is_not_in_the_output() -> None:
    log = ClaudeStream().answer("m", text("a")).over().answer("n", text("b")).over()
    items = found(log)
    assert len(of_type(items, TurnBegan)) == len(of_type(items, TurnEnded)) == 2
    assert [one.duration for one in of_type(items, TurnMeasured)] == [1_500_000_000] * 2
    (warning,) = of_type(items, Warned)
    assert "the prompt is not in the output" in warning.text


def test_a_prompt_that_was_replayed_begins_the_turn() -> None:
    items = found(ClaudeStream().user("go", isReplay=True).answer("m", text("a")).over())
    assert len(of_type(items, TurnBegan)) == 1
    assert of_type(items, Warned) == []


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


def test_partial_messages_give_the_true_count_of_an_answer() -> None:
    log = ClaudeStream().event("message_start").answer("m", text("a"))
    log.event("message_delta", usage={"output_tokens": 77, "input_tokens": 0}).over()
    (one,) = of_type(found(log), ModelCall)
    assert (one.usage.output, one.usage.prompt, one.output_exact) == (77, 543, True)


def test_the_summary_after_a_boundary_is_its_compaction() -> None:
    log = ClaudeStream().user("go").answer("m", text("a"))
    log.system("compact_boundary", compact_metadata=BOUNDARY)
    log.user("In short.", isSynthetic=True).user("<local-command-stdout>Done", isReplay=True)
    items = found(log.answer("n", text("b")))
    (one,) = of_type(items, CompactionItem)
    assert [part["content"] for part in one.messages] == ["In short."]
    assert (one.trigger, one.tokens_before, one.took) == ("auto", 900, 30_000_000)
    assert len(of_type(items, TurnBegan)) == 1


def test_a_compaction_without_its_summary_is_one_all_the_same() -> None:
    log = ClaudeStream().user("go").answer("m", text("a"))
    log.system("compact_boundary", compact_metadata=BOUNDARY).answer("n", text("b")).over()
    items = found(log)
    (one,) = of_type(items, CompactionItem)
    assert (one.messages, one.tokens_before) == ((), 900)
    assert "the summary of a compaction is not in the output" in of_type(items, Warned)[0].text


def test_what_the_program_wrote_begins_no_turn() -> None:
    log = ClaudeStream().user("go").answer("m", call("t")).user("a skill", isSynthetic=True)
    harness = [one.by_harness for one in of_type(found(log.result("t")), MessageItem)]
    assert harness.count(True) == 1
    assert len(of_type(found(log), TurnBegan)) == 1


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


async def test_text_around_the_lines_is_kept_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    data = ClaudeStream().answer("m", text("a")).over().data()
    path.write_bytes(b"Warning: no stdin\n" + data + b"npm notice\n")
    done = await load(MemoryStore(), path)
    assert (done.messages, done.unknown) == (1, {"unreadable": 2})


def test_the_first_releases_and_amp_give_their_lines_no_id(tmp_path: Path) -> None:
    log = ClaudeStream().answer("m", text("a"))
    path = tmp_path / "x.jsonl"
    path.write_bytes(jsonl([{k: v for k, v in row.items() if k != "uuid"} for row in log.rows]))
    assert choose(path, None).name == "claude-stream"


async def test_the_result_alone_is_no_session(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(jsonl(ClaudeStream().over().rows[1:]))
    with pytest.raises(NotATranscript, match="result of a Claude Code run"):
        await load(MemoryStore(), path)
