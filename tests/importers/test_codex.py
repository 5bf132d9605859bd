"""Codex rollouts, trap by trap (reference/formats.md 3.2)."""

from __future__ import annotations

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
)
from tests.importers.given import Codex, items_of, of_type, roles, texts


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
