"""Qwen Code's chats: its tree of records, compressions, and the files of subagents."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.importers.detect import choose
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, load, messages, records
from tests.importers.terminal_agents import CHAT, Qwen, calls, says
from tests.importers.test_gemini import usage, views, words


async def imported(
    tmp_path: Path, log: Qwen, *, complete: bool = True
) -> tuple[MemoryStore, ImportSummary]:
    path = tmp_path / "chat.jsonl"
    path.write_bytes(log.data())
    store = MemoryStore()
    return store, await load(store, path, complete=complete)


@pytest.mark.parametrize(("total", "output"), [(109, 9), (113, 13)])
async def test_the_total_tells_whether_the_output_has_the_thoughts(
    total: int, output: int, tmp_path: Path
) -> None:
    counts = {"promptTokenCount": 100, "candidatesTokenCount": 9, "thoughtsTokenCount": 4}
    log = Qwen().user("go").answer(says("x"), usageMetadata={**counts, "totalTokenCount": total})
    store, _ = await imported(tmp_path, log)
    assert await usage(store, CHAT) == (100, output, 0, 4)


async def test_a_rewind_past_a_compression_brings_back_what_it_took_out(tmp_path: Path) -> None:
    log = Qwen().user("go").answer(says("yes")).user("more").answer(says("sure"))
    log.compressed(("user", says("In short"))).user("on").answer(says("fine")).back_to("u1")
    store, summary = await imported(tmp_path, log.user("again").answer(says("so")))
    assert (await views(store, CHAT))[-1] == ["u:go", "a:yes", "u:again"]
    assert summary.warned == 0


async def test_only_a_persons_words_begin_a_turn(tmp_path: Path) -> None:
    log = Qwen().user("go", provenance="real_user").answer(calls("c1"))
    log.user("wait", subtype="mid_turn_user_message", provenance="real_user").result("c1")
    log.answer(says("done")).user("it ended", subtype="notification", provenance="system")
    log.answer(says("good")).user("go on", subtype="goal_runtime", provenance="goal_runtime")
    store, summary = await imported(tmp_path, log)
    assert (summary.turns, summary.messages) == (1, 8)
    added = [one for one in await records(store, CHAT) if one.type == "context:message_added"]
    assert sum(b"harness" in one.payload for one in added) == 2


async def test_a_command_that_was_never_sent_is_taken_back(tmp_path: Path) -> None:
    log = Qwen().user("go").answer(says("yes")).user("/about")
    items = [{"type": "assistant", "text": "0.20"}]
    log.system("slash_command", phase="result", rawCommand="/about", outputHistoryItems=items)
    store, _ = await imported(tmp_path, log.user("more").answer(says("sure")))
    assert (await views(store, CHAT))[-1] == ["u:go", "a:yes", "u:more"]


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
    _, summary = await imported(tmp_path, log, complete=False)
    assert (summary.messages, summary.waiting) == (
        1,
        ("line 2: the last answer may still get more calls",),
    )


async def test_a_bootstrapped_agent_begins_with_its_history(tmp_path: Path) -> None:
    history = [{"role": "user", "parts": [says("go")]}, {"role": "model", "parts": [says("yes")]}]
    log = Qwen(agentId="a", isSidechain=True).system("agent_bootstrap", history=history)
    store, _ = await imported(tmp_path, log.user("count").answer(says("two")))
    assert await views(store, f"{CHAT}.agent-a") == [["u:go", "a:yes", "u:count"]]


def test_a_claude_code_file_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(ClaudeCode().system("compact_boundary").user("go").data())
    assert choose(path, None).name == "claude-code"
