"""The files of GitHub Copilot CLI, Cursor and Qwen Code."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from eventctx.importers.formats.cursor import parse
from eventctx.importers.found import search
from eventctx.importers.load import import_file
from eventctx.importers.many import import_paths
from eventctx.importers.source.items import MessageItem
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Copilot, Cursor
from tests.importers.given import put, text
from tests.importers.items import always, items_of, of_type, texts
from tests.importers.taken import (
    events,
    imported,
    linked_to,
    load,
    load_data,
    messages,
    next_request,
    usage,
    views_in_words,
    words,
)
from tests.importers.terminal_agents import CHAT, Qwen, calls, says

# -- GitHub Copilot CLI ----------------------------------------------------------------------------


async def test_a_first_prompt_waits_for_the_system_prompt_that_follows_it(tmp_path: Path) -> None:
    log = Copilot().user("sort")
    store, summary = await load_data(tmp_path, log.data(), complete=False)
    assert summary.messages == 0
    path = put(tmp_path / "file.jsonl", log.system().answer("sorted").data())
    assert (await load(store, path)).messages == 3
    assert (await messages(store, "cp-1"))[0] == {"role": "system", "content": "Be brief."}


async def test_a_summary_stands_for_what_was_there_when_it_was_begun(tmp_path: Path) -> None:
    log = Copilot().user("Never drop a jar.").system().answer("a", "t1").result("t1")
    log.answer("b", "t2").event("session.compaction_start").result("t2").compacted("In short")
    store, session = await imported(tmp_path, log.answer("c").data(), complete=True)
    (done,) = await events(store, session, "context:post_compact")
    assert (done.tokens_recorded, done.requested_by) == (900, "copilot:threshold")
    shown = await next_request(store, session)
    assert [one["role"] for one in shown] == ["system", "user", "assistant", "tool", "assistant"]
    assert "<summary>\nIn short\n</summary>" in shown[1]["content"]
    assert "<user_message>\nNever drop a jar.\n</user_message>" in shown[1]["content"]
    # Of many prompts it repeats the first and the last.
    log = Copilot()
    for number in range(30):
        log.user(f"prompt {number}").answer("so")
    store, session = await imported(tmp_path, log.compacted("S").data(), complete=True)
    text = (await next_request(store, session))[0]["content"]
    kept = [number for number in range(30) if f"\nprompt {number}\n" in text]
    assert kept == [0, 1, 2, 3, *range(14, 30)]
    assert "... 10 messages omitted ..." in text


async def test_a_subagent_is_a_session_of_its_own_that_its_call_began(tmp_path: Path) -> None:
    log = Copilot().user("sort").answer("", "t1").agent("a1")
    log.event("subagent.started", toolCallId="t1").user("look", source="agent-cp-1")
    log.answer("seen", "t2").result("t2").agent(None).result("t1", "seen").answer("sorted")
    log.answer("of old", parentToolCallId="t9").result("t10", parentToolCallId="t9")
    path, store = put(tmp_path / "events.jsonl", log.data()), MemoryStore()
    done = await import_file(store, path, complete=True)
    counts = [(one.session, one.messages) for one in done]
    assert counts == [("cp-1", 4), ("cp-1.agent-t1", 3), ("cp-1.agent-t9", 2)]
    assert done[0].links == ("cp-1.agent-t1",)
    (link,) = await events(store, "cp-1.agent-t1", "session:linked")
    assert (link.session, link.relation) == ("cp-1", "parent")
    assert not any(one.added for one in await import_file(store, path, complete=True))


async def test_words_of_the_program_begin_no_turn_and_errors_may_end_one(tmp_path: Path) -> None:
    log = Copilot().user("sort").answer("a").user("go on", isAutopilotContinuation=True)
    log.event("system.notification", content="<system_notification>done</system_notification>")
    log.event("system.notification", content="x", kind={"type": "instruction_discovered"})
    store, session = await imported(tmp_path, log.answer("b").data(), complete=True)
    assert len(await events(store, session, "prompt:submit")) == 1
    assert len(await messages(store, session)) == 5
    log = Copilot().user("one").event("session.error", errorType="query").answer("a").user("two")
    log.event("session.error", errorType="quota").user("three").event("abort", reason="user")
    store, session = await imported(tmp_path, log.data(), complete=True)
    ends = await events(store, session, "prompt:complete")
    assert [one.status for one in ends] == ["ok", "error", "cancelled"]


async def test_a_session_is_called_as_it_says_else_as_its_folder(tmp_path: Path) -> None:
    first, *lines = Copilot().user("one").answer("a").data().splitlines(keepends=True)
    for data, name in ((b"".join([first, *lines]), "cp-1"), (b"".join(lines), "folder")):
        _, summary = await load_data(tmp_path, data, "folder/events.jsonl")
        assert summary.session == name


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


async def test_a_text_says_which_calls_were_made_and_its_last_message_waits(tmp_path: Path) -> None:
    path, store = tmp_path / "talk.txt", MemoryStore()
    for cut in range(20, len(WRITTEN), 7):
        await load(store, put(path, WRITTEN[:cut].encode()))
    summary = await load(store, put(path, WRITTEN.encode()), complete=True)
    assert (summary.session, summary.format, summary.turns) == ("talk", "cursor", 2)
    found = await messages(store, "talk")
    assert texts(items_of(parse, WRITTEN.encode(), always)) == found
    _, answer, _, last = found
    thinking, write, shell = answer["content"]
    assert thinking["text"] == "[Thinking] Look first."
    assert write["input"] == {"path": "/start.sh", "contents": "#!/bin/sh\nset -e\n\necho on"}
    assert (shell["name"], shell["input"]) == ("Shell", {"command": "sh start.sh"})
    assert last["content"] == [text("thanks")]


async def test_subagents_are_found_around_the_file_and_linked(tmp_path: Path) -> None:
    project = tmp_path / ".cursor" / "projects" / "p"
    folder = project / "agent-transcripts" / "main"
    path = put(folder / "main.jsonl", Cursor().user("go").answer(text("ok")).data())
    child = Cursor().user("look").answer(text("seen"))
    put(folder / "subagents" / "child.jsonl", child.data())
    put(folder.parent / "old.txt", WRITTEN.encode())
    put(project / "tools.json", b'{"tools": []}')
    put(project / "terminal.txt", b"$ ls")
    found = search(project.parent)
    assert sorted(Path(one).name for one in found.files) == ["main.jsonl", "old.txt"]
    assert {Path(one.path).name for one in found.files[str(path)]} == {"main.jsonl", "child.jsonl"}
    store = MemoryStore()
    done = await import_file(store, path, complete=True)
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


async def test_what_was_rewound_or_never_sent_is_taken_back(tmp_path: Path) -> None:
    log = Qwen().user("go").answer(says("yes")).user("more").answer(says("sure"))
    log.compressed(("user", says("In short"))).user("on").answer(says("fine")).back_to("u1")
    store, summary = await load_data(tmp_path, log.user("again").answer(says("so")).data())
    assert (await views_in_words(store, CHAT))[-1] == ["u:go", "a:yes", "u:again"]
    assert summary.warned == 0
    log = Qwen().user("go").answer(says("yes")).user("/about")
    items = [{"type": "assistant", "text": "0.20"}]
    log.system("slash_command", phase="result", rawCommand="/about", outputHistoryItems=items)
    store, _ = await load_data(tmp_path, log.user("more").answer(says("sure")).data())
    assert (await views_in_words(store, CHAT))[-1] == ["u:go", "a:yes", "u:more"]


async def test_only_a_persons_words_begin_a_turn(tmp_path: Path) -> None:
    log = Qwen().user("go", provenance="real_user").answer(calls("c1"))
    log.user("wait", subtype="mid_turn_user_message", provenance="real_user").result("c1")
    log.answer(says("done")).user("it ended", subtype="notification", provenance="system")
    log.answer(says("good")).user("go on", subtype="goal_runtime", provenance="goal_runtime")
    store, summary = await load_data(tmp_path, log.data())
    assert (summary.turns, summary.messages) == (1, 8)
    added = await events(store, CHAT, "context:message_added")
    assert [one.origin for one in added].count("harness") == 2


async def test_a_subagents_round_is_one_answer_in_a_session_of_its_own(tmp_path: Path) -> None:
    log = Qwen(agentId="explore-7", agentName="Explore", isSidechain=True).user("count")
    log.answer(says("both"), agentRunId="r", agentRound=1).answer(calls("c1"), usageMetadata=None)
    log.answer(calls("c2"), usageMetadata=None).result("c1").result("c2")
    log.answer(says("two"), agentRunId="r", agentRound=2)
    put(tmp_path / "subagents" / CHAT / "agent-explore-7.jsonl", log.data())
    store, session = MemoryStore(), f"{CHAT}.agent-explore-7"
    (summary,) = (await import_paths(store, [tmp_path], complete=True)).sessions
    assert (summary.session, summary.calls) == (session, 2)
    assert words((await messages(store, session))[1]) == "a:both+c1+c2"
    assert await linked_to(store, session) == [CHAT]


async def test_a_subagents_last_round_waits_and_its_history_comes_first(tmp_path: Path) -> None:
    log = Qwen(agentId="a", isSidechain=True).user("count").answer(says("x"), agentRound=1)
    _, summary = await load_data(tmp_path, log.data(), complete=False)
    reason = "line 2: the last answer may still get more calls"
    assert (summary.messages, summary.waiting) == (1, (reason,))
    history = [{"role": "user", "parts": [says("go")]}, {"role": "model", "parts": [says("yes")]}]
    log = Qwen(agentId="a", isSidechain=True).system("agent_bootstrap", history=history)
    store, _ = await load_data(tmp_path, log.user("count").answer(says("two")).data())
    shown = await views_in_words(store, f"{CHAT}.agent-a")
    assert shown == [["u:go", "a:yes", "u:count"]]
