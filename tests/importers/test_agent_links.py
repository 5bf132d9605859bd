"""The spans of an imported subagent lead to the call that started it, or to its compaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.queries.spans import spans
from eventctx.stores.memory import MemoryStore
from tests.importers.given import SESSION, ClaudeCode, call, events, text

MAIN = "258c7280-ae70-4798-800f-63464d01a85d"


async def test_a_subagent_links_to_its_call_and_a_summarizer_to_the_compaction(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    source = recorded_sessions / "claude-code" / "spotter-258c7280" / f"{MAIN}.jsonl"
    async with eventctx.open(tmp_path / "s.db") as engine:
        await import_file(engine.store, source, complete=True)
        again = await import_file(engine.store, source, complete=True)
        named = {}
        links = {}
        async for info in engine.each_session():
            found = [one async for one in spans(engine.store, info.stream)]
            named |= {(one.trace_id, one.span_id): one.name for one in found}
            links[info.stream] = [
                (link.trace_id, link.span_id)
                for one in found
                for link in one.links
                if link.attributes.get("eventctx.link.session") == MAIN
            ]
    assert not any(summary.added for summary in again)
    assert [named[link] for link in links[f"{MAIN}.agent-a881341"]] == ["execute_tool Task"]
    assert [named[link] for link in links[f"{MAIN}.agent-acompact-fffbd0"]] == ["compact imported"]
    assert links[MAIN] == []


def agent_file(folder: Path, name: str, answer: str = "here") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    side = ClaudeCode(isSidechain=True, agentId=name).user("look")
    path = folder / f"agent-{name}.jsonl"
    path.write_bytes(side.answer(f"s-{name}", text(answer), stop_reason="end_turn").data())
    return path


def main_file(folder: Path, **about: Any) -> Path:
    """A session with two calls, whose results say ``about`` which subagent the first one had."""
    log = ClaudeCode().user("go").answer("m1", call("t1", "Task"), call("t2", "Workflow"))
    log.result("t1", "found")
    log.rows[-1]["toolUseResult"] = about
    path = folder / f"{SESSION}.jsonl"
    path.write_bytes(log.result("t2").answer("m2", text("ok"), stop_reason="end_turn").data())
    return path


async def links_of(store: MemoryStore) -> dict[str, str | None]:
    found = await events(store, SESSION, "session:linked")
    return {one.session.rpartition(".agent-")[2]: one.call_id for one in found}


@pytest.mark.parametrize("status", ["completed", "async_launched"])
async def test_a_result_names_the_subagent_of_its_call(status: str, tmp_path: Path) -> None:
    main = main_file(tmp_path, status=status, agentId="aaa", content=[])
    agent = agent_file(tmp_path / SESSION / "subagents", "aaa")
    store = MemoryStore()
    done = await import_file(store, main)
    assert await links_of(store) == {"aaa": "t1"}
    ends = await events(store, f"{SESSION}.agent-aaa", "prompt:complete")
    # One that was started and goes on is not at its end when its call has a result.
    assert len(ends) == (status == "completed")
    agent.write_bytes(agent.read_bytes() + ClaudeCode(isSidechain=True, agentId="aaa").data())
    assert not any(one.added for one in await import_file(store, main))
    assert [one.error for one in done] == [None, None]


async def test_subagents_of_a_workflow_are_sessions_too(tmp_path: Path) -> None:
    main = main_file(tmp_path, status="completed")
    run = tmp_path / SESSION / "subagents" / "workflows" / "wf_1"
    for name in ("bbb", "ccc"):
        agent_file(run, name)
    (run / "agent-bbb.meta.json").write_text(json.dumps({"agentType": "x", "toolUseId": "t2"}))
    (run / "journal.jsonl").write_text(json.dumps({"type": "launched"}) + "\n")
    store = MemoryStore()
    done = await import_file(store, main, complete=True)
    names = [SESSION, *(f"{SESSION}.agent-{name}" for name in ("bbb", "ccc"))]
    assert [one.session for one in done] == names
    assert await links_of(store) == {"bbb": "t2", "ccc": None}
    assert not any(one.added for one in await import_file(store, main, complete=True))
