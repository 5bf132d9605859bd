"""Importing again: nothing new from an unchanged file, the rest of one that grew, a clear error
for one that was changed."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.errors import SourceChanged, TranscriptError
from eventctx.importers.load import import_file
from eventctx.log.codec import encode_event, raw_of
from eventctx.log.events import Erased, MessageAdded, Pinned
from eventctx.log.ids import derive_trace_id
from eventctx.log.record import Draft, Record, make_body
from eventctx.log.store import Address
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.importers.given import (
    NOW,
    SESSION,
    ClaudeCode,
    call,
    load,
    messages,
    records,
    salt,
    story,
    text,
)
from tests.importers.growing import FILES, claude_code


async def in_steps(name: str, steps: list[bytes]) -> list[Record]:
    """Import ever longer versions of a file into one store; its records at the end."""
    store = MemoryStore()
    session: str | None = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.jsonl"
        for number, data in enumerate(steps):
            path.write_bytes(data)
            try:
                summary = await load(store, path, format=name)
            except TranscriptError:
                # Of a list that has not one whole message yet nothing can be said.
                assert number < len(steps) - 1
                continue
            session = summary.session
    return await records(store, session) if session is not None else []


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_at_any_line_and_imported_again_equals_one_import(name: str) -> None:
    data = FILES[name]
    whole = one_import(name)
    lines = data.splitlines(keepends=True)
    # A usual run cuts at every second line; the next test cuts at some of the others.
    for cut in range(1, len(lines), some(2, 1)):
        prefix = b"".join(lines[:cut])
        assert story(asyncio.run(in_steps(name, [prefix, data]))) == whole, cut


@cache
def one_import(name: str) -> tuple[list[Any], bytes]:
    return story(asyncio.run(in_steps(name, [FILES[name]])))


@cache
def cuts_of(name: str) -> st.SearchStrategy[int]:
    whole = FILES[name]
    # The long progress line adds bytes to choose from and nothing to find in them.
    return st.integers(1, len(whole)) | st.sampled_from(
        [place for place in range(1, len(whole)) if whole[place - 1 : place] in b'\n{}",']
    )


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=some(4, 60), deadline=None)
@given(data=st.data())
def test_a_file_cut_at_any_bytes_and_imported_again_equals_one_import(
    name: str, data: st.DataObject
) -> None:
    whole = FILES[name]
    steps = sorted(data.draw(st.lists(cuts_of(name), min_size=1, max_size=4)))
    grown = asyncio.run(in_steps(name, [*(whole[:step] for step in steps), whole]))
    assert story(grown) == one_import(name)


async def test_a_copy_under_another_name_is_the_same_source(tmp_path: Path) -> None:
    store = MemoryStore()
    for name in ("one.jsonl", "two.log"):
        (tmp_path / name).write_bytes(claude_code())
    await load(store, tmp_path / "one.jsonl")
    assert (await load(store, tmp_path / "two.log")).added == 0


# -- documents -----------------------------------------------------------------------------------


def mini(rows: int, status: str | None) -> bytes:
    extra = {"response": {"usage": {"prompt_tokens": 5}}}
    answers = [
        {"role": "assistant", "content": f"step {n}", "extra": extra}
        if n % 2
        else {"role": "user", "content": f"<returncode>{n}"}
        for n in range(1, rows)
    ]
    task = [{"role": "system", "content": "s"}, {"role": "user", "content": "task"}]
    info = {"exit_status": status, "cost": rows}
    return json.dumps(
        {"messages": task + answers, "info": info, "trajectory_format": "mini-swe-agent-1"}
    ).encode()


async def test_a_trajectory_that_is_rewritten_as_it_goes_adds_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "run.traj.json"
    store = MemoryStore()
    for rows, status in ((3, None), (7, None), (12, "Submitted")):
        path.write_bytes(mini(rows, status))
        summary = await load(store, path)
        assert summary.messages == rows + 1
    assert (await load(store, path)).added == 0
    other = MemoryStore()
    await load(other, path)
    assert await messages(store, "run") == await messages(other, "run")
    kept = [r for r in await records(store, "run") if r.type == "import:raw"]
    documents = [r for r in kept if b'"cost"' in (raw_of(r) or b"")]
    assert len(documents) == 3


# -- changed files and other writers -------------------------------------------------------------


async def test_a_changed_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    log = ClaudeCode().user("one").user("two").user("three")
    path.write_bytes(log.data())
    store = MemoryStore()
    await load(store, path)
    path.write_bytes(log.data().replace(b"two", b"TWO"))
    with pytest.raises(SourceChanged, match=r"line 2.*--session"):
        await load(store, path)
    assert (await load(store, path, session="another")).messages == 3


def live_message() -> Draft:
    kind, version, payload = encode_event(MessageAdded())
    message = {"role": "user", "content": "live"}
    body = make_body(json.dumps(message).encode(), encode_facts(read_facts(message)), salt)
    return Draft(b"L" * 16, kind, version, NOW, payload, (body,))


async def test_a_session_that_was_continued_live_is_not_imported_over(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    log = ClaudeCode().user("one")
    path.write_bytes(log.data())
    store = MemoryStore()
    await load(store, path)
    head = await store.head(SESSION)
    assert head is not None
    await store.append(SESSION, [live_message()], head.head)
    for data in (log.data(), log.user("two").data()):
        path.write_bytes(data)
        with pytest.raises(SourceChanged, match="continued"):
            await load(store, path)


async def test_a_live_session_of_the_same_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(ClaudeCode().user("one").data())
    store = MemoryStore()
    await store.append(SESSION, [live_message()], -1)
    with pytest.raises(SourceChanged, match="--session"):
        await load(store, path)


async def test_pins_and_erasures_after_an_import_do_not_stand_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    log = ClaudeCode().user("one").user("secret")
    path.write_bytes(log.data())
    store = MemoryStore()
    await load(store, path)
    found = await records(store, SESSION)
    place = next(r.position for r in found if r.bodies and b"secret" in (r.bodies[0].data or b""))
    drafts = []
    for mark, event in enumerate(
        (Pinned(numbers=(0,)), Erased(numbers=(1,), bodies=((place, 0),), reason="asked"))
    ):
        kind, version, payload = encode_event(event)
        drafts.append(Draft(bytes([mark]) * 16, kind, version, NOW, payload))
    await store.append(SESSION, drafts, found[-1].position)
    await store.erase({SESSION: {Address(place): b""}})
    assert (await load(store, path)).added == 0
    path.write_bytes(log.user("three").data())
    assert (await load(store, path)).messages == 3
    prepared = [r for r in await records(store, SESSION) if r.type == "context:message_added"]
    assert len(prepared) == 3


# -- subagents -----------------------------------------------------------------------------------


def family(tmp_path: Path, answered: bool) -> Path:
    main = ClaudeCode().user("go").answer("m1", call("t1", "Task")).progress(agentId="a1")
    if answered:
        main.result("t1", "report").answer("m2", text("x")).system("turn_duration")
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(main.data())
    folder = tmp_path / SESSION / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    agent = ClaudeCode(isSidechain=True, agentId="a1").user("task").answer("m9", text("report"))
    (folder / "agent-a1.jsonl").write_bytes(agent.data())
    (folder / "agent-empty.jsonl").write_bytes(b"")
    return path


async def test_subagents_become_linked_streams(tmp_path: Path) -> None:
    path = family(tmp_path, answered=True)
    store = MemoryStore()
    summaries = await import_file(store, path, clock=lambda: NOW, salt=salt)
    child = f"{SESSION}.agent-a1"
    assert [s.session for s in summaries] == [SESSION, child, None]
    assert summaries[0].links == (child,)
    down = [r for r in await records(store, SESSION) if r.type == "session:linked"]
    up = [r for r in await records(store, child) if r.type == "session:linked"]
    assert [json.loads(r.payload) for r in down] == [
        {"event": "session:linked", "session": child, "relation": "child", "call_id": "t1"}
    ]
    (task,) = [r for r in await records(store, SESSION) if r.type == "tool:pre"]
    assert [json.loads(r.payload) for r in up] == [
        {
            "event": "session:linked",
            "session": SESSION,
            "relation": "parent",
            "call_id": "t1",
            "trace_id": derive_trace_id(SESSION, task.turn_id),
            "span_id": task.span_id,
        }
    ]
    assert len(await messages(store, child)) == 2
    again = await import_file(store, path, clock=lambda: NOW, salt=salt)
    assert sum(s.added for s in again) == 0


async def test_a_subagent_at_work_waits_until_its_task_is_answered(tmp_path: Path) -> None:
    store = MemoryStore()
    path = family(tmp_path, answered=False)
    first = await import_file(store, path, clock=lambda: NOW, salt=salt)
    assert [s.messages for s in first] == [1, 1, 0]
    path = family(tmp_path, answered=True)
    second = await import_file(store, path, clock=lambda: NOW, salt=salt)
    assert [s.messages for s in second] == [4, 2, 0]
    third = await import_file(store, path, clock=lambda: NOW, salt=salt)
    assert sum(s.added for s in third) == 0
