"""Gemini CLI's chats: records written again, a history written anew, subagents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.many import import_paths
from eventctx.log.codec import decode_event
from eventctx.stores.memory import MemoryStore
from tests.importers.given import load, load_data, messages, records
from tests.importers.terminal_agents import CHAT, Gemini, answers, calls, says, thought, told, tool

CONTEXT = "<session_context>\nToday is one day."
LATER = "<session_context>\nToday is another day."


def words(message: dict[str, object]) -> str:
    """A message in short: its role, and its texts, calls and results."""
    content = message["content"]
    assert isinstance(content, list)
    found = []
    for block in content:
        kind = block["type"]
        of = {"text": "text", "thinking": "thinking", "tool_use": "id", "tool_result": "content"}
        found.append(f"{'?' if kind == 'thinking' else ''}{block[of[kind]]}")
    return f"{str(message['role'])[0]}:{'+'.join(found)}"


async def usage(store: MemoryStore, session: str) -> tuple[int, int, int, int]:
    """The sums of what is reported: prompt, output, read from the cache, reasoning."""
    found = [one for one in await records(store, session) if one.type == "usage:reported"]
    events: list[Any] = [decode_event(one) for one in found]
    return (
        sum(one.prompt for one in events),
        sum(one.output for one in events),
        sum(one.cache_read for one in events),
        sum(one.reasoning for one in events),
    )


async def views(store: MemoryStore, session: str) -> list[list[str]]:
    """The messages of each request."""
    engine = Engine(store)
    audit = await engine.audit(session)
    found = [await engine.request_view(session, position=row.position) for row in audit.requests]
    return [[words(one) for one in view.messages] for view in found]


async def test_half_a_document_is_refused_and_half_a_line_waits(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("on it").user("more")
    with pytest.raises(UnknownFormat, match="found neither"):
        await load_data(tmp_path, log.document()[:-20], "session-1.json")
    with pytest.raises(MalformedTranscript, match="one whole JSON document"):
        await load(MemoryStore(), tmp_path / "session-1.json", format="gemini-cli")
    _, summary = await load_data(tmp_path, log.data()[:-20], complete=False)
    assert (summary.messages, len(summary.waiting)) == (1, 2)


async def test_calls_after_a_note_on_the_screen_are_the_answers_before(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("on it").record("warning", "a hook failed")
    nothing = dict.fromkeys(("input", "output", "cached", "thoughts", "tool", "total"), 0)
    log.answer("", tool("c1"), tokens=nothing, thoughts=[]).answer("done")
    store, summary = await load_data(tmp_path, log.data())
    assert summary.calls == 2
    assert await usage(store, CHAT) == (200, 20, 80, 6)
    spans = [one.type for one in await records(store, CHAT) if one.type == "tool:pre"]
    assert len(spans) == 1


async def test_a_compression_is_a_compaction_that_keeps_what_stays(tmp_path: Path) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).user("go").answer("on it", tool("c1"))
    log.user("more").answer("sure")
    tail = [told("n1", says("more")), told("n2", thought("so"), says("sure "), kind="gemini")]
    summary_of = [told("n3", says("In short")), told("n4", says("Got it."), kind="gemini")]
    log.anew(told("s", says(LATER)), *summary_of, *tail).user("and?").answer("that")
    store, summary = await load_data(tmp_path, log.data())
    assert summary.compactions == 1
    last = (await views(store, CHAT))[-1]
    assert last[1:] == ["u:In short", "a:Got it.", "u:more", "a:sure", "u:and?"]
    assert last[0].startswith("u:<session_context>")


async def test_a_compression_between_a_call_and_its_result_keeps_both(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("hm").user("read").answer("", tool("c1", "jam"), own="a")
    called = told("n3", calls(None, file_path="a"), kind="gemini")
    log.anew(told("n1", says("In short")), told("n2", says("read")), called)
    store, summary = await load_data(tmp_path, log.results(answers("c1", "jam")).answer("x").data())
    assert summary.compactions == 1
    assert (await views(store, CHAT))[-1] == ["u:In short", "u:read", "a:c1", "u:jam"]


async def test_a_resumed_session_that_writes_its_beginning_first_loses_nothing(
    tmp_path: Path,
) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).user("go", "u").answer("on it", tool("c1"))
    log.results(answers("c1"), own="r").answer("done", own="a").anew(told("s", says(LATER)))
    read = calls("c1", file_path="a")
    again = [told("s", says(LATER)), told("u", says("go")), told("x", says("on it"), read)]
    again[2]["type"] = "gemini"
    again += [told("x", answers("c1")), told("r", answers("c1"))]
    log.anew(*again, told("a", says("done"), kind="gemini")).user("more").answer("yes")
    store, summary = await load_data(tmp_path, log.data())
    assert (summary.messages, summary.compactions) == (7, 0)
    assert (await views(store, CHAT))[-1][1:] == [
        "u:go",
        "a:on it+c1",
        "u:done",
        "a:done",
        "u:more",
    ]


async def test_a_masked_result_is_shortened_from_there_on(tmp_path: Path) -> None:
    log = Gemini().user("go", "u").answer("on it", tool("c1", "long " * 9), own="a").answer("so")
    masked = told("a", says("on it"), calls("c1", file_path="a"), kind="gemini")
    log.anew(told("u", says("go")), masked, told("r", answers("c1", "[masked]")))
    log.rows[-1]["$set"]["messages"].append(told("b", says("so"), kind="gemini"))
    store, summary = await load_data(tmp_path, log.user("more").answer("yes").data())
    assert summary.compactions == 1
    found = await views(store, CHAT)
    assert found[1] == ["u:go", "a:on it+c1", f"u:{'long ' * 9}"]
    assert found[2] == ["u:go", "a:on it+c1", "u:[masked]", "a:so", "u:more"]
    masking = [one for one in await records(store, CHAT) if one.type == "context:pre_compact"]
    assert [b"gemini-cli:masking" in one.payload for one in masking] == [True]


@pytest.mark.parametrize("form", ["rewind", "anew"])
async def test_what_was_taken_back_is_in_the_transcript_and_in_no_later_request(
    form: str, tmp_path: Path
) -> None:
    log = Gemini().user("go", "u1").answer("yes", own="a1").user("wrong", "u2").answer("no")
    if form == "rewind":
        log.rewind("u2")
    else:
        log.anew(told("u1", says("go")), told("a1", says("yes"), kind="gemini"))
    store, summary = await load_data(tmp_path, log.user("again").answer("sure").data())
    assert (summary.messages, summary.compactions) == (6, 0)
    assert (await views(store, CHAT))[-1] == ["u:go", "a:yes", "u:again"]


async def test_a_chat_with_nothing_but_its_beginning_is_no_session_yet(tmp_path: Path) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).record("warning", "a hook failed")
    store, summary = await load_data(tmp_path, log.data())
    assert (summary.session, summary.waiting) == (
        None,
        ("line 1: there is no message in the chat yet",),
    )
    assert [info async for info in store.streams()] == []


async def test_a_subagents_chat_is_a_session_of_its_own(tmp_path: Path) -> None:
    main = Gemini().user("go").answer("on it", tool("c1", agentId="helper-7")).answer("done")
    old = Gemini(kind="subagent", startTime="2026-01-01T10:00:05.250Z").user("count").answer("two")
    new = Gemini("helper-7", kind="subagent").user("count").answer("two")
    chats = tmp_path / "work" / "chats"
    (chats / CHAT).mkdir(parents=True)
    (chats / "session-1.jsonl").write_bytes(main.data())
    (chats / "session-2.json").write_bytes(old.document())
    (chats / CHAT / "helper-7.jsonl").write_bytes(new.data())
    store = MemoryStore()
    done = await import_paths(store, [tmp_path], complete=True)
    assert done.passed_over == ()
    names = sorted(one.session or "" for one in done.sessions)
    assert names == [CHAT, f"{CHAT}.agent-20260101100005250", "helper-7"]
    for name in names[1:]:
        links = [one for one in await records(store, name) if one.type == "session:linked"]
        assert [CHAT.encode() in one.payload for one in links] == [True]


async def test_a_chat_that_goes_on_in_lines_is_passed_over_in_a_search(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("yes")
    (tmp_path / "session-1.json").write_bytes(log.document())
    (tmp_path / "session-1.jsonl").write_bytes(log.user("more").answer("sure").data())
    done = await import_paths(MemoryStore(), [tmp_path], complete=True)
    assert [one.messages for one in done.sessions] == [4]
    assert [(one.path.name, one.error) for one in done.passed_over] == [("session-1.json", None)]


async def test_a_call_without_an_id_gets_one_that_its_result_has_too(tmp_path: Path) -> None:
    log = Gemini().user("go").record("gemini", [calls(None)], model="m").results(answers(None))
    store, _ = await load_data(tmp_path, log.answer("done").data())
    found = await messages(store, CHAT)
    assert found[1]["content"][0]["id"] == found[2]["content"][0]["tool_use_id"] == "call-1"


async def test_an_answer_with_the_id_of_the_prompt_leaves_the_prompt_in_every_request(
    tmp_path: Path,
) -> None:
    log = Gemini().user("go", "x").answer("on it", own="x").answer("on it", tool("c1"), own="x")
    store, summary = await load_data(tmp_path, log.user("more", "x").answer("sure").data())
    assert (summary.messages, summary.warned) == (5, 0)
    assert await views(store, CHAT) == [["u:go"], ["u:go", "a:on it+c1", "u:done", "u:more"]]
