"""Codex: rollouts, trap by trap (reference/formats.md 3.2), and the output of ``codex exec``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.formats.codex import parse
from eventctx.importers.formats.codex_exec import parse as parse_exec
from eventctx.importers.many import import_paths
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Undone,
    Warned,
)
from eventctx.log.usage import Usage
from eventctx.stores.memory import MemoryStore
from tests.importers.given import Codex, jsonl, put, raw_bytes
from tests.importers.items import always, ended_usages, items_of, of_type, roles, texts
from tests.importers.outputs import CodexExec
from tests.importers.taken import events, first_text, load, load_data, records, shown, views


def test_lines_of_every_other_kind_are_known_or_kept() -> None:
    log = Codex().says("user", "a").item("telepathy", thought="x").says("assistant", "b")
    log.line("session_meta", id="other")
    log.event("token_count", info=None).line("token_usage_record", usage={})
    log.line("world_state", state={}).item("ghost_snapshot", commit="x")
    log.line("inter_agent_communication_metadata", trigger_turn=True)
    for event in ("item_completed", "sub_agent_activity", "thread_settings_applied", "new_event"):
        log.event(event)
    found = items_of(parse, log.line("moon_phase", x=1).data())
    assert len(of_type(found, Session)) == 1
    assert of_type(found, CallEnded) == []
    assert (texts(found)[2], len(texts(found))) == ({"type": "telepathy", "thought": "x"}, 4)
    unknown = [raw.kind for raw in of_type(found, Raw) if not raw.understood]
    assert unknown == ["event_msg/new_event", "moon_phase"]


def test_a_count_that_is_written_again_is_not_that_of_an_interrupted_call() -> None:
    log = Codex().says("user", "x").calls("c1").counted(100, 100).output("c1").item("reasoning")
    log.event("turn_aborted").says("user", "y").counted(100, 100)
    log.says("assistant", "z").counted(100, 100).counted(300, 400)
    ends = of_type(items_of(parse, log.data()), CallEnded)
    assert [end.usage and end.usage.prompt for end in ends] == [100, None, 300]


def test_words_of_the_harness_or_of_another_agent_begin_no_turn() -> None:
    log = Codex().says("user", "# AGENTS.md instructions for /x\n…")
    log.says("user", "<environment_context>…").says("developer", "rules").says("user", "do it")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [5]
    content = [{"type": "input_text", "text": "found it"}]
    log = Codex().says("user", "go").item("agent_message", author="/root/x", content=content)
    assert texts(items_of(parse, log.data()))[-1] == log.payloads()[-1]
    assert told(log) == ["turn", "go", "found it"]
    log = Codex()
    for kinds in (["context.x"], ["user.text"], ["context.x", "user.text"], [], "?"):
        about = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds}}
        content = [{"type": "input_text", "text": "x"}] * (len(kinds) or 1)
        log.item("message", role="user", content=content, **about)
    found = items_of(parse, log.data())
    assert [m.by_harness for m in of_type(found, MessageItem)][1:] == [True, *[False] * 4]
    assert len(of_type(found, TurnBegan)) == 4


def test_an_older_compaction_has_only_its_summary() -> None:
    log = Codex().says("user", "x").line("compacted", message="in short")
    compaction = of_type(items_of(parse, log.data()), CompactionItem)[0]
    assert compaction.messages[0]["content"][0]["text"] == "in short"


# -- messages that only events have --------------------------------------------------------------


def told(log: Codex) -> list[str]:
    """What was said, where turns and calls of the model begin, and where these end."""
    story: list[str] = []
    for item in items_of(parse, log.data()):
        if isinstance(item, TurnBegan | ModelCall | CallEnded):
            story.append({TurnBegan: "turn", ModelCall: "call", CallEnded: "end"}[type(item)])
        elif isinstance(item, MessageItem) and item.message.get("role") != "system":
            content = item.message.get("content")
            story.append(content[0]["text"] if content else item.message["type"])
    return story


def test_a_rollout_of_events_alone_has_its_messages() -> None:
    log = Codex().event("user_message", message="go").event("agent_reasoning", text="hm")
    log.event("agent_message", message="first").event("agent_message", message="done")
    log.counted(100, 100).event("task_complete")
    assert told(log) == ["turn", "go", "call", "first", "done", "end"]
    found = items_of(parse, log.data())
    assert [usage.prompt for usage in ended_usages(found)] == [100]
    assert texts(found)[1:3] == Codex().says("user", "go").says("assistant", "first").payloads()


def test_an_event_and_the_item_that_repeats_it_are_one_message() -> None:
    log = Codex().says("user", "go").event("user_message", message="go")
    log.event("agent_message", message="I will").item("reasoning", summary=[])
    log.says("assistant", "I will").calls("c").output("c").says("assistant", "done")
    found = told(log.event("agent_message", message="done").event("task_complete"))
    assert found[:6] == ["turn", "go", "call", "reasoning", "I will", "function_call"]
    assert found[6:] == ["end", "function_call_output", "call", "done", "end"]
    # It leaves out what the interface does not show.
    mark, image = "<image name=[Image #1]>", {"type": "input_image", "image_url": "data:,AA"}
    content = [{"type": "input_text", "text": mark}, image, {"type": "input_text", "text": "look"}]
    log = Codex().event("user_message", message="look")
    log.item("message", role="user", content=content)
    log.event("agent_message", message="A cat.").says("assistant", "A cat.<cite>m</cite>")
    found = told(log.event("task_complete"))
    assert found == ["turn", mark, "call", "A cat.<cite>m</cite>", "end"]
    log = Codex().says("user", "go").event("agent_message", message="I look").calls("c")
    log.output("c").event("agent_message", message="I found").says("assistant", "something else")
    found = told(log.event("user_message", message="").event("agent_message", message=None))
    assert found[:6] == ["turn", "go", "call", "I look", "function_call", "end"]
    assert found[6:] == ["function_call_output", "call", "I found", "something else"]


# -- turns that were taken back: no later view holds them ------------------------------------------


def says(log: Codex, *words: str, task: bool = True) -> Codex:
    """A turn: a person's words, the answer, and what else is said in it."""
    if task:
        log.event("task_started")
    for place, one in enumerate(words):
        log.says("assistant" if place % 2 else "user", one)
    return log.event("task_complete") if task else log


def compacts(log: Codex, value: str) -> Codex:
    summary = Codex().says("user", value).payloads()
    return log.line("compacted", message="", replacement_history=summary)


def rolled_back(log: Codex, turns: int = 1) -> Codex:
    return log.event("thread_rolled_back", num_turns=turns)


async def last(log: Codex, tmp_path: Path) -> list[str]:
    """What the last request shows behind the system prompt."""
    return (await shown(tmp_path, log.data()))[-1][1:]


async def test_a_turn_that_was_rolled_back_is_in_no_later_view(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    requests = await shown(tmp_path, says(rolled_back(log), "blue", "is blue").data())
    assert requests[1][1:] == ["oil", "oiled", "red"]
    assert requests[2][1:] == ["oil", "oiled", "blue"]
    # Several turns go with all that was said in them.
    log = says(says(Codex(), "oil", "oiled"), "red", "is red", "more", "is more")
    log = rolled_back(rolled_back(says(says(log, "green", "is green"), "grey", "is grey")), 2)
    assert await last(says(log, "blue", "is blue"), tmp_path / "2") == ["oil", "oiled", "blue"]
    # What comes before the first prompt stays.
    log = Codex().event("task_started").says("developer", "rules").says("user", "oil")
    log = rolled_back(log.says("assistant", "oiled").event("task_complete"), 9)
    assert await last(says(log, "blue", "is blue"), tmp_path / "3") == ["rules", "blue"]
    # Without tasks each prompt begins a turn.
    log = says(says(Codex(), "oil", "oiled", task=False), "red", "is red", task=False)
    log = says(rolled_back(log), "blue", "is blue", task=False)
    assert await last(log, tmp_path / "4") == ["oil", "oiled", "blue"]
    # A compaction by hand goes with the turn before it.
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    log = rolled_back(compacts(log.event("task_started"), "S").event("task_complete"))
    assert await last(says(log, "blue", "x"), tmp_path / "5") == ["oil", "oiled", "blue"]


async def test_a_compaction_in_a_turn_is_undone_with_it(tmp_path: Path) -> None:
    log = says(compacts(says(Codex(), "oil", "oiled"), "S"), "dust", "dusted")
    log = compacts(log.event("task_started").says("user", "red").says("assistant", "is red"), "T")
    log = rolled_back(log.says("assistant", "still red").event("task_complete"))
    log = says(rolled_back(says(log, "green", "is green")), "blue", "is blue")
    *_, summed, green, blue = await shown(tmp_path, log.data())
    assert summed[1:] == ["T"]
    begin = ["S", "dust", "dusted"]
    assert (green[1:], blue[1:]) == ([*begin, "green"], [*begin, "blue"])
    # Two turns back, the first compaction is undone, too.
    log = says(rolled_back(log, 3), "white", "is white")
    assert await last(log, tmp_path / "2") == ["white"]


def test_a_count_that_is_none_takes_nothing_back() -> None:
    log = says(Codex(), "oil", "oiled").event("thread_rolled_back", num_turns=None)
    found = items_of(parse, rolled_back(log, 0).data())
    assert of_type(found, Undone) == []
    assert [item.kind for item in of_type(found, Raw) if not item.understood] == []


# -- where a thread comes from ---------------------------------------------------------------------

THREAD = "019f0000-0000-7000-8000-0000000000c1"
BEGIN = "rollout-2026-09-01T10-00-00-"
SPAWN = {"subagent": {"thread_spawn": {"parent_thread_id": "codex-0", "agent_role": "explorer"}}}


@pytest.mark.parametrize(
    ("meta", "links"),
    [
        ({"source": SPAWN}, [("codex-0", "parent", "subagent")]),
        ({"forked_from_id": "codex-0"}, [("codex-0", "parent", "branch")]),
        ({"source": SPAWN, "forked_from_id": "x"}, [("codex-0", "parent", "subagent")]),
        ({"source": "cli", "forked_from_id": None}, []),
        ({"source": {"subagent": "review"}}, []),
    ],
)
async def test_a_thread_names_the_one_that_it_comes_from(
    meta: dict[str, Any], links: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    store, _ = await load_data(tmp_path, Codex(**meta).says("user", "look").data(), complete=False)
    found = await events(store, "codex-1", "session:linked")
    assert [(one.session, one.relation, one.kind) for one in found] == links
    assert (await load(store, tmp_path / "file.jsonl")).added == 0


def paged(first: int, *turns: tuple[str, str], base: int | None = None, of: str = THREAD) -> bytes:
    """A rollout with paginated history, whose lines have ordinals from ``first`` on."""
    log = Codex()
    meta = log.rows[0]["payload"]
    meta |= {"id": THREAD, "history_mode": "paginated"}
    if base is not None:
        meta["history_base"] = {"thread_id": of, "end_ordinal_exclusive": base}
    for words, answer in turns:
        log.event("task_started").says("user", words).says("assistant", answer)
        log.event("task_complete")
    return jsonl([{**row, "ordinal": first + place} for place, row in enumerate(log.rows)])


async def last_texts(store: MemoryStore, session: str) -> list[str]:
    """What the last request of a session shows behind the system prompt."""
    return [first_text(row["content"]) for row in (await views(store, session))[-1][1:]]


async def test_a_file_that_goes_on_from_another_begins_with_its_lines(tmp_path: Path) -> None:
    first, longer = THREAD, f"{THREAD}_01"
    put(tmp_path / f"{BEGIN}{first}.jsonl", paged(0, ("a cap", "begun"), ("in pink", "pink")))
    turns = (("in grey", "grey"), ("longer", "long"))
    put(tmp_path / f"{BEGIN}{longer}.jsonl", paged(4, *turns, base=5))
    put(tmp_path / f"{BEGIN}{THREAD}_02.jsonl", paged(8, ("shorter", "short"), base=9))
    store = MemoryStore()
    done = await import_paths(store, [tmp_path], complete=True)
    assert (len(done.sessions), done.total.failed, done.total.warned) == (3, 0, 0)
    assert await last_texts(store, first) == ["a cap", "begun", "in pink"]
    shared = ["a cap", "begun", "in grey", "grey"]
    assert await last_texts(store, longer) == [*shared, "longer"]
    assert await last_texts(store, f"{THREAD}_02") == [*shared, "shorter"]
    (link,) = await events(store, longer, "session:linked")
    assert (link.session, link.kind) == (THREAD, "branch")
    assert (await import_paths(store, [tmp_path], complete=True)).sessions[1].added == 0


async def test_the_base_may_be_in_another_folder_and_a_missing_one_is_named(tmp_path: Path) -> None:
    name, days = f"{THREAD}_01", tmp_path / "2026"
    path = put(days / "09" / "01" / f"{BEGIN}{name}.jsonl", paged(4, ("in grey", "grey"), base=5))
    summary = await load(MemoryStore(), path)
    assert (summary.session, summary.messages) == (name, 3)
    missing = "the lines before ordinal 5 are missing: they are in another file of thread"
    assert summary.warnings == (f"line 2: {missing} {THREAD}, which is not with this one",)
    base = days / "08" / "31" / f"rollout-2026-08-31T10-00-00-{THREAD}.jsonl"
    put(base, paged(0, ("a cap", "begun")))
    store = MemoryStore()
    await import_paths(store, [path.parent])
    assert await last_texts(store, name) == ["a cap", "begun", "in grey"]


# -- history that was copied ---------------------------------------------------------------------

PARENT, CHILD = "019f0000-0000-7000-8000-00000000000a", "019f0000-2000-7000-8000-00000000000b"
OLD_TURN = "019f0000-1000-7000-8000-000000000001"
NEW_TURN = "019f0000-2001-7000-8000-000000000002"


def turn(log: Codex, words: str, answer: str, prompt: int, turn_id: str | None = None) -> Codex:
    named = {} if turn_id is None else {"turn_id": turn_id}
    log.event("task_started", **named).says("user", words).says("assistant", answer)
    return log.counted(prompt, prompt).event("task_complete", **named)


def forked(own_turn: str | None, copied: list[dict[str, Any]], **meta: Any) -> bytes:
    """A rollout that repeats lines of its parent, and has a turn of its own."""
    log = Codex(**meta)
    log.rows[0]["payload"]["id"] = CHILD
    own = turn(Codex(), "and green", "green", 300, own_turn).rows[1:]
    rows = [log.rows[0], *copied, *own]
    for place, row in enumerate(rows):
        if "copied" in row:
            row["timestamp"] = row.pop("copied") or "2026-01-02T10:00:00.500Z"
        else:
            row["timestamp"] = f"2026-01-02T10:00:{min(place * 10, 59):02d}.000Z"
    return jsonl(rows)


def copies(turn_id: str | None, *, head: bool, time: str | None = None) -> list[dict[str, Any]]:
    log = turn(turn(Codex(), "oil", "oiled", 100, turn_id), "red", "is red", 200, turn_id)
    log.rows[0]["payload"]["id"] = PARENT
    return [{**row, "copied": time} for row in log.rows[0 if head else 1 :]]


BEFORE = "2026-01-01T10:00:00.000Z"


@pytest.mark.parametrize("meta", [{"forked_from_id": PARENT}, {"source": SPAWN}])
@pytest.mark.parametrize(
    ("own_turn", "copied"),
    [
        (NEW_TURN, copies(OLD_TURN, head=True)),
        (NEW_TURN, copies(OLD_TURN, head=False)),
        (NEW_TURN, copies(OLD_TURN, head=True, time=BEFORE)),
        (None, copies(None, head=True)),
        (None, copies(None, head=True, time=BEFORE)),
        (None, copies(None, head=False, time=BEFORE)),
    ],
)
async def test_calls_that_were_copied_from_the_parent_count_there_alone(
    meta: dict[str, Any], own_turn: str | None, copied: list[dict[str, Any]], tmp_path: Path
) -> None:
    data = forked(own_turn, [dict(row) for row in copied], **meta)
    store, _ = await load_data(tmp_path, data)
    audit = await Engine(store).audit(CHILD)
    assert [usage.prompt for usage in audit.usage.values()] == [300]
    assert len(audit.requests) == 1
    assert await last_texts(store, CHILD) == ["oil", "oiled", "red", "is red", "and green"]
    assert (await load(store, tmp_path / "file.jsonl")).added == 0


async def test_a_rollout_that_was_written_anew_goes_on(tmp_path: Path) -> None:
    log = turn(Codex(), "oil", "oiled", 100)
    store, _ = await load_data(tmp_path, log.data(), complete=False)
    log = turn(log, "red", "is red", 200)
    log.rows[0]["payload"]["git"] = {"branch": "paint"}
    anew = jsonl([{**row, "ordinal": place} for place, row in enumerate(log.rows)])
    path = put(tmp_path / "file.jsonl", anew)
    grown = await load(store, path)
    words = "the file was written anew since it was imported; its messages are the same, and what"
    assert (grown.messages, grown.warnings) == (5, (f"line 1: {words} changed is kept",))
    assert raw_bytes(await records(store, "codex-1")).count(b'"paint"') == 1
    assert (await load(store, path)).added == 0


# -- codex exec --json -----------------------------------------------------------------------------


def found(log: CodexExec) -> list[Any]:
    return items_of(parse_exec, log.data(), always)


def outputs(items: list[Any]) -> list[tuple[str, str, bool]]:
    results = [one for one in of_type(items, MessageItem) if "output" in one.message]
    return [(one.message["call_id"], one.message["output"], one.failed) for one in results]


def test_an_item_that_is_told_only_at_its_end_is_a_call_and_its_result() -> None:
    changes = [{"path": "a.py", "kind": "update"}]
    asked = {"server": "store", "tool": "find", "arguments": {"q": 1}}
    two = {"content": [{"type": "text", "text": "three"}, {"type": "text", "text": "jars"}]}
    agent = {"tool": "spawn_agent", "prompt": "look", "receiver_thread_ids": ["thread-2"]}
    log = CodexExec().turn().item("completed", "file_change", "a", changes=changes, status="failed")
    log.item("completed", "mcp_tool_call", "b", **asked, result=two, status="completed")
    log.item("completed", "mcp_tool_call", "c", **asked, error={"message": "no"}, status="failed")
    items = found(log)
    calls = [one for one in texts(items) if one["type"] == "function_call"]
    arguments = [json.loads(one["arguments"]) for one in calls]
    assert arguments == [{"changes": changes}, {"q": 1}, {"q": 1}]
    assert [one["name"] for one in calls] == ["file_change"] + ["mcp__store__find"] * 2
    assert outputs(items) == [("a", "failed", True), ("b", "three\njars", False), ("c", "no", True)]
    log.item("completed", "collab_tool_call", "d", **agent, agents_states={})
    (link,) = of_type(found(log), Linked)
    assert (link.session_id, link.call_id) == ("thread-2", "d")


def test_the_first_form_of_items_is_read_too() -> None:
    said = [("0", "reasoning", "hm"), ("1", "assistant_message", "hi")]
    rows = [{"id": own, "item_type": kind, "text": text} for own, kind, text in said]
    data = jsonl([{"type": "item.completed", "item": row} for row in rows])
    items = items_of(parse_exec, data, always)
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
    items = items_of(parse_exec, jsonl(EVENTS), always)
    calls = ["function_call", "function_call_output"]
    assert roles(items) == ["user", "reasoning", *calls * 4, "assistant"]
    first, second, *others = outputs(items)
    assert (first, second) == (("c", "ab", True), ("p", "Success.", False))
    assert others == [("m", "timed out", True), ("plan-13", "Plan updated", False)]
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
    (ended,) = of_type(items_of(parse_exec, jsonl(rows), always), TurnEnded)
    assert ended.status == status
