"""OpenHands' events, trap by trap (reference/formats.md 3.5): observations, condensations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.importers.formats.openhands import parse
from eventctx.importers.formats.openhands_messages import observation
from eventctx.importers.load import import_file
from eventctx.importers.source.items import (
    CompactionItem,
    MessageItem,
    Raw,
    TurnBegan,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import OpenHands, openhands_talk
from tests.importers.given import (
    items_of,
    of_type,
    raw_kinds,
    roles,
    salt,
    text,
    texts,
)


def test_thoughts_and_their_signatures_come_along_once() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "sig="}
    more = {"type": "thinking", "thinking": "so", "signature": "two="}
    log = OpenHands().action("c1", "r1", reasoning_content="hm", thinking_blocks=[block])
    log.action("c2", "r1", reasoning_content="hm", thinking_blocks=[block, more]).seen("c1")
    answer = texts(items_of(parse, log.data()))[0]
    assert answer["reasoning_content"] == "hm"
    assert answer["thinking_blocks"] == [block, more]


def test_errors_and_refusals_are_failed_results() -> None:
    log = OpenHands().action("c1", "r1").action("c2", "r1").action("c3", "r1")
    log.event("AgentErrorEvent", tool_call_id="c1", tool_name="run", error="no such tool")
    log.event("UserRejectObservation", tool_call_id="c2", rejection_reason="not that")
    results = of_type(items_of(parse, log.seen("c3", is_error=True).data()), MessageItem)[1:]
    assert [result.failed for result in results] == [True, True, True]
    contents = [result.message["content"] for result in results]
    heading = text("[An error occurred during execution.]\n")
    assert contents == ["no such tool", "Action rejected: not that", [heading, text("done")]]


def test_skills_are_told_after_the_words_and_images_one_by_one() -> None:
    message = {"role": "user", "content": [{"type": "image", "image_urls": ["u1", "u2"]}]}
    fields = {"llm_message": message, "extended_content": [text("s")]}
    log = OpenHands().event("MessageEvent", "user", **fields)
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in ("u1", "u2")]
    assert texts(items_of(parse, log.data()))[0]["content"] == [*urls, text("s")]


def test_only_a_persons_messages_begin_turns() -> None:
    note = {"role": "user", "content": "a hook says"}
    log = openhands_talk().event("MessageEvent", "environment", llm_message=note).user("more")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [2, 7]
    assert [item.line for item in of_type(found, MessageItem) if item.by_harness] == [6]


# -- bad input -----------------------------------------------------------------------------------


def test_an_event_whose_id_is_there_already_is_kept_and_warned_about() -> None:
    log = openhands_talk()
    log.rows.append(log.rows[1])
    found = items_of(parse, log.data())
    assert roles(found) == roles(items_of(parse, openhands_talk().data()))
    assert "MessageEvent.duplicate" in raw_kinds(found)
    assert len(of_type(found, Warned)) == 1


# -- condensations ---------------------------------------------------------------------------------


def test_an_answer_is_forgotten_when_all_its_calls_are() -> None:
    log = OpenHands().user("go").action("c1", "r1").action("c2", "r1").seen("c1").seen("c2")
    first, second = (
        of_type(items_of(parse, log.condensed(*ids).data()), CompactionItem)[-1]
        for ids in (("e1", "e3"), ("e2", "e4"))
    )
    assert first.forgotten == {2}
    assert second.forgotten == {1, 3}


def test_the_reason_of_a_request_is_the_condensations_trigger() -> None:
    log = (
        openhands_talk()
        .event("CondensationRequest", reason="manual")
        .condensed("e2")
        .condensed("e3")
    )
    found = of_type(items_of(parse, log.data()), CompactionItem)
    assert [item.trigger for item in found] == ["manual", None]


def test_older_releases_forget_summaries_under_ids_of_their_own() -> None:
    log = openhands_talk().condensed("e2", summary="one", summary_offset=2)
    log.condensed("some-other-id", "e3", summary="two", summary_offset=2)
    assert of_type(items_of(parse, log.data()), CompactionItem)[-1].standing == ()


async def shown(log: OpenHands, tmp_path: Path) -> list[list[Any]]:
    path = tmp_path / "run.jsonl"
    path.write_bytes(log.data())
    engine = Engine(MemoryStore())
    (summary,) = await import_file(engine.store, path, complete=True, salt=salt)
    assert summary.session is not None
    assert (await engine.verify(summary.session)).ok
    requests = []
    for row in (await engine.audit(summary.session)).requests:
        view = await engine.request_view(summary.session, position=row.position)
        assert view.consistent
        requests.append([message["content"][0]["text"] for message in view.messages])
    return requests


async def test_the_request_after_a_condensation_shows_what_was_left(tmp_path: Path) -> None:
    log = OpenHands().system()
    for number in range(1, 4):
        log.user(f"question {number}").says(f"answer {number}")
    log.condensed("e3", "e4", summary="S", summary_offset=3).user("on").says("x")
    kept = ["be good", "question 1", "answer 1"]
    assert (await shown(log, tmp_path))[-1] == [*kept, "S", "question 3", "answer 3", "on"]
    log.condensed("e7-summary", "e1", "e2", summary="T", summary_offset=1).user("and").says("y")
    last = (await shown(log, tmp_path / ".."))[-1]
    assert last == ["be good", "T", "question 3", "answer 3", "on", "x", "and"]


async def test_two_summaries_can_follow_each_other(tmp_path: Path) -> None:
    log = OpenHands().system()
    for number in range(1, 4):
        log.user(f"question {number}").says(f"answer {number}")
    log.condensed("e1", "e2", summary="S", summary_offset=1).user("on").says("x")
    log.condensed("e5", summary="T", summary_offset=4).user("and").says("y")
    log.condensed("e8", summary="U", summary_offset=5).user("last").says("z")
    last = (await shown(log, tmp_path))[-1]
    begin = ["be good", "S", "question 2", "answer 2", "T", "U"]
    assert last == [*begin, "answer 3", "x", "and", "y", "last"]


async def test_a_summary_that_no_message_follows_is_the_last_entry(tmp_path: Path) -> None:
    log = OpenHands().system().user("go").says("ok").condensed("e2", summary="S", summary_offset=2)
    assert (await shown(log.says("x"), tmp_path))[-1] == ["be good", "go", "S"]
    last = (await shown(log.user("on").says("y"), tmp_path / ".."))[-1]
    assert last == ["be good", "go", "S", "x", "on"]


# -- observations as the model is shown them -------------------------------------------------------

HEADING = text("[An error occurred during execution.]\n")
JPEG, PNG = "/9j/4AAQ", "iVBORw0KGgoAAAA"


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """An event with an observation of this kind."""
    about = {"tool_name": "t", "tool_call_id": "c1", "action_id": "a1", "id": "e1"}
    row = {"kind": "ObservationEvent", "source": "environment", **about}
    row["timestamp"] = "2026-01-01T10:00:00.250000"
    return {**row, "observation": {"kind": kind, **fields}}


def content(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"cache_prompt": False, **text(one)} for one in texts], **fields}


def terminal(output: str, code: int = 0, **fields: Any) -> dict[str, Any]:
    about = {"exit_code": code, "pid": 7, "working_dir": "/w", "prefix": "", "suffix": ""}
    metadata = {**about, **fields.pop("metadata", {})}
    return event(
        "TerminalObservation", **content(output, command="ls", metadata=metadata, **fields)
    )


def blocks(row: dict[str, Any]) -> Any:
    made = observation(row)
    assert made is not None
    return made.message["content"]


# -- the kinds with rules of their own -------------------------------------------------------------


def test_a_commands_output_is_followed_by_its_folder_and_exit_code() -> None:
    suffix = {"suffix": "\n[The command completed with exit code 0.]"}
    assert blocks(terminal("listing", metadata=suffix)) == [
        text(
            "listing\n[The command completed with exit code 0.]\n"
            "[Current working directory: /w]\n[Command finished with exit code 0]"
        )
    ]
    python = {"py_interpreter_path": "/usr/bin/python", "prefix": "[Below is the output]\n"}
    assert blocks(terminal("x", 2, metadata=python, is_error=True)) == [
        HEADING,
        text(
            "[Below is the output]\nx\n[Current working directory: /w]\n"
            "[Python interpreter: /usr/bin/python]\n[Command finished with exit code 2]"
        ),
    ]


def test_a_command_that_still_runs_has_no_exit_code() -> None:
    assert blocks(terminal("x", -1, metadata={"working_dir": None})) == [text("x")]


def test_a_field_that_says_false_is_no_line_of_the_output() -> None:
    metadata = {"exit_code": 0, "working_dir": "/w"}
    for kind in ("ExecuteBashObservation", "TerminalObservation"):
        row = event(kind, output="done", command="ls", error=False, metadata=metadata)
        end = "\n[Current working directory: /w]\n[Command finished with exit code 0]"
        assert blocks(row) == [text(f"done{end}")]
        row = event(kind, output="done", command="ls", error=True, metadata=metadata)
        told = f"[There was an error during command execution.]\ndone{end}"
        assert blocks(row) == [text(told)]


def test_a_files_editor_shows_its_content_with_a_heading_where_it_failed() -> None:
    fields = {"command": "view", "path": "/w/a", "prev_exist": True, "old_content": "secret"}
    assert blocks(event("FileEditorObservation", **content("1 x", **fields))) == [text("1 x")]
    failed = event("FileEditorObservation", **content("no such file", is_error=True, **fields))
    assert blocks(failed) == [HEADING, text("no such file")]
    older = {"command": "view", "output": "1 x", "error": None}
    assert blocks(event("FileEditorObservation", **older)) == [text("1 x")]
    older = {"command": "view", "output": "", "error": "no such file"}
    assert blocks(event("FileEditorObservation", **older)) == [text("no such file")]


def test_a_browser_shows_its_page_and_its_picture() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{JPEG}"}}
    row = event("BrowserObservation", **content("page", screenshot_data=JPEG))
    assert blocks(row) == [text("page"), picture]
    row["observation"]["full_output_save_dir"] = "/w/out"
    saved = blocks(row)[1]["text"]
    assert saved.startswith("Screenshot saved to: /w/out/browser_screenshot_")
    assert saved.endswith(".jpg")
    older = {"output": "page", "error": None, "screenshot_data": PNG}
    assert blocks(event("BrowserObservation", **older))[0] == text("page")
    older = {"output": "", "error": "boom", "screenshot_data": None}
    assert blocks(event("BrowserObservation", **older)) == [text("Error: boom")]


def test_long_texts_lose_their_middle() -> None:
    (shown,) = blocks(terminal("a" * 20_000 + "b" * 20_000))
    assert len(shown["text"]) == 30_000
    assert shown["text"].startswith("aaa")
    assert "<response clipped>" in shown["text"]
    assert shown["text"].endswith("[Command finished with exit code 0]")
    (shown,) = blocks(terminal("a\n" * 20_000, full_output_save_dir="/w/out/"))
    assert "has been saved to /w/out/terminal_output_" in shown["text"]
    (shown,) = blocks(event("GrepObservation", **content("x" * 60_000)))
    assert len(shown["text"]) == 50_000


def test_a_long_text_stays_whole_with_the_message() -> None:
    log = OpenHands().action("c1", "r1").seen("c1", "x" * 60_000)
    kept = [json.loads(raw.data) for raw in of_type(items_of(parse, log.data()), Raw)]
    assert kept[-1]["observation"]["content"] == [text("x" * 60_000)]
    log = OpenHands().action("c1", "r1").seen("c1", "short")
    kept = [json.loads(raw.data) for raw in of_type(items_of(parse, log.data()), Raw)]
    assert "content" not in kept[-1]["observation"]


def test_other_kinds_show_what_they_were_made_to_show() -> None:
    task = content("done", task_id="7", subagent="helper", status="completed")
    lines = "Task ID: 7\nSubagent: helper\nStatus: completed"
    assert blocks(event("TaskObservation", **task)) == [text(lines), text("done")]
    called = content("[Tool 'look' executed.]", "found", tool_name="look")
    assert blocks(event("MCPToolObservation", **called)) == [
        text("[Tool 'look' executed.]"),
        text("found"),
    ]
    older = content("found", tool_name="look", is_error=True)
    told = "[Tool 'look' executed.]\n[An error occurred during execution.]\n"
    assert blocks(event("MCPToolObservation", **older)) == [text(told), text("found")]
    advice = content(suggestions="Ask.", reasoning="Unclear.", confidence=0.5)
    assert blocks(event("ConsultTomObservation", **advice)) == [
        text("Tom agent's guidance:\nAsk.\n\nReasoning: Unclear.\n\nConfidence: 50%")
    ]
    assert blocks(event("FinishObservation", message="bye")) == [text("bye")]


def test_searches_before_1_0_say_what_they_found() -> None:
    files = {"files": ["/w/a"], "pattern": "*.py", "search_path": "/w", "truncated": False}
    assert blocks(event("GlobObservation", **files)) == [
        text("Found 1 file(s) matching pattern '*.py' in '/w':\n/w/a")
    ]
    none = {"matches": [], "pattern": "x", "search_path": "/w", "include_pattern": "*.c"}
    assert blocks(event("GrepObservation", **none)) == [
        text("No files found containing pattern 'x' in directory '/w' (filtered by '*.c')")
    ]


def test_an_unknown_kind_shows_its_content_or_else_all_that_it_says() -> None:
    row = event("HologramObservation", **content("a", "b", beam=3, is_error=True))
    assert blocks(row) == [HEADING, text("a"), text("b")]
    assert blocks(event("HologramObservation", beam=3)) == [text('{"beam":3}')]
    assert blocks(event("HologramObservation", output="seen", beam=3)) == [text("seen")]
    made = observation(event("HologramObservation", beam=3))
    assert made is not None
    assert made.rest["observation"] == {"kind": "HologramObservation", "beam": 3}


# -- the packages themselves -----------------------------------------------------------------------


def recorded(root: Path) -> list[dict[str, Any]]:
    files = sorted((root / "openhands" / "cli447_case_a").iterdir())
    listed = root / "openhands" / "openagentsafety-traj_safety-metrics.json"
    rows = [json.loads(file.read_bytes()) for file in files] + json.loads(listed.read_bytes())
    return [row for row in rows if row["kind"] == "ObservationEvent"]


def test_every_recorded_result_is_shown(recorded_sessions: Path) -> None:
    for row in recorded(recorded_sessions):
        seen = row["observation"]
        told = "".join(block.get("text", "") for block in blocks(row))
        given = seen.get("output") or "".join(one["text"] for one in seen.get("content", []))
        assert given[:1000] in told
        assert "\nfalse" not in told
