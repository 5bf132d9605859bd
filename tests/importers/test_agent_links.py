"""The sessions of imported subagents lead to the calls that started them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.load import import_file
from eventctx.stores.memory import MemoryStore
from tests.importers.given import SESSION, ClaudeCode, call, events, text


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
