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
    TurnEnded,
    Waiting,
)
from tests.importers.given import Codex, items_of, of_type, raw_kinds, roles, texts


def test_base_instructions_are_the_first_system_message() -> None:
    found = items_of(parse, Codex().says("user", "hello").data())
    assert isinstance(found[0], Session)
    assert found[0].session_id == "codex-1"
    assert texts(found)[0] == {"role": "system", "content": "You are a test."}
    meta = of_type(found, Raw)[0]
    assert b"You are a test." not in meta.data


def test_a_repeated_session_head_is_not_a_second_session() -> None:
    log = Codex().says("user", "a").line("session_meta", id="other")
    assert len(of_type(items_of(parse, log.data()), Session)) == 1


def test_event_messages_repeat_the_content_and_become_none() -> None:
    log = Codex().says("user", "hello").event("user_message", message="hello")
    log.says("assistant", "hi").event("agent_message", message="hi")
    assert roles(items_of(parse, log.data())) == ["system", "user", "assistant"]


def test_a_call_is_counted_by_the_last_usage_and_not_by_the_running_total() -> None:
    log = Codex().says("user", "x").calls("c1").calls("c2").counted(100, 100)
    log.output("c1").output("c2").says("assistant", "y").counted(200, 300)
    found = items_of(parse, log.data())
    assert len(of_type(found, ModelCall)) == 2
    usages = [item.usage for item in of_type(found, CallEnded)]
    assert [u.prompt for u in usages] == [100, 200]
    assert (usages[0].cache_read, usages[0].output) == (5, 7)
    assert of_type(found, ModelCall)[1].context_window == 1000


def test_a_count_that_comes_late_still_belongs_to_its_call() -> None:
    log = Codex().says("user", "x").calls("c1").output("c1").counted(100, 100)
    ends = of_type(items_of(parse, log.data()), CallEnded)
    assert [end.usage and end.usage.prompt for end in ends] == [None, 100]


def test_a_count_that_is_written_again_is_not_that_of_an_interrupted_call() -> None:
    log = Codex().says("user", "x").calls("c1").counted(100, 100).output("c1").item("reasoning")
    log.event("turn_aborted").says("user", "y").counted(100, 100)
    log.says("assistant", "z").counted(100, 100).counted(300, 400)
    ends = of_type(items_of(parse, log.data()), CallEnded)
    assert [end.usage and end.usage.prompt for end in ends] == [100, None, 300]


def test_a_count_without_info_is_no_usage() -> None:
    log = Codex().says("user", "x").says("assistant", "y").event("token_count", info=None)
    assert of_type(items_of(parse, log.data()), CallEnded) == []


def test_custom_calls_and_searches_are_messages_as_they_are() -> None:
    log = Codex().item("custom_tool_call", call_id="c", name="apply_patch", input="*** Begin")
    log.item("custom_tool_call_output", call_id="c", output='{"output":"x"}')
    log.item("web_search_call", status="completed", action={"query": "q"})
    found = texts(items_of(parse, log.data()))[1:]
    assert found == [row["payload"] for row in log.rows[1:]]


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


def test_a_finished_and_an_aborted_task_end_their_turns() -> None:
    log = Codex().says("user", "x").says("assistant", "y").event("task_complete")
    log.says("user", "x").event("turn_aborted", reason="interrupted")
    ends = of_type(items_of(parse, log.data()), TurnEnded)
    assert [end.status for end in ends] == ["ok", "cancelled"]


def test_a_replacement_history_is_the_compaction() -> None:
    kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]}
    sealed = {"type": "compaction", "encrypted_content": "gAAA"}
    log = Codex().says("user", "x").says("assistant", "y")
    log.line("compacted", message="", replacement_history=[kept, sealed])
    found = items_of(parse, log.data())
    assert [list(c.messages) for c in of_type(found, CompactionItem)] == [[kept, sealed]]
    assert "compacted" in raw_kinds(found)


def test_an_older_compaction_has_only_its_summary() -> None:
    log = Codex().says("user", "x").line("compacted", message="in short")
    compaction = of_type(items_of(parse, log.data()), CompactionItem)[0]
    assert compaction.messages[0]["content"][0]["text"] == "in short"


def test_items_need_no_waiting_but_an_empty_rollout_does() -> None:
    log = Codex().says("user", "x").calls("c1")
    assert of_type(items_of(parse, log.data()), Waiting) == []
    assert len(of_type(items_of(parse, b'{"timestamp":"2026'), Waiting)) >= 1


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


def test_an_event_at_the_end_waits_for_its_item() -> None:
    log = Codex().says("user", "go").event("agent_message", message="done")
    found = items_of(parse, log.data())
    assert [one.line for one in of_type(found, Waiting)] == [3]
    assert "done" not in told(found)
    assert told(items_of(parse, log.data(), lambda: True))[-1] == "done"


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
