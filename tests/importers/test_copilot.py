"""GitHub Copilot CLI's events become the chat that the program makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Copilot
from tests.importers.given import NOW, events, forked, imported, load, messages, salt

PROMPT = {"role": "system", "content": "Be brief."}


async def view(store: MemoryStore, session: str) -> list[dict[str, Any]]:
    context = await forked(Engine(store), session)
    found: list[dict[str, Any]] = await context.get_messages_for_request()
    return found


async def test_the_chat_is_the_one_that_the_program_sends(tmp_path: Path) -> None:
    log = Copilot().user("sort", transformedContent="<current_datetime>9</current_datetime> sort")
    log.system().answer("on it", "t1", "t2", reasoningText="hm")
    log.result("t1", "a jar").result("t2", success=False, error={"message": "no such jar"})
    store, session = await imported(tmp_path, log.answer("sorted").data(), complete=True)
    asked = [
        {"id": one, "type": "function", "function": {"name": "bash", "arguments": arguments}}
        for one, arguments in (("t1", '{"command":"run t1"}'), ("t2", '{"command":"run t2"}'))
    ]
    assert await messages(store, session) == [
        PROMPT,
        {"role": "user", "content": "<current_datetime>9</current_datetime> sort"},
        {
            "role": "assistant",
            "content": "on it",
            "reasoning_content": "hm",
            "tool_calls": asked,
        },
        {"role": "tool", "tool_call_id": "t1", "content": "a jar"},
        {"role": "tool", "tool_call_id": "t2", "content": "no such jar"},
        {"role": "assistant", "content": "sorted"},
    ]
    assert len(await events(store, session, "tool:error")) == 1


async def test_a_first_prompt_waits_for_the_system_prompt_that_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    store = MemoryStore()
    path.write_bytes(Copilot().user("sort").data())
    assert (await load(store, path)).messages == 0
    path.write_bytes(Copilot().user("sort").system().answer("sorted").data())
    assert (await load(store, path)).messages == 3
    assert (await messages(store, "cp-1"))[0] == PROMPT


async def test_usage_is_that_of_the_call_whose_id_it_has(tmp_path: Path) -> None:
    log = Copilot().user("sort").used("one", 50, cacheReadTokens=20)
    log.answer("a", apiCallId="one").answer("b", apiCallId="two").used("two", 70)
    log.answer("c", apiCallId="two", chunkIndex=1)
    store, session = await imported(tmp_path, log.data(), complete=True)
    found = await events(store, session, "usage:reported")
    assert [(one.prompt, one.output, one.cache_read) for one in found] == [(50, 7, 20), (70, 7, 0)]
    assert len(await events(store, session, "provider:request")) == 2


async def test_a_summary_stands_for_what_was_there_when_it_was_begun(tmp_path: Path) -> None:
    log = Copilot().user("Never drop a jar.").system().answer("a", "t1").result("t1")
    log.answer("b", "t2").event("session.compaction_start").result("t2").compacted("In short")
    store, session = await imported(tmp_path, log.answer("c").data(), complete=True)
    (done,) = await events(store, session, "context:post_compact")
    assert (done.tokens_recorded, done.requested_by) == (900, "copilot:threshold")
    shown = await view(store, session)
    assert [one["role"] for one in shown] == ["system", "user", "assistant", "tool", "assistant"]
    assert "<summary>\nIn short\n</summary>" in shown[1]["content"]
    assert "<user_message>\nNever drop a jar.\n</user_message>" in shown[1]["content"]


async def test_of_many_prompts_a_summary_repeats_the_first_and_the_last(tmp_path: Path) -> None:
    log = Copilot()
    for number in range(30):
        log.user(f"prompt {number}").answer("so")
    store, session = await imported(tmp_path, log.compacted("S").data(), complete=True)
    text = (await view(store, session))[0]["content"]
    kept = [number for number in range(30) if f"\nprompt {number}\n" in text]
    assert kept == [0, 1, 2, 3, *range(14, 30)]
    assert "... 10 messages omitted ..." in text


async def test_a_truncation_takes_the_oldest_answers_with_their_results(tmp_path: Path) -> None:
    log = Copilot().user("one").answer("a", "t1").result("t1").user("two").answer("b", "t2")
    log.result("t2").event("session.truncation", messagesRemovedDuringTruncation=2)
    store, session = await imported(tmp_path, log.answer("c").data(), complete=True)
    shown = [one["content"] for one in await view(store, session)]
    assert shown == ["one", "two", "b", "done", "c"]


async def test_what_a_person_rewinds_or_clears_is_in_no_later_view(tmp_path: Path) -> None:
    log = Copilot().user("one").answer("a").user("two").answer("b")
    back = log.rows[3]["id"]
    log.event("session.snapshot_rewind", upToEventId=back, eventsRemoved=2).user("three")
    store, session = await imported(tmp_path, log.answer("c").data(), complete=True)
    assert [one["content"] for one in await view(store, session)] == ["one", "a", "three", "c"]
    log = Copilot("cp-2").user("one").answer("a")
    log.event("session.context_cleared", messagesCleared=2, initialMessage="anew").answer("b")
    store, session = await imported(tmp_path, log.data(), complete=True)
    assert [one["content"] for one in await view(store, session)] == ["anew", "b"]


async def test_a_subagent_is_a_session_of_its_own_that_its_call_began(tmp_path: Path) -> None:
    log = Copilot().user("sort").answer("", "t1").agent("a1")
    log.event("subagent.started", toolCallId="t1").user("look", source="agent-cp-1")
    log.answer("seen", "t2").result("t2").agent(None).result("t1", "seen").answer("sorted")
    log.answer("of old", parentToolCallId="t9").result("t10", parentToolCallId="t9")
    path = tmp_path / "events.jsonl"
    path.write_bytes(log.data())
    store = MemoryStore()
    done = await import_file(store, path, complete=True, clock=lambda: NOW, salt=salt)
    names = ["cp-1", "cp-1.agent-t1", "cp-1.agent-t9"]
    assert [(one.session, one.messages) for one in done] == list(zip(names, (4, 3, 2), strict=True))
    assert done[0].links == ("cp-1.agent-t1",)
    (link,) = await events(store, "cp-1.agent-t1", "session:linked")
    assert (link.session, link.relation) == ("cp-1", "parent")
    again = await import_file(store, path, complete=True, clock=lambda: NOW, salt=salt)
    assert sum(one.added for one in again) == 0


async def test_words_of_the_program_begin_no_turn(tmp_path: Path) -> None:
    log = Copilot().user("sort").answer("a").user("go on", isAutopilotContinuation=True)
    log.event("system.notification", content="<system_notification>done</system_notification>")
    log.event("system.notification", content="x", kind={"type": "instruction_discovered"})
    store, session = await imported(tmp_path, log.answer("b").data(), complete=True)
    assert len(await events(store, session, "prompt:submit")) == 1
    assert len(await messages(store, session)) == 5


async def test_an_error_ends_a_turn_only_if_the_program_did_not_try_again(tmp_path: Path) -> None:
    log = Copilot().user("one").event("session.error", errorType="query").answer("a").user("two")
    log.event("session.error", errorType="quota").user("three").event("abort", reason="user")
    store, session = await imported(tmp_path, log.data(), complete=True)
    ends = await events(store, session, "prompt:complete")
    assert [one.status for one in ends] == ["ok", "error", "cancelled"]


async def test_a_changed_system_prompt_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    log = Copilot().user("one").system().answer("a").user("two").system().system("Be long.")
    store, session = await imported(tmp_path, log.answer("b").data(), complete=True)
    shown = [one["content"] for one in await view(store, session)]
    assert "Be brief." not in shown
    assert shown.count("Be long.") == 1


async def test_a_session_is_called_as_it_says_else_as_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "events.jsonl"
    path.parent.mkdir()
    log = Copilot().user("one").answer("a")
    path.write_bytes(log.data())
    assert (await load(MemoryStore(), path)).session == "cp-1"
    path.write_bytes(log.data().split(b"\n", 1)[1])
    assert (await load(MemoryStore(), path)).session == "folder"
