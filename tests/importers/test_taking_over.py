"""A session that was taken over is ours for good, and takes nothing more from its file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import ImportedSession, SessionWasTakenOver, SourceChanged
from eventctx.importers.load import import_file
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.events import MessageAdded, SessionTakenOver
from eventctx.log.record import Draft, make_body
from eventctx.log.store import STREAM_EXISTS
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.stores.memory import MemoryStore
from tests.importers.given import NOW, SESSION, ClaudeCode, call, load, records, salt, text

HELLO = {"role": "user", "content": "hello"}


def talk() -> ClaudeCode:
    one = ClaudeCode().user("Fix the test.").answer("m1", text("I look."), call("t1"))
    return one.result("t1").answer("m2", text("Done."))


def written(folder: Path, session: ClaudeCode) -> Path:
    path = folder / "talk.jsonl"
    path.write_bytes(session.data())
    return path


async def test_what_is_taken_over_is_imported_whole_and_takes_messages(tmp_path: Path) -> None:
    store = MemoryStore()
    path = written(tmp_path, talk())
    assert (await load(store, path)).waiting
    summary = await load(store, path, take_over=True)
    assert summary.taken_over
    assert not summary.waiting
    assert summary.added == 7
    found = await records(store, SESSION)
    assert found[-2].type == "prompt:complete"
    assert found[-1].type == "session:taken_over"
    assert decode_event(found[-1]) == SessionTakenOver(source="talk.jsonl", format="claude-code")
    assert found[-1].time == NOW
    async with Engine(store) as engine:
        context = await engine.session(SESSION)
        await context.add_message(HELLO)
        await context.pin(0)
        assert len(await context.get_messages()) == 5
        assert (await engine.verify(SESSION)).ok


async def test_a_later_import_is_refused_and_says_since_when(tmp_path: Path) -> None:
    store = MemoryStore()
    path = written(tmp_path, talk())
    await load(store, path, take_over=True)
    await ours(store)
    before = await store.head(SESSION)
    versions = [
        talk(),
        talk().user("More."),
        ClaudeCode().user("Fix the test."),
        ClaudeCode().user("Another."),
    ]
    for session in versions:
        written(tmp_path, session)
        for take_over in (False, True):
            with pytest.raises(SessionWasTakenOver) as caught:
                await load(store, path, take_over=take_over)
            assert caught.value.since == NOW
            assert "2030-03-17 17:46:40+00:00" in str(caught.value)
            assert "--session NEW" in str(caught.value)
    assert await store.head(SESSION) == before
    written(tmp_path, versions[1])
    assert (await load(store, path, session="anew")).messages == 5


async def ours(store: MemoryStore) -> None:
    body = make_body(encode_message(HELLO), encode_facts(read_facts(HELLO)), salt)
    name, version, payload = encode_event(MessageAdded())
    draft = Draft(os.urandom(16), name, version, NOW, payload, (body,))
    await store.append(SESSION, [draft], STREAM_EXISTS)


async def test_a_session_of_an_older_store_is_a_mirror_even_where_somebody_wrote_to_it(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    path = written(tmp_path, talk())
    await load(store, path)
    await ours(store)
    with pytest.raises(SourceChanged, match="the session was continued"):
        await load(store, written(tmp_path, talk().user("More.")))
    async with Engine(store) as engine:
        with pytest.raises(ImportedSession):
            await (await engine.session(SESSION)).clear()


async def test_the_sessions_of_subagents_stay_mirrors(tmp_path: Path) -> None:
    store = MemoryStore()
    path = written(tmp_path, talk())
    agents = path.with_suffix("") / "subagents"
    agents.mkdir(parents=True)
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("Look.").answer("m5", text("Seen."))
    (agents / "agent-a1.jsonl").write_bytes(agent.data())
    summaries = await import_file(store, path, take_over=True, clock=lambda: NOW, salt=salt)
    assert [one.taken_over for one in summaries] == [True, *[False] * (len(summaries) - 1)]
    async with Engine(store) as engine:
        for one in summaries:
            assert one.session is not None
            assert (await engine.mirror_of(one.session) is None) is one.taken_over


async def test_an_export_of_a_mirror_stays_one_and_any_other_is_ours(tmp_path: Path) -> None:
    store = MemoryStore()
    await load(store, written(tmp_path, talk()))
    async with Engine(store) as engine:
        await (await engine.session("own")).add_message(HELLO)
        await engine.close_session("own")
        copies: Any = MemoryStore()
        for name in (SESSION, "own"):
            info = await store.head(name)
            assert info is not None
            lines = [line async for line in export_lines(store, info)]
            await import_drafts(copies, name, read_drafts(iter(lines[1:])))
        async with Engine(copies) as other:
            await (await other.session("own")).add_message(HELLO)
            with pytest.raises(ImportedSession):
                await (await other.session(SESSION)).add_message(HELLO)
