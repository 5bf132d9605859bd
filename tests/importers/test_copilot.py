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


async def test_a_first_prompt_waits_for_the_system_prompt_that_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    store = MemoryStore()
    path.write_bytes(Copilot().user("sort").data())
    assert (await load(store, path)).messages == 0
    path.write_bytes(Copilot().user("sort").system().answer("sorted").data())
    assert (await load(store, path)).messages == 3
    assert (await messages(store, "cp-1"))[0] == PROMPT


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


async def test_a_session_is_called_as_it_says_else_as_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "events.jsonl"
    path.parent.mkdir()
    log = Copilot().user("one").answer("a")
    path.write_bytes(log.data())
    assert (await load(MemoryStore(), path)).session == "cp-1"
    path.write_bytes(log.data().split(b"\n", 1)[1])
    assert (await load(MemoryStore(), path)).session == "folder"
