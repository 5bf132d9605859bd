"""The files of GitHub Copilot CLI, Cursor and Qwen Code."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.detect import choose
from eventctx.importers.formats.cursor import parse
from eventctx.importers.found import search
from eventctx.importers.load import import_file
from eventctx.importers.many import import_paths
from eventctx.importers.source.items import MessageItem
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Copilot, Cursor
from tests.importers.given import (
    NOW,
    ClaudeCode,
    always,
    events,
    forked,
    imported,
    items_of,
    load,
    load_data,
    messages,
    of_type,
    records,
    salt,
    text,
)
from tests.importers.terminal_agents import CHAT, Qwen, calls, says, usage, views_in_words, words

# -- GitHub Copilot CLI ----------------------------------------------------------------------------

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


# -- Cursor: messages without ids, results or times of their own -----------------------------------

WRITTEN = """user:
<user_query>
start it
</user_query>

assistant:
[Thinking] Look first.
[Tool call] Write
  path: /start.sh
  contents: #!/bin/sh
set -e

echo on
[Tool call] Shell
  command: sh start.sh

[Tool result] Write

[Tool result] Shell

assistant:
It runs.

user:
thanks
"""


@pytest.mark.parametrize(
    ("written", "hour", "minute"),
    [("3:44 PM (UTC+8)", 7, 44), ("11:59 AM (UTC-4)", 15, 59), ("2:57 PM (UTC+5:30)", 9, 27)],
)
def test_a_prompt_holds_its_time(written: str, hour: int, minute: int) -> None:
    stamp = f"<timestamp>Tuesday, Sep 15, 2026, {written}</timestamp>\n<user_query>go</user_query>"
    (item,) = of_type(items_of(parse, Cursor().says("user", text(stamp)).data()), MessageItem)
    expected = datetime(2026, 9, 15, hour, minute, tzinfo=UTC)
    assert item.time == int(expected.timestamp()) * 10**9


async def test_a_text_says_which_calls_were_made(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text(WRITTEN)
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    assert (summary.session, summary.format, summary.turns) == ("talk", "cursor", 2)
    _, answer, _, last = await messages(store, "talk")
    thinking, write, shell = answer["content"]
    assert thinking["text"] == "[Thinking] Look first."
    assert write["input"] == {"path": "/start.sh", "contents": "#!/bin/sh\nset -e\n\necho on"}
    assert (shell["name"], shell["input"]) == ("Shell", {"command": "sh start.sh"})
    assert last["content"] == [text("thanks")]


async def test_the_last_message_of_a_text_waits_as_it_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    store = MemoryStore()
    for cut in range(20, len(WRITTEN), 7):
        path.write_text(WRITTEN[:cut])
        await load(store, path)
    path.write_text(WRITTEN)
    assert (await load(store, path, complete=True)).messages == 4
    assert [item.message for item in of_type(whole(), MessageItem)] == await messages(store, "talk")


def whole() -> list[Any]:
    return items_of(parse, WRITTEN.encode(), always)


async def test_subagents_are_found_around_the_file_and_linked(tmp_path: Path) -> None:
    folder = tmp_path / ".cursor" / "projects" / "p" / "agent-transcripts" / "main"
    (folder / "subagents").mkdir(parents=True)
    (folder / "main.jsonl").write_bytes(Cursor().user("go").answer(text("ok")).data())
    child = Cursor().user("look").answer(text("seen"))
    (folder / "subagents" / "child.jsonl").write_bytes(child.data())
    (folder.parent / "old.txt").write_text(WRITTEN)
    (folder.parents[1] / "tools.json").write_text(json.dumps({"tools": []}))
    (folder.parents[1] / "terminal.txt").write_text("$ ls")
    found = search(tmp_path / ".cursor" / "projects")
    assert sorted(Path(one).name for one in found.files) == ["main.jsonl", "old.txt"]
    path = folder / "main.jsonl"
    assert {Path(one.path).name for one in found.files[str(path)]} == {"main.jsonl", "child.jsonl"}
    store = MemoryStore()
    done = await import_file(store, path, complete=True, clock=lambda: NOW, salt=salt)
    assert [one.session for one in done] == ["main", "child"]
    (link,) = await events(store, "child", "session:linked")
    assert (link.session, link.relation) == ("main", "parent")


# -- Qwen Code: a tree of records, compressions, and the files of subagents ------------------------


@pytest.mark.parametrize(("total", "output"), [(109, 9), (113, 13)])
async def test_the_total_tells_whether_the_output_has_the_thoughts(
    total: int, output: int, tmp_path: Path
) -> None:
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 9, "thoughtsTokenCount": 4}
    log = Qwen().user("go").answer(says("x"), usageMetadata={**counts, "totalTokenCount": total})
    store, _ = await load_data(tmp_path, log.data())
    assert await usage(store, CHAT) == (100, output, 0, 4)


async def test_a_rewind_past_a_compression_brings_back_what_it_took_out(tmp_path: Path) -> None:
    log = Qwen().user("go").answer(says("yes")).user("more").answer(says("sure"))
    log.compressed(("user", says("In short"))).user("on").answer(says("fine")).back_to("u1")
    store, summary = await load_data(tmp_path, log.user("again").answer(says("so")).data())
    assert (await views_in_words(store, CHAT))[-1] == ["u:go", "a:yes", "u:again"]
    assert summary.warned == 0


async def test_only_a_persons_words_begin_a_turn(tmp_path: Path) -> None:
    log = Qwen().user("go", provenance="real_user").answer(calls("c1"))
    log.user("wait", subtype="mid_turn_user_message", provenance="real_user").result("c1")
    log.answer(says("done")).user("it ended", subtype="notification", provenance="system")
    log.answer(says("good")).user("go on", subtype="goal_runtime", provenance="goal_runtime")
    store, summary = await load_data(tmp_path, log.data())
    assert (summary.turns, summary.messages) == (1, 8)
    added = [one for one in await records(store, CHAT) if one.type == "context:message_added"]
    assert sum(b"harness" in one.payload for one in added) == 2


async def test_a_command_that_was_never_sent_is_taken_back(tmp_path: Path) -> None:
    log = Qwen().user("go").answer(says("yes")).user("/about")
    items = [{"type": "assistant", "text": "0.20"}]
    log.system("slash_command", phase="result", rawCommand="/about", outputHistoryItems=items)
    store, _ = await load_data(tmp_path, log.user("more").answer(says("sure")).data())
    assert (await views_in_words(store, CHAT))[-1] == ["u:go", "a:yes", "u:more"]


async def test_a_subagents_round_is_one_answer_in_a_session_of_its_own(tmp_path: Path) -> None:
    helper = {"agentId": "explore-7", "agentName": "Explore", "isSidechain": True}
    log = Qwen(**helper).user("count")
    first = {"agentRunId": "r", "agentRound": 1}
    log.answer(says("both"), **first).answer(calls("c1"), usageMetadata=None)
    log.answer(calls("c2"), usageMetadata=None).result("c1").result("c2")
    log.answer(says("two"), agentRunId="r", agentRound=2)
    folder = tmp_path / "subagents" / CHAT
    folder.mkdir(parents=True)
    (folder / "agent-explore-7.jsonl").write_bytes(log.data())
    store = MemoryStore()
    done = await import_paths(store, [tmp_path], complete=True)
    (summary,) = done.sessions
    assert (summary.session, summary.calls) == (f"{CHAT}.agent-explore-7", 2)
    found = await messages(store, f"{CHAT}.agent-explore-7")
    assert [words(one) for one in found][1] == "a:both+c1+c2"
    links = [one for one in await records(store, summary.session) if one.type == "session:linked"]
    assert [CHAT.encode() in one.payload for one in links] == [True]


async def test_a_subagents_last_round_waits_for_more_calls(tmp_path: Path) -> None:
    log = Qwen(agentId="a", isSidechain=True).user("count").answer(says("x"), agentRound=1)
    _, summary = await load_data(tmp_path, log.data(), complete=False)
    assert (summary.messages, summary.waiting) == (
        1,
        ("line 2: the last answer may still get more calls",),
    )


async def test_a_bootstrapped_agent_begins_with_its_history(tmp_path: Path) -> None:
    history = [{"role": "user", "parts": [says("go")]}, {"role": "model", "parts": [says("yes")]}]
    log = Qwen(agentId="a", isSidechain=True).system("agent_bootstrap", history=history)
    store, _ = await load_data(tmp_path, log.user("count").answer(says("two")).data())
    assert await views_in_words(store, f"{CHAT}.agent-a") == [["u:go", "a:yes", "u:count"]]


def test_a_claude_code_file_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(ClaudeCode().system("compact_boundary").user("go").data())
    assert choose(path, None).name == "claude-code"
