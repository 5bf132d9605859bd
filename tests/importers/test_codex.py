"""Codex rollouts, trap by trap (reference/formats.md 3.2), and turns that were taken back."""

from __future__ import annotations

from pathlib import Path

from eventctx.importers.formats.codex import parse
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Undone,
)
from tests.importers.given import Codex, ended_usages, items_of, of_type, shown, texts


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
    log = (
        Codex().event("user_message", message="look").item("message", role="user", content=content)
    )
    log.event("agent_message", message="A cat.").says("assistant", "A cat.<cite>m</cite>")
    found = told(log.event("task_complete"))
    assert found == ["turn", mark, "call", "A cat.<cite>m</cite>", "end"]


def test_an_event_that_no_item_repeats_stands_before_what_follows_it() -> None:
    log = Codex().says("user", "go").event("agent_message", message="I look").calls("c")
    log.output("c").event("agent_message", message="I found").says("assistant", "something else")
    found = told(log.event("user_message", message="").event("agent_message", message=None))
    assert found[:6] == ["turn", "go", "call", "I look", "function_call", "end"]
    assert found[6:] == ["function_call_output", "call", "I found", "something else"]


def test_an_item_may_say_of_its_contents_whose_they_are() -> None:
    log = Codex()
    for kinds in (["context.x"], ["user.text"], ["context.x", "user.text"], [], "?"):
        about = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": kinds}}
        content = [{"type": "input_text", "text": "x"}] * (len(kinds) or 1)
        log.item("message", role="user", content=content, **about)
    found = items_of(parse, log.data())
    assert [m.by_harness for m in of_type(found, MessageItem)][1:] == [True, *[False] * 4]
    assert len(of_type(found, TurnBegan)) == 4


def test_a_message_of_another_agent_is_kept_and_neither_a_persons_nor_the_models() -> None:
    content = [{"type": "input_text", "text": "found it"}]
    log = Codex().says("user", "go").item("agent_message", author="/root/x", content=content)
    assert texts(items_of(parse, log.data()))[-1] == log.payloads()[-1]
    assert told(log) == ["turn", "go", "found it"]


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
    assert (green[1:], blue[1:]) == (
        ["S", "dust", "dusted", "green"],
        ["S", "dust", "dusted", "blue"],
    )
    # Two turns back, the first compaction is undone, too.
    log = says(rolled_back(log, 3), "white", "is white")
    assert await last(log, tmp_path / "2") == ["white"]


def test_a_count_that_is_none_takes_nothing_back() -> None:
    log = says(Codex(), "oil", "oiled").event("thread_rolled_back", num_turns=None)
    found = items_of(parse, rolled_back(log, 0).data())
    assert of_type(found, Undone) == []
    assert [item.kind for item in of_type(found, Raw) if not item.understood] == []
