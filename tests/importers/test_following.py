"""Following files and folders: what is written appears in the store, once, whatever happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import StoreFull
from eventctx.importers import following as following_files
from eventctx.importers.following import Follower
from eventctx.importers.format_table import known_folders
from eventctx.importers.known_files import SUFFIX, KnownFiles
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import FilePassedOver, ImportedPaths
from eventctx.log.store import EventStore, Expected
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, openhands_talk
from tests.importers.given import CHAT, SESSION, ClaudeCode, Rows, call, jsonl, put, story, text
from tests.importers.taken import FullStore, draft, events, load, messages, records

PATIENCE = 60.0
"""Seconds that a test waits for what takes a fraction of one, on a busy machine."""


class Running:
    """A follower at work, and what it tells."""

    def __init__(self, store: EventStore, *paths: Path, known: Path | None, **options: Any) -> None:
        self.told: list[ImportSummary | FilePassedOver] = []
        self.stop, index = asyncio.Event(), KnownFiles(known)
        self.follower = Follower(store, paths, known=index, told=self.told.append, **options)
        self.task = asyncio.create_task(self.follower.run(self.stop))

    @property
    def passed_over(self) -> list[FilePassedOver]:
        return [one for one in self.told if isinstance(one, FilePassedOver)]

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is so; a follower that failed says why."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.02)
                if self.task.done():
                    self.task.result()

    async def has(self, messages: int, session: str = SESSION) -> None:
        """Wait until the last import of this session told of so many messages."""

        def told() -> int:
            found = [one for one in self.told if isinstance(one, ImportSummary)]
            return next((one.messages for one in reversed(found) if one.session == session), 0)

        await self.until(lambda: told() == messages)

    async def end(self) -> ImportedPaths:
        self.stop.set()
        return await self.task


@asynccontextmanager
async def following(
    store: EventStore, *paths: Path, known: Path | None = None, **options: Any
) -> AsyncIterator[Running]:
    running = Running(store, *paths, known=known, **options)
    try:
        yield running
    finally:
        running.stop.set()
        await asyncio.gather(running.task, return_exceptions=True)


async def same_as_import(store: EventStore, path: Path, session: str = SESSION) -> None:
    """The session is as after one import of the whole file, but for the places of its links."""
    assert isinstance(store, MemoryStore)
    assert (await load(store, path)).added == 0
    other = MemoryStore()
    await load(other, path)
    ours, theirs = [
        story([r for r in await records(one, session) if r.type != "session:linked"])
        for one in (store, other)
    ]
    assert ours == theirs


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following_files, "INTERVAL", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "one"
    folder.mkdir(parents=True)
    return folder


def grow(path: Path, log: Rows) -> None:
    """Append the lines of a log that its file has not yet."""
    with path.open("ab") as file:
        file.write(log.data()[file.tell() :])


@pytest.mark.slow
async def test_sessions_subagents_and_new_folders_appear_linked_and_grow(folder: Path) -> None:
    store, path, child = MemoryStore(), folder / "main.jsonl", f"{SESSION}.agent-a1"
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("look")
    log = ClaudeCode().user("go").answer("m1", call("t1")).progress(agentId="a1")
    async with following(store, folder.parent) as running:
        grow(path, log)
        await running.has(1)
        own = put(folder / "main" / "subagents" / "agent-a1.jsonl", agent.data())
        await running.has(1, child)
        grow(own, agent.user("and there"))
        await running.has(2, child)
        put(folder / "deep" / "er" / "other.jsonl", jsonl(CHAT))
        await running.has(2, "other")
        grow(path, log.result("t1").answer("m2", text("yes"), stop_reason="end_turn"))
        await running.has(4)
        assert len(await messages(store, SESSION)) == 4
        result = await running.end()
    assert (result.total.sessions, result.total.messages) == (3, 8)
    added = [len(await records(store, name)) for name in (SESSION, child, "other")]
    assert result.total.added == sum(added)
    assert len(await events(store, SESSION, "session:linked")) == 1
    await same_as_import(store, path)


async def test_what_did_not_change_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    store, known = MemoryStore(), tmp_path / "store.db"
    put(folder / "a.jsonl", jsonl(CHAT))
    put(folder / "b.jsonl", jsonl(CHAT))
    put(folder / "settings.json", b'{"theme": "dark"}')
    put(folder / "broken.json", b"[" * 100_000)
    async with following(store, folder, known=known) as running:
        await running.has(2, "a")
        await running.has(2, "b")
        await running.until(lambda: len(running.follower.result.passed_over) == 2)
    put(folder / "b.jsonl", jsonl([*CHAT, *CHAT]))
    put(folder / "c.jsonl", jsonl(CHAT))
    async with following(store, folder, known=known, patience=0.0) as running:
        await running.has(4, "b")
        await running.has(2, "c")
        result = await running.end()
    assert running.follower.unchanged == 3
    assert [one.session for one in running.told if isinstance(one, ImportSummary)] != ["a"]
    # What was passed over is said again, and that it is without reading it.
    assert {one.path.name for one in result.passed_over} == {"settings.json", "broken.json"}
    assert [one.path.name for one in running.passed_over] == ["broken.json"]
    # Another store at the same place knows nothing.
    async with following(MemoryStore(), folder, known=known) as running:
        await running.has(2, "a")


async def test_without_what_is_known_of_files_all_are_read_and_nothing_is_doubled(
    folder: Path, tmp_path: Path
) -> None:
    store, path = MemoryStore(), put(folder / "a.jsonl", jsonl(CHAT))
    known, beside = tmp_path / "store.db", tmp_path / f"store.db{SUFFIX}"
    for torn in (None, b"", b'{"eventctx_imported":1,"lib', b'{"eventctx_imported":9}'):
        if torn is not None:
            beside.write_bytes(torn)
        async with following(store, folder, known=known) as running:
            await running.until(lambda: bool(running.follower.result.sessions))
        assert json.loads(beside.read_bytes())["imported"].keys() == {str(path)}
        assert beside.stat().st_mode & 0o777 == 0o600
    await same_as_import(store, path, "a")
    # Somebody else's file of that name is left alone.
    beside.write_bytes(b'["mine"]')
    async with following(MemoryStore(), folder, known=known) as running:
        await running.has(2, "a")
    assert beside.read_bytes() == b'["mine"]'


@pytest.mark.slow
async def test_a_file_that_cannot_be_read_is_said_once_and_the_rest_followed(folder: Path) -> None:
    bad = put(folder / "bad.jsonl", b"[" * 100_000)
    async with following(MemoryStore(), folder, patience=0.1) as running:
        await running.until(lambda: len(running.told) == 1)
        put(folder / "good.jsonl", jsonl(CHAT))
        await running.has(2, "good")
        result = await running.end()
    assert [one.path for one in running.passed_over] == [bad]
    assert result.total.failed == 1


async def test_half_a_first_line_is_not_said_to_be_broken(folder: Path) -> None:
    log, path = ClaudeCode().user("one"), folder / "a.jsonl"
    async with following(MemoryStore(), folder) as running:
        put(path, b"")
        put(path, log.data()[:30])
        await running.until(lambda: bool(running.follower.result.passed_over))
        grow(path, log)
        await running.has(1)
        result = await running.end()
    assert result.passed_over == ()
    assert running.passed_over == []


async def test_a_file_that_is_cut_is_passed_over_until_it_is_whole_again(folder: Path) -> None:
    log = ClaudeCode().user("one").user("two")
    path = put(folder / "a.jsonl", log.data())
    async with following(MemoryStore(), folder, patience=0.0) as running:
        await running.has(2)
        put(path, log.data().splitlines(keepends=True)[0])
        await running.until(lambda: len(running.told) == 2)
        assert [one.error for one in running.passed_over] == ["SourceChanged"]
        put(path, log.user("three").data())
        await running.has(3)
        assert (await running.end()).passed_over == ()


@pytest.mark.slow
async def test_a_document_and_a_folder_of_events_are_read_anew(folder: Path) -> None:
    store, path, log = MemoryStore(), folder / "chat.json", openhands_talk()
    async with following(store, folder) as running:
        for chat in (CHAT, [*CHAT, *CHAT]):
            path.write_text(json.dumps(chat))
            await running.has(len(chat), "chat")
        log.folder(folder / "run" / "events")
        await running.has(5, "run")
        log.user("more").says("sure").folder(folder / "run" / "events")
        await running.has(7, "run")
    await same_as_import(store, path, "chat")


@pytest.mark.parametrize("named", [True, False])
async def test_amplifiers_files_of_a_session_are_followed_as_one(
    folder: Path, *, named: bool
) -> None:
    store, session = MemoryStore(), folder / "amp-1"
    log = AmplifierLog().prompt("go").request().response(text("done"))
    events = put(session / "events.jsonl", log.data())
    put(session / "metadata.json", b"{}")
    put(session / "transcript.jsonl", jsonl(CHAT))
    async with following(store, session if named else folder) as running:
        await running.until(lambda: len(running.told) == 1)
        grow(events, log.prompt("more").request().response(text("sure")))
        put(session / "transcript.jsonl", jsonl([*CHAT, *CHAT]))
        await running.until(lambda: len(running.told) == 2)
        result = await running.end()
    assert len([info async for info in store.streams()]) == result.total.sessions == 1
    assert result.total.failed == 0
    await same_as_import(store, events, result.sessions[0].session or "")


@pytest.mark.slow
async def test_an_open_import_is_closed_when_its_file_stands_still(folder: Path) -> None:
    store, path, log = MemoryStore(), folder / "a.jsonl", ClaudeCode().user("one").progress()
    async with following(store, folder, quiet=0.2) as running:
        grow(path, log)
        await running.has(1)
        # What is kept verbatim is written at the end of an import.
        assert (await records(store, SESSION))[-1].type != "import:raw"
        await running.until(lambda: running.follower._followed[path].task is None)
        assert (await records(store, SESSION))[-1].type == "import:raw"
        grow(path, log.user("two"))
        await running.has(2)
    await same_as_import(store, path)


async def test_a_store_that_fails_ends_it(folder: Path) -> None:
    for name in ("a", "b"):
        put(folder / f"{name}.jsonl", jsonl(CHAT))
    async with following(FullStore(), folder) as running:
        with pytest.raises(StoreFull):
            await running.until(lambda: False)


class WrittenByAnother(MemoryStore):
    """A store in which another process writes the first record of a stream just before us."""

    def __init__(self, stream: str) -> None:
        super().__init__()
        self.stream = stream

    def append(self, stream: str, drafts: Any, expected: Expected) -> Any:
        if stream == self.stream:
            self.stream = ""
            super().append(stream, drafts[:1], expected)
        return super().append(stream, drafts, expected)


async def test_a_subagents_session_that_another_process_writes_is_taken_up(folder: Path) -> None:
    child = f"{SESSION}.agent-a1"
    store = WrittenByAnother(child)
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("look")
    put(folder / "main" / "subagents" / "agent-a1.jsonl", agent.data())
    log = ClaudeCode().user("go").answer("m1", call("t1")).progress(agentId="a1")
    path = put(folder / "main.jsonl", log.data())
    async with following(store, folder) as running:
        await running.has(1, child)
        assert (await running.end()).passed_over == ()
    await same_as_import(store, path, child)


async def test_a_session_that_was_closed_to_its_file_is_imported_into_another_store(
    folder: Path, tmp_path: Path
) -> None:
    store, other = MemoryStore(), MemoryStore()
    for name in ("deleted", "taken-over"):
        path = put(folder / f"{name}.jsonl", ClaudeCode(name).user("one").data())
        await load(store, path, take_over=name == "taken-over")
    last = (await records(store, "deleted"))[-1]
    await store.delete("deleted", draft("session:deleted"), last.position)
    for known in (0, 2):
        async with following(store, folder, known=tmp_path / "s.db") as running:
            await running.until(lambda: len(running.follower.result.passed_over) == 2)
            await running.until(lambda: running.follower._followed[path].task is None)
            result = await running.end()
        assert running.follower.unchanged == known
        assert [one.error for one in result.passed_over] == [None, None]
    # Somebody removed the store, and its file of what is known stayed.
    async with following(other, folder, known=tmp_path / "s.db") as running:
        await running.until(lambda: len(running.told) == 2)
    assert {info.stream async for info in other.streams()} == {"deleted", "taken-over"}


def test_the_known_folders_are_those_of_the_programs(tmp_path: Path) -> None:
    found = {one.program: one.path for one in known_folders(tmp_path, {})}
    assert found["Claude Code"] == tmp_path / ".claude" / "projects"
    assert found["Amplifier"] == tmp_path / ".amplifier" / "projects"
    assert found["opencode"] == tmp_path / ".local" / "share" / "opencode"
    moved = {"CODEX_HOME": "/elsewhere", "CLAUDE_CONFIG_DIR": "/other", "XDG_DATA_HOME": "/data"}
    told = {one.program: str(one.path) for one in known_folders(tmp_path, moved)}
    assert (told["Codex"], told["Claude Code"]) == ("/elsewhere/sessions", "/other/projects")
    assert told["opencode"] == "/data/opencode"
    # Further ones are known where they exist.
    assert "Roo Code" not in found
    storage = tmp_path / ".config" / "Code" / "User" / "globalStorage"
    tasks = storage / "rooveterinaryinc.roo-cline" / "tasks"
    for path in (tasks, tmp_path / ".cline" / "data" / "tasks"):
        path.mkdir(parents=True)
    there = [(one.program, one.path) for one in known_folders(tmp_path, {})]
    assert ("Roo Code", tasks) in there
    assert [path.name for program, path in there if program == "Cline"] == ["sessions", "tasks"]
