"""Codex takes turns back: they stay in the transcript, and no later view holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.importers.formats.codex import parse
from eventctx.importers.source.items import Raw, Undone
from eventctx.stores.memory import MemoryStore
from tests.importers.given import Codex, items_of, load, of_type


def says(log: Codex, *words: str, task: bool = True) -> Codex:
    """A turn: a person's words, the answer, and what else is said in it."""
    if task:
        log.event("task_started")
    for place, one in enumerate(words):
        log.says("assistant" if place % 2 else "user", one)
    return log.event("task_complete") if task else log


def summary(value: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": value}]
    return {"type": "message", "role": "user", "content": content}


def compacts(log: Codex, value: str) -> Codex:
    return log.line("compacted", message="", replacement_history=[summary(value)])


def rolled_back(log: Codex, turns: int = 1) -> Codex:
    return log.event("thread_rolled_back", num_turns=turns)


async def shown(log: Codex, tmp_path: Path) -> list[list[str]]:
    """The texts of each request of the import, which adds nothing when it is done again."""
    store = MemoryStore()
    engine = Engine(store)
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(log.data())
    name = (await load(store, path, complete=True)).session or ""
    assert (await load(store, path, complete=True)).added == 0
    assert (await engine.verify(name)).ok
    requests = []
    for asked in (await engine.audit(name)).requests:
        view = await engine.request_view(name, position=asked.position)
        assert view.consistent
        requests.append([row["content"][0]["text"] for row in view.messages[1:]])
    return requests


async def test_a_turn_that_was_rolled_back_is_in_no_later_view(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    last = await shown(says(rolled_back(log), "blue", "is blue"), tmp_path)
    assert last[1:] == [["oil", "oiled", "red"], ["oil", "oiled", "blue"]]


async def test_several_turns_go_with_all_that_was_said_in_them(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red", "more", "is more")
    log = says(says(log, "green", "is green"), "grey", "is grey")
    log = says(rolled_back(rolled_back(log), 2), "blue", "is blue")
    assert (await shown(log, tmp_path))[-1] == ["oil", "oiled", "blue"]


async def test_what_comes_before_the_first_prompt_stays_when_all_turns_go(tmp_path: Path) -> None:
    log = Codex().event("task_started").says("developer", "rules").says("user", "oil")
    log = rolled_back(log.says("assistant", "oiled").event("task_complete"), 9)
    assert (await shown(says(log, "blue", "is blue"), tmp_path))[-1] == ["rules", "blue"]


async def test_without_tasks_each_prompt_begins_a_turn(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled", task=False), "red", "is red", task=False)
    log = says(rolled_back(log), "blue", "is blue", task=False)
    assert (await shown(log, tmp_path))[-1] == ["oil", "oiled", "blue"]


async def test_a_compaction_in_a_turn_is_undone_with_it(tmp_path: Path) -> None:
    log = says(compacts(says(Codex(), "oil", "oiled"), "S"), "dust", "dusted")
    log = compacts(log.event("task_started").says("user", "red").says("assistant", "is red"), "T")
    log = rolled_back(log.says("assistant", "still red").event("task_complete"))
    log = says(rolled_back(says(log, "green", "is green")), "blue", "is blue")
    found = await shown(log, tmp_path)
    assert found[3] == ["T"]
    assert found[4:] == [["S", "dust", "dusted", "green"], ["S", "dust", "dusted", "blue"]]
    # Two turns back, the first compaction is undone, too.
    log = says(rolled_back(log, 3), "white", "is white")
    assert (await shown(log, tmp_path))[-1] == ["white"]


async def test_a_compaction_by_hand_goes_with_the_turn_before_it(tmp_path: Path) -> None:
    log = says(says(Codex(), "oil", "oiled"), "red", "is red")
    log = rolled_back(compacts(log.event("task_started"), "S").event("task_complete"))
    assert (await shown(says(log, "blue", "x"), tmp_path))[-1] == ["oil", "oiled", "blue"]


def test_a_count_that_is_none_takes_nothing_back() -> None:
    log = says(Codex(), "oil", "oiled").event("thread_rolled_back", num_turns=None)
    found = items_of(parse, rolled_back(log, 0).data())
    assert of_type(found, Undone) == []
    assert [item.kind for item in of_type(found, Raw) if not item.understood] == []
