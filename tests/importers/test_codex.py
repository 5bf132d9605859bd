"""Codex rollouts, trap by trap (reference/formats.md 3.2), and turns that were taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.importers.formats.codex import parse
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Undone,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import Codex, items_of, load, of_type, roles, texts


def test_a_repeated_session_head_is_not_a_second_session() -> None:
    log = Codex().says("user", "a").line("session_meta", id="other")
    assert len(of_type(items_of(parse, log.data()), Session)) == 1


def test_a_count_that_is_written_again_is_not_that_of_an_interrupted_call() -> None:
    log = Codex().says("user", "x").calls("c1").counted(100, 100).output("c1").item("reasoning")
    log.event("turn_aborted").says("user", "y").counted(100, 100)
    log.says("assistant", "z").counted(100, 100).counted(300, 400)
    ends = of_type(items_of(parse, log.data()), CallEnded)
    assert [end.usage and end.usage.prompt for end in ends] == [100, None, 300]


def test_a_count_without_info_is_no_usage() -> None:
    log = Codex().says("user", "x").says("assistant", "y").event("token_count", info=None)
    assert of_type(items_of(parse, log.data()), CallEnded) == []


def test_snapshots_are_not_sent_and_items_of_unknown_types_are_kept_as_messages() -> None:
    log = Codex().item("ghost_snapshot", commit="x").item("telepathy", thought="x")
    log.line("world_state", x=1).line("moon_phase", x=1).event("new_event")
    found = items_of(parse, log.data())
    assert texts(found)[1:] == [{"type": "telepathy", "thought": "x"}]
    unknown = [i.kind for i in of_type(found, Raw) if not i.understood]
    assert unknown == ["moon_phase", "event_msg/new_event"]


def test_context_that_the_harness_writes_begins_no_turn() -> None:
    log = Codex().says("user", "# AGENTS.md instructions for /x\n…")
    log.says("user", "<environment_context>…").says("developer", "rules").says("user", "do it")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [5]


def test_an_older_compaction_has_only_its_summary() -> None:
    log = Codex().says("user", "x").line("compacted", message="in short")
    compaction = of_type(items_of(parse, log.data()), CompactionItem)[0]
    assert compaction.messages[0]["content"][0]["text"] == "in short"


# -- messages that only events have --------------------------------------------------------------


def told(found: list[Item]) -> list[str]:
    story: list[str] = []
    for item in found:
        if isinstance(item, TurnBegan | ModelCall | CallEnded):
            story.append({TurnBegan: "turn", ModelCall: "call", CallEnded: "end"}[type(item)])
        elif isinstance(item, MessageItem) and item.message.get("role") != "system":
            content = item.message.get("content")
            story.append(content[0]["text"] if content else item.message["type"])
    return story


def test_a_rollout_of_events_alone_has_its_messages() -> None:
    log = Codex().event("user_message", message="go").event("agent_reasoning", text="hm")
    log.event("agent_message", message="first").event("agent_message", message="done")
    found = items_of(parse, log.counted(100, 100).event("task_complete").data())
    assert told(found) == ["turn", "go", "call", "first", "done", "end"]
    assert [end.usage.prompt for end in of_type(found, CallEnded)] == [100]
    assert texts(found)[1:3] == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "first"}],
        },
    ]


def test_an_event_is_repeated_by_the_item_after_it_or_before_it() -> None:
    log = Codex().says("user", "go").event("user_message", message="go")
    log.event("agent_message", message="I will").item("reasoning", summary=[])
    log.says("assistant", "I will").calls("c").output("c").says("assistant", "done")
    found = items_of(
        parse, log.event("agent_message", message="done").event("task_complete").data()
    )
    assert [one for one in told(found) if one in ("go", "I will", "done")] == [
        "go",
        "I will",
        "done",
    ]


def test_an_event_leaves_out_what_the_interface_does_not_show() -> None:
    log = (
        Codex()
        .event("user_message", message="look")
        .item(
            "message",
            role="user",
            content=[
                {"type": "input_text", "text": "<image name=[Image #1]>"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA"},
                {"type": "input_text", "text": "look"},
            ],
        )
    )
    log.event("agent_message", message="It is a cat.").says(
        "assistant", "It is a cat.<cite>m</cite>"
    )
    assert roles(items_of(parse, log.event("task_complete").data())) == [
        "system",
        "user",
        "assistant",
    ]


def test_a_message_that_no_item_repeats_stands_before_what_follows_it() -> None:
    log = Codex().says("user", "go").event("agent_message", message="I look").calls("c")
    log.output("c").event("agent_message", message="I found").says("assistant", "something else")
    found = told(items_of(parse, log.data()))
    assert found == [
        *("turn", "go", "call", "I look", "function_call", "end"),
        *("function_call_output", "call", "I found", "something else"),
    ]


def test_events_without_words_are_no_messages() -> None:
    log = Codex().event("user_message", message="").event("agent_message", message=None)
    assert told(items_of(parse, log.event("agent_message").event("task_complete").data())) == []


def test_an_item_may_say_of_its_contents_whose_they_are() -> None:
    log = Codex()
    for kinds in (["context.x"], ["user.text"], ["context.x", "user.text"], [], "?"):
        about = {"content_item_kinds": kinds}
        block = {"type": "input_text", "text": "x"}
        fields = {"internal_chat_message_metadata_passthrough": about}
        content = [block] * (len(kinds) or 1)
        log.item("message", role="user", content=content, **fields)
    found = items_of(parse, log.data())
    assert [m.by_harness for m in of_type(found, MessageItem)][1:] == [True, *[False] * 4]
    assert len(of_type(found, TurnBegan)) == 4


def test_lines_of_later_releases_are_known() -> None:
    log = Codex().line("token_usage_record", usage={}).line("world_state", state={})
    log.line("inter_agent_communication_metadata", trigger_turn=True)
    for event in ("item_completed", "sub_agent_activity", "thread_settings_applied"):
        log.event(event)
    assert all(raw.understood for raw in of_type(items_of(parse, log.data()), Raw))


def test_a_message_of_another_agent_is_kept_and_neither_a_persons_nor_the_models() -> None:
    content = [{"type": "input_text", "text": "found it"}]
    log = Codex().says("user", "go").item("agent_message", author="/root/x", content=content)
    found = items_of(parse, log.data())
    assert texts(found)[-1] == log.rows[-1]["payload"]
    assert len(of_type(found, TurnBegan)) == 1
    assert of_type(found, ModelCall) == []


# -- turns that were taken back: no later view holds them ------------------------------------------


def says(log: Codex, *words: str, task: bool = True) -> Codex:
    """A turn: a person's words, the answer, and what else is said in it."""
    if task:
        log.event("task_started")
    for place, one in enumerate(words):
        log.says("assistant" if place % 2 else "user", one)
    return log.event("task_complete") if task else log


def summary(value: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": value}]
    return {"type": "message", "role": "user", "content": content}


def compacts(log: Codex, value: str) -> Codex:
    return log.line("compacted", message="", replacement_history=[summary(value)])


def rolled_back(log: Codex, turns: int = 1) -> Codex:
    return log.event("thread_rolled_back", num_turns=turns)


async def shown(log: Codex, tmp_path: Path) -> list[list[str]]:
    """The texts of each request of the import, which adds nothing when it is done again."""
    store = MemoryStore()
    engine = Engine(store)
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(log.data())
    name = (await load(store, path, complete=True)).session or ""
    assert (await load(store, path, complete=True)).added == 0
    assert (await engine.verify(name)).ok
    requests = []
    for asked in (await engine.audit(name)).requests:
        view = await engine.request_view(name, position=asked.position)
        assert view.consistent
        requests.append([row["content"][0]["text"] for row in view.messages[1:]])
    return requests


async def test_a_turn_that_was_rolled_back_is_in_no_later_view(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    last = await shown(says(rolled_back(log), "blue", "is blue"), tmp_path)
    assert last[1:] == [["oil", "oiled", "red"], ["oil", "oiled", "blue"]]


async def test_several_turns_go_with_all_that_was_said_in_them(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red", "more", "is more")
    log = says(says(log, "green", "is green"), "grey", "is grey")
    log = says(rolled_back(rolled_back(log), 2), "blue", "is blue")
    assert (await shown(log, tmp_path))[-1] == ["oil", "oiled", "blue"]


async def test_what_comes_before_the_first_prompt_stays_when_all_turns_go(tmp_path: Path) -> None:
    log = Codex().event("task_started").says("developer", "rules").says("user", "oil")
    log = rolled_back(log.says("assistant", "oiled").event("task_complete"), 9)
    assert (await shown(says(log, "blue", "is blue"), tmp_path))[-1] == ["rules", "blue"]


async def test_without_tasks_each_prompt_begins_a_turn(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled", task=False), "red", "is red", task=False)
    log = says(rolled_back(log), "blue", "is blue", task=False)
    assert (await shown(log, tmp_path))[-1] == ["oil", "oiled", "blue"]


async def test_a_compaction_in_a_turn_is_undone_with_it(tmp_path: Path) -> None:
    log = says(compacts(says(Codex(), "oil", "oiled"), "S"), "dust", "dusted")
    log = compacts(log.event("task_started").says("user", "red").says("assistant", "is red"), "T")
    log = rolled_back(log.says("assistant", "still red").event("task_complete"))
    log = says(rolled_back(says(log, "green", "is green")), "blue", "is blue")
    found = await shown(log, tmp_path)
    assert found[3] == ["T"]
    assert found[4:] == [["S", "dust", "dusted", "green"], ["S", "dust", "dusted", "blue"]]
    # Two turns back, the first compaction is undone, too.
    log = says(rolled_back(log, 3), "white", "is white")
    assert (await shown(log, tmp_path))[-1] == ["white"]


async def test_a_compaction_by_hand_goes_with_the_turn_before_it(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    log = rolled_back(compacts(log.event("task_started"), "S").event("task_complete"))
    assert (await shown(says(log, "blue", "x"), tmp_path))[-1] == ["oil", "oiled", "blue"]


def test_a_count_that_is_none_takes_nothing_back() -> None:
    log = says(Codex(), "oil", "oiled").event("thread_rolled_back", num_turns=None)
    found = items_of(parse, rolled_back(log, 0).data())
    assert of_type(found, Undone) == []
    assert [item.kind for item in of_type(found, Raw) if not item.understood] == []
