"""OpenHands' events and pi's sessions, trap by trap (reference/formats.md 3.5 and 3.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.formats.openhands import parse
from eventctx.importers.formats.openhands_messages import observation
from eventctx.importers.formats.pi import parse as parse_pi
from eventctx.importers.source.items import (
    Branched,
    CompactionItem,
    Item,
    MessageItem,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Warned,
)
from tests.importers.agents import OpenHands, Pi, openhands_talk, pi_call
from tests.importers.given import text, thinking
from tests.importers.items import items_of, of_type, raw_kinds, roles, texts
from tests.importers.taken import events, load_data, shown

HEADING = text("[An error occurred during execution.]\n")


def test_thoughts_and_events_come_along_once() -> None:
    block, more = thinking("hm", "sig="), thinking("so", "two=")
    log = OpenHands().action("c1", "r1", reasoning_content="hm", thinking_blocks=[block])
    log.action("c2", "r1", reasoning_content="hm", thinking_blocks=[block, more]).seen("c1")
    answer = texts(items_of(parse, log.data()))[0]
    assert (answer["reasoning_content"], answer["thinking_blocks"]) == ("hm", [block, more])
    log = openhands_talk()
    before = roles(items_of(parse, log.data()))
    log.rows.append(log.rows[1])
    found = items_of(parse, log.data())
    assert (roles(found), len(of_type(found, Warned))) == (before, 1)
    assert "MessageEvent.duplicate" in raw_kinds(found)


def test_errors_and_refusals_are_failed_results() -> None:
    log = OpenHands().action("c1", "r1").action("c2", "r1").action("c3", "r1")
    log.event("AgentErrorEvent", tool_call_id="c1", tool_name="run", error="no such tool")
    log.event("UserRejectObservation", tool_call_id="c2", rejection_reason="not that")
    results = of_type(items_of(parse, log.seen("c3", is_error=True).data()), MessageItem)[1:]
    assert all(result.failed for result in results)
    contents = [result.message["content"] for result in results]
    assert contents == ["no such tool", "Action rejected: not that", [HEADING, text("done")]]


def test_a_persons_messages_begin_turns_with_skills_behind_them() -> None:
    message = {"role": "user", "content": [{"type": "image", "image_urls": ["u1", "u2"]}]}
    fields = {"llm_message": message, "extended_content": [text("s")]}
    log = OpenHands().event("MessageEvent", "user", **fields)
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in ("u1", "u2")]
    assert texts(items_of(parse, log.data()))[0]["content"] == [*urls, text("s")]
    note = {"role": "user", "content": "a hook says"}
    log = openhands_talk().event("MessageEvent", "environment", llm_message=note).user("more")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [2, 7]
    assert [item.line for item in of_type(found, MessageItem) if item.by_harness] == [6]


# -- condensations ---------------------------------------------------------------------------------


def condensations(log: OpenHands) -> list[Any]:
    return of_type(items_of(parse, log.data()), CompactionItem)


def test_a_condensation_forgets_answers_whose_calls_are_all_forgotten() -> None:
    log = OpenHands().user("go").action("c1", "r1").action("c2", "r1").seen("c1").seen("c2")
    log.event("CondensationRequest", reason="manual").condensed("e1", "e3").condensed("e2", "e4")
    found = [(item.forgotten, item.trigger) for item in condensations(log)]
    assert found == [({2}, "manual"), ({1, 3}, None)]
    # Older releases forget summaries under ids of their own.
    log = openhands_talk().condensed("e2", summary="one", summary_offset=2)
    log.condensed("some-other-id", "e3", summary="two", summary_offset=2)
    assert condensations(log)[-1].standing == ()


def three_questions() -> OpenHands:
    log = OpenHands().system()
    for number in range(1, 4):
        log.user(f"question {number}").says(f"answer {number}")
    return log


async def test_the_request_after_a_condensation_shows_what_was_left(tmp_path: Path) -> None:
    log = three_questions().condensed("e3", "e4", summary="S", summary_offset=3)
    log.user("on").says("x").condensed("e7-summary", "e1", "e2", summary="T", summary_offset=1)
    *_, first, second = await shown(tmp_path, log.user("and").says("y").data())
    kept = ["be good", "question 1", "answer 1"]
    assert first == [*kept, "S", "question 3", "answer 3", "on"]
    assert second == ["be good", "T", "question 3", "answer 3", "on", "x", "and"]
    # A summary that no message follows is the last entry.
    log = OpenHands().system().user("go").says("ok").condensed("e2", summary="S", summary_offset=2)
    *_, first, second = await shown(tmp_path / "2", log.says("x").user("on").says("y").data())
    assert (first, second) == (["be good", "go", "S"], ["be good", "go", "S", "x", "on"])
    log = three_questions().condensed("e1", "e2", summary="S", summary_offset=1)
    log.user("on").says("x").condensed("e5", summary="T", summary_offset=4).user("and").says("y")
    log.condensed("e8", summary="U", summary_offset=5).user("last").says("z")
    begin = ["be good", "S", "question 2", "answer 2", "T", "U"]
    last = (await shown(tmp_path, log.data()))[-1]
    assert last == [*begin, "answer 3", "x", "and", "y", "last"]


# -- observations as the model is shown them -------------------------------------------------------


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """An event with an observation of this kind."""
    (row,) = OpenHands().seen("c1").rows
    return {**row, "observation": {"kind": kind, **fields}}


def seen(kind: str, *texts: str, **fields: Any) -> Any:
    """What the model is shown of an observation, which has a content if there are texts."""
    content = [{"cache_prompt": False, **text(one)} for one in texts]
    made = observation(event(kind, **({"content": content} if texts else {}), **fields))
    assert made is not None
    return made.message["content"]


def terminal(output: str, code: int = 0, **fields: Any) -> Any:
    about = {"exit_code": code, "pid": 7, "working_dir": "/w", "prefix": "", "suffix": ""}
    metadata = {**about, **fields.pop("metadata", {})}
    return seen("TerminalObservation", output, command="ls", metadata=metadata, **fields)


def test_a_commands_output_is_followed_by_its_folder_and_exit_code() -> None:
    end = "[Current working directory: /w]\n[Command finished with exit code 0]"
    done = "\n[The command completed with exit code 0.]"
    assert terminal("listing", metadata={"suffix": done}) == [text(f"listing{done}\n{end}")]
    begin, python = "[Below is the output]\n", "/usr/bin/python"
    about = {"py_interpreter_path": python, "prefix": begin}
    end_2 = f"[Current working directory: /w]\n[Python interpreter: {python}]\n"
    failed = text(f"{begin}x\n{end_2}[Command finished with exit code 2]")
    assert terminal("x", 2, metadata=about, is_error=True) == [HEADING, failed]
    # One that still runs has none; and a field that says false is no line of the output.
    assert terminal("x", -1, metadata={"working_dir": None}) == [text("x")]
    told = {"output": "done", "command": "ls", "metadata": {"exit_code": 0, "working_dir": "/w"}}
    told_of = "[There was an error during command execution.]\n"
    for kind in ("ExecuteBashObservation", "TerminalObservation"):
        assert seen(kind, **told, error=False) == [text(f"done\n{end}")]
        assert seen(kind, **told, error=True) == [text(f"{told_of}done\n{end}")]


def test_a_files_editor_shows_its_content_with_a_heading_where_it_failed() -> None:
    fields = {"command": "view", "path": "/w/a", "prev_exist": True, "old_content": "secret"}
    kind, failed = "FileEditorObservation", "no such file"
    assert seen(kind, "1 x", **fields) == [text("1 x")]
    assert seen(kind, failed, is_error=True, **fields) == [HEADING, text(failed)]
    assert seen(kind, command="view", output="1 x", error=None) == [text("1 x")]
    assert seen(kind, command="view", output="", error=failed) == [text(failed)]


def test_a_browser_shows_its_page_and_its_picture() -> None:
    kind, jpeg = "BrowserObservation", "/9j/4AAQ"
    picture = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}}
    assert seen(kind, "page", screenshot_data=jpeg) == [text("page"), picture]
    saved = seen(kind, "page", screenshot_data=jpeg, full_output_save_dir="/w/out")[1]
    assert saved["text"].startswith("Screenshot saved to: /w/out/browser_screenshot_")
    assert saved["text"].endswith(".jpg")
    png = {"error": None, "screenshot_data": "iVBORw0KGgoAAAA"}
    assert seen(kind, output="page", **png)[0] == text("page")
    none = {"error": "boom", "screenshot_data": None}
    assert seen(kind, output="", **none) == [text("Error: boom")]


def test_long_texts_and_unknown_kinds_stay_whole_beside_the_message() -> None:
    (told,) = [block["text"] for block in terminal("a" * 20_000 + "b" * 20_000)]
    assert (len(told), told[:3]) == (30_000, "aaa")
    assert "<response clipped>" in told
    assert told.endswith("[Command finished with exit code 0]")
    (told,) = [one["text"] for one in terminal("a\n" * 20_000, full_output_save_dir="/w/out/")]
    assert "has been saved to /w/out/terminal_output_" in told
    assert len(seen("GrepObservation", "x" * 60_000)[0]["text"]) == 50_000
    log = OpenHands().action("c1", "r1").seen("c1", "x" * 60_000).seen("c1", "short")
    *_, long, short = [json.loads(raw.data) for raw in of_type(items_of(parse, log.data()), Raw)]
    assert long["observation"]["content"] == [text("x" * 60_000)]
    assert "content" not in short["observation"]
    made = observation(event("HologramObservation", beam=3))
    assert made is not None
    assert made.rest["observation"] == {"kind": "HologramObservation", "beam": 3}


FILES = {"files": ["/w/a"], "pattern": "*.py", "search_path": "/w", "truncated": False}
NONE = {"matches": [], "pattern": "x", "search_path": "/w", "include_pattern": "*.c"}
TASK = {"task_id": "7", "subagent": "helper", "status": "completed"}
ADVICE = {"suggestions": "Ask.", "reasoning": "Unclear.", "confidence": 0.5}
LOOK = "[Tool 'look' executed.]"
KINDS: list[tuple[str, tuple[str, ...], dict[str, Any], list[str]]] = [
    ("Task", ("done",), TASK, ["Task ID: 7\nSubagent: helper\nStatus: completed", "done"]),
    ("MCPTool", (LOOK, "found"), {"tool_name": "look"}, [LOOK, "found"]),
    (
        *("MCPTool", ("found",), {"tool_name": "look", "is_error": True}),
        [f"{LOOK}\n{HEADING['text']}", "found"],
    ),
    (
        *("ConsultTom", (), {"content": [], **ADVICE}),
        ["Tom agent's guidance:\nAsk.\n\nReasoning: Unclear.\n\nConfidence: 50%"],
    ),
    ("Finish", (), {"message": "bye"}, ["bye"]),
    # Searches before 1.0 say what they found.
    ("Glob", (), FILES, ["Found 1 file(s) matching pattern '*.py' in '/w':\n/w/a"]),
    (
        *("Grep", (), NONE),
        ["No files found containing pattern 'x' in directory '/w' (filtered by '*.c')"],
    ),
    # An unknown kind shows its content, or else all that it says.
    ("Hologram", ("a", "b"), {"beam": 3, "is_error": True}, [HEADING["text"], "a", "b"]),
    ("Hologram", (), {"beam": 3}, ['{"beam":3}']),
    ("Hologram", (), {"output": "seen", "beam": 3}, ["seen"]),
]


@pytest.mark.parametrize(("kind", "given", "fields", "expected"), KINDS)
def test_other_kinds_show_what_they_were_made_to_show(
    kind: str, given: tuple[str, ...], fields: dict[str, Any], expected: list[str]
) -> None:
    assert seen(f"{kind}Observation", *given, **fields) == [text(one) for one in expected]


def test_every_recorded_result_is_shown(recorded_sessions: Path) -> None:
    root = recorded_sessions / "openhands"
    rows = [json.loads(file.read_bytes()) for file in (root / "cli447_case_a").iterdir()]
    rows += json.loads((root / "openagentsafety-traj_safety-metrics.json").read_bytes())
    for row in [row for row in rows if row["kind"] == "ObservationEvent"]:
        made = observation(row)
        assert made is not None
        told = "".join(block.get("text", "") for block in made.message["content"])
        seen = row["observation"]
        given = seen.get("output") or "".join(one["text"] for one in seen.get("content", []))
        assert given[:1000] in told
        assert "\nfalse" not in told


# -- pi --------------------------------------------------------------------------------------------


def pi_items(log: Pi) -> list[Item]:
    return items_of(parse_pi, log.data())


def test_images_and_sealed_thoughts_are_told_in_anthropics_words() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "X"}
    log = Pi().says("user", [image])
    log.answer({**sealed, "redacted": True}, {**pi_call("c"), "partialJson": "{"})
    user, answer, signed = texts(pi_items(log.answer(sealed)))
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert user["content"] == [{"type": "image", "source": source}]
    assert answer["content"][0]["data"] == "X"
    assert answer["content"][1]["partialJson"] == "{"
    assert signed["role"] == "assistant"  # a signature is sent even without words


def test_commands_extensions_and_summaries_of_branches_are_no_persons_words() -> None:
    log = Pi(tree=True).user("go").answer(text("x"))
    ran = {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0}
    log.entry("message", message=ran).entry("custom_message", customType="x", content="hello")
    log.says("hookMessage", "hello").entry("branch_summary", summary="tried", fromId="e1")
    found = of_type(pi_items(log.user('<skill name="s">x</skill>')), MessageItem)
    assert [m.by_harness for m in found] == [False, False, True, True, True, True, False]


async def test_who_spoke_is_known_when_a_branch_is_taken_up_again(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).entry("custom_message", customType="x", content="hello")
    log.entry("compaction", summary="S", firstKeptEntryId="e7").back_to("e7").user("on")
    store, summary = await load_data(tmp_path, log.answer(text("y")).data())
    session = summary.session or ""
    assert (await events(store, session, "context:messages_set"))[-1].harness == (6,)
    async with Engine(store) as engine:
        assert (await engine.verify(session)).ok
        assert [m.origin for m in await engine.transcript(session)][-3:] == ["harness", None, None]


def test_an_error_ends_a_turn_if_it_was_not_tried_again() -> None:
    log = Pi().user("go").answer(stop="error", errorMessage="overloaded").answer(text("ok"))
    log.user("more").answer(stop="error", errorMessage="terminated").user("hm")
    ends = [(e.line, e.status, e.error) for e in of_type(pi_items(log), TurnEnded)]
    assert ends == [(7, "error", "terminated")]


def test_a_command_of_the_person_is_told_to_the_model_and_begins_no_turn() -> None:
    ran = {"role": "bashExecution", "command": "ls", "exitCode": 2, "cancelled": False}
    log = Pi().entry("message", message={**ran, "output": "a\nb"})
    log.entry("message", message={**ran, "output": "", "cancelled": True})
    found = pi_items(log.entry("message", message={**ran, "excludeFromContext": True}))
    told = [message["content"][0]["text"] for message in texts(found)]
    assert told[0] == "Ran `ls`\n```\na\nb\n```\n\nCommand exited with code 2"
    assert told[1:] == ["Ran `ls`\n(no output)\n\n(command cancelled)"]
    assert of_type(found, TurnBegan) == []
    assert raw_kinds(found).count("message/bashExecution") == 3


def test_parents_of_sessions_and_of_entries_are_told() -> None:
    log = Pi(parentSession="C:\\x\\2026-01-01T10-00-00_old-id.jsonl").user("x")
    session = of_type(pi_items(log), Session)[0]
    assert (session.parent, session.link, session.agent) == ("old-id", "branch", None)
    found = pi_items(Pi(tree=True).user("a").back_to("lost").user("b"))
    assert (of_type(found, Branched), len(of_type(found, Warned))) == ([], 1)
    again, own = {"role": "user", "content": "b"}, {"role": "user", "content": "c"}
    log = Pi(tree=True).user("a").entry("message", id="e1", message=again)
    log.entry("message", id="e9", parentId="e9", message=own).back_to("e1").user("d")
    found = pi_items(log)
    assert roles(found) == ["user"] * 4
    assert len(of_type(found, Warned)) >= 1


def long_talk(log: Pi) -> Pi:
    for number in range(1, 4):
        log.user(f"question {number}").answer(text(f"answer {number}"))
    return log


@pytest.mark.parametrize(
    "kept",
    [{}, {"firstKeptEntryIndex": 99}, {"firstKeptEntryIndex": "2"}, {"firstKeptEntryId": "gone"}],
)
def test_a_compaction_whose_first_kept_entry_is_missing_keeps_none(kept: dict[str, Any]) -> None:
    found = pi_items(long_talk(Pi()).entry("compaction", summary="S", **kept))
    assert of_type(found, CompactionItem)[0].kept_from is None
    assert "not in the file" in of_type(found, Warned)[0].text


async def test_the_request_after_a_compaction_is_its_summary_and_tail(tmp_path: Path) -> None:
    log = long_talk(Pi()).entry("compaction", summary="S", firstKeptEntryIndex=5)
    summary, *last = (await shown(tmp_path, log.user("on").answer(text("x")).data()))[-1]
    assert "S" in summary
    assert last == ["question 3", "answer 3", "on"]


async def test_after_going_back_the_branch_that_was_left_is_not_sent(tmp_path: Path) -> None:
    log = long_talk(Pi(tree=True)).back_to("e2")
    log.entry("branch_summary", summary="tried", fromId="x").user("other").answer(text("y"))
    *begin, tried, last = (await shown(tmp_path, log.data()))[-1]
    assert (begin, last) == (["question 1", "answer 1"], "other")
    assert "tried" in tried


async def test_going_back_before_a_compaction_takes_it_back_and_within_it_does_not(
    tmp_path: Path,
) -> None:
    log = long_talk(Pi(tree=True)).entry("compaction", summary="S", firstKeptEntryId="e5")
    log.user("on").answer(text("x")).back_to("e4").user("other").answer(text("y"))
    log.back_to("e9").user("more").answer(text("z")).back_to("e8").user("again").answer(text("v"))
    *_, before, behind, within = await shown(tmp_path, log.data())
    assert before == ["question 1", "answer 1", "question 2", "answer 2", "other"]
    assert ("S" in behind[0], "S" in within[0]) == (True, True)
    assert behind[1:] == ["question 3", "answer 3", "on", "x", "more"]
    assert within[1:] == ["question 3", "answer 3", "on", "again"]
