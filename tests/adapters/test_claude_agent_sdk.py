"""Transcripts of the Claude Agent SDK kept in the log; its own contracts, where it is installed.

Its wheel carries a program of 160 MB, so it is not among what tests need: ``make elsewhere``
installs its source alone (0.4 MB).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.claude_agent_sdk import EventctxSessionStore
from eventctx.engine import Engine
from eventctx.errors import InvalidMessage, SessionWasDeleted
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import sum_sessions
from tests.adapters.conftest import engine as engine
from tests.importers.given import SESSION, ClaudeCode

MAIN: Any = {"project_key": "-work-parser", "session_id": SESSION}
AGENT: Any = {**MAIN, "subpath": "subagents/agent-a1"}


@pytest.fixture
def store(engine: Engine) -> EventctxSessionStore:
    return EventctxSessionStore(engine)


def rows() -> list[Any]:
    said = ClaudeCode()
    said.user("Never touch the file legacy.py.").answer("m1", {"type": "text", "text": "Yes."})
    return said.user("Thanks.").rows


async def test_the_sdks_own_contracts_hold() -> None:
    testing = pytest.importorskip("claude_agent_sdk.testing", reason="an extra")
    made: list[EventctxSessionStore] = []
    async with AsyncExitStack() as engines:

        async def fresh() -> EventctxSessionStore:
            engine = await engines.enter_async_context(eventctx.open("memory://"))
            made.append(EventctxSessionStore(engine))
            return made[-1]

        await testing.run_session_store_conformance(fresh)
    assert len(made) == 15  # the suite's first look, and 14 contracts


async def test_entries_come_back_equal_in_order_and_from_another_process(tmp_path: Path) -> None:
    odd: Any = {"type": "x", "deep": [{"é": 1.5, "n": 2**70}], "text": "a\nb \ud83d"}
    entries: list[Any] = [odd, *rows()]
    async with eventctx.open(tmp_path / "a.db") as engine:
        store = EventctxSessionStore(engine)
        for batch in (entries[:2], [], entries[2:]):
            await store.append(MAIN, batch)
    async with eventctx.open(tmp_path / "a.db") as engine:
        store = EventctxSessionStore(engine)
        assert await store.load(MAIN) == entries
        assert await store.load({**MAIN, "session_id": "other"}) is None
        assert await store.load(AGENT) is None


async def test_a_batch_that_comes_again_is_kept_once_and_what_another_store_appends(
    engine: Engine, store: EventctxSessionStore
) -> None:
    for one in (store, store, EventctxSessionStore(engine)):
        await one.append(MAIN, rows())
    title: Any = {"type": "custom-title", "customTitle": "same"}
    for _ in range(2):  # without a uuid nothing says that it is a retry
        await store.append(MAIN, [title])
    assert await store.load(MAIN) == [*rows(), title, title]
    another = EventctxSessionStore(engine)  # two begin one transcript
    await another.append(AGENT, rows()[:1])
    await store.append(AGENT, rows()[1:])
    await another.append(AGENT, [*rows(), title])
    await store.append(AGENT, rows())
    assert await another.load(AGENT) == [*rows(), title]


async def test_a_batch_whose_append_was_cancelled_is_kept_once(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "a.db") as engine:
        store = EventctxSessionStore(engine)
        await store.append(MAIN, rows()[:1])
        for steps in range(6):
            batch: Any = [{**row, "uuid": f"{steps}-{at}"} for at, row in enumerate(rows())]
            appending = asyncio.ensure_future(store.append(MAIN, batch))
            for _ in range(steps):
                await asyncio.sleep(0)
            appending.cancel()
            await asyncio.wait((appending,))
            await store.append(MAIN, batch)
        kept: Any = await store.load(MAIN)
        ids = [one["uuid"] for one in kept]
        assert len(ids) == len(set(ids)) == 1 + 6 * len(rows())


async def test_sessions_are_listed_by_project_until_they_are_deleted(engine: Engine) -> None:
    store = EventctxSessionStore(engine, clock=lambda: 1_900_000_000_123_456_789)
    await store.delete(MAIN)
    await store.append(MAIN, rows())
    await store.append(AGENT, rows())
    await store.append({**MAIN, "project_key": "another/path"}, rows())
    listed = [{"session_id": SESSION, "mtime": 1_900_000_000_123}]
    assert await store.list_sessions("-work-parser") == listed
    assert await store.list_sessions("nowhere") == []
    assert await store.list_subkeys(MAIN) == ["subagents/agent-a1"]
    await store.delete(MAIN)
    assert [await store.load(one) for one in (MAIN, AGENT)] == [None, None]
    assert await store.list_sessions("-work-parser") == []
    with pytest.raises(SessionWasDeleted):
        await store.append(MAIN, rows())


async def test_what_is_no_json_is_refused_and_loses_nothing(store: EventctxSessionStore) -> None:
    await store.append(MAIN, rows()[:1])
    for value in (object(), float("nan")):
        bad: Any = [{"type": "x"}, {"type": "x", "uuid": "bad", "value": value}]
        for key in (MAIN, {**MAIN, "session_id": "begun"}):
            with pytest.raises(InvalidMessage, match=r"\$\[1\]: expected an entry of plain JSON"):
                await store.append(key, bad)
    await store.append(MAIN, rows()[1:])
    assert await store.load(MAIN) == rows()
    assert [one["session_id"] for one in await store.list_sessions("-work-parser")] == [SESSION]


async def test_a_session_is_imported_with_its_subagents_and_only_what_is_new(
    engine: Engine, store: EventctxSessionStore
) -> None:
    assert await store.import_session(MAIN) == []
    agent = ClaudeCode(isSidechain=True, agentId="a1").user("Find it.")
    await store.append(MAIN, rows()[:1])
    await store.append(AGENT, [*agent.rows])
    await store.append({**MAIN, "subpath": "../../outside"}, rows())
    first = await store.import_session(MAIN)
    assert [one.session for one in first] == [SESSION, f"{SESSION}.agent-a1"]
    await store.append(MAIN, rows()[1:])
    assert [one.added > 0 for one in await store.import_session(MAIN)] == [True, False]
    roles = [one.message["role"] for one in await engine.transcript(SESSION)]
    assert roles == ["user", "assistant", "user"]
    found = await engine.instructions(SESSION)
    assert [one.text for one in found.instructions] == ["Never touch the file legacy.py."]
    # The lines belong to the session that is imported from them.
    sums = [one.sums for one in await sum_sessions(engine.store, ReadErrors())]
    assert ("", 3) in [(one.belongs_to or "", one.messages) for one in sums]
    assert {one.belongs_to for one in sums if not one.messages} == {SESSION}


# -- hooks, where the SDK is installed -------------------------------------------------------------


OF_SESSION = {"session_id": SESSION, "transcript_path": f"/home/-work-parser/{SESSION}.jsonl"}


async def happens(store: EventctxSessionStore, event: str, **given: Any) -> Any:
    """What the hook of an event answers."""
    pytest.importorskip("claude_agent_sdk", reason="an extra: eventctx[claude-agent-sdk]")
    hooks: Any = store.hooks()
    (matcher,) = hooks[event]
    assert matcher.matcher == ("compact" if event == "SessionStart" else None)
    (hook,) = matcher.hooks
    return await hook({"hook_event_name": event, **given} if given else {}, None, {"signal": None})


async def test_after_a_compaction_the_hooks_tell_the_model_what_was_demanded(
    store: EventctxSessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.append(MAIN, rows())
    await store.import_session(MAIN)
    answered = await happens(store, "SessionStart", session_id=SESSION, source="compact")
    told = answered["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    assert "Never touch the file legacy.py." in told["additionalContext"]
    with caplog.at_level(logging.WARNING):
        assert await happens(store, "SessionStart", session_id="unknown", source="compact") == {}
    assert "reminded of nothing" in caplog.text


async def test_lines_after_a_turn_are_imported(engine: Engine, store: EventctxSessionStore) -> None:
    """Claude Code writes the last ones a tenth of a second after it called the hook."""
    said = ClaudeCode()
    said.user("One?").answer("m1", {"type": "text", "text": "Yes."}).user("Two?").user("Three?")
    first, answer, second, third = said.rows
    steps: list[tuple[Any, int]] = [
        *[([first], 0), ("Stop", 1), ([answer, second], 3)],
        *[("UserPromptSubmit", 3), ([third], 3), ("Stop", 4)],
    ]
    for step, expected in steps:
        if isinstance(step, str):
            assert await happens(store, step, **OF_SESSION) == {}
        else:
            await store.append(MAIN, step)
        known = await engine.store.head(SESSION) is not None
        assert (len(await engine.transcript(SESSION)) if known else 0) == expected


async def test_the_hooks_import_and_never_stop_the_agent(
    engine: Engine, store: EventctxSessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.append(MAIN, rows())
    assert await happens(store, "PreCompact", **OF_SESSION) == {}
    assert len(await engine.transcript(SESSION)) == 3
    with caplog.at_level(logging.WARNING):
        assert await happens(store, "PreCompact", **{**OF_SESSION, "session_id": "../x"}) == {}
        assert await happens(store, "PreCompact") == {}
    assert len(caplog.records) == 2
