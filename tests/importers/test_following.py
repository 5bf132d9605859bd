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
from eventctx.importers.many import FilePassedOver, ImportedPaths, Told
from eventctx.log.store import EventStore, Expected
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, openhands_talk
from tests.importers.given import (
    SESSION,
    ClaudeCode,
    FullStore,
    call,
    draft,
    jsonl,
    load,
    messages,
    records,
    story,
    text,
)

CHAT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
PATIENCE = 60.0
"""Seconds that a test waits for what takes a fraction of one, on a busy machine."""


class Running:
    """A follower at work, and what it tells."""

    def __init__(self, store: EventStore, *paths: Path, known: Path | None, **options: Any) -> None:
        self.told: list[ImportSummary | FilePassedOver] = []
        self.news = asyncio.Event()
        self.stop = asyncio.Event()
        tell: Told = self._tell
        self.follower = Follower(store, paths, known=KnownFiles(known), told=tell, **options)
        self.task = asyncio.create_task(self.follower.run(self.stop))

    def _tell(self, result: ImportSummary | FilePassedOver) -> None:
        self.told.append(result)
        self.news.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():
                self.news.clear()
                told = asyncio.ensure_future(self.news.wait())
                await asyncio.wait({told, self.task}, return_when=asyncio.FIRST_COMPLETED)
                told.cancel()
                if self.task.done():
                    self.task.result()

    async def see(self, true: Callable[[], bool]) -> None:
        """Wait until something is so that is not told."""
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(0.02)

    @property
    def all(self) -> list[Any]:
        return list(self.follower._followed.values())

    def messages(self, session: str) -> int:
        found = [one for one in self.told if isinstance(one, ImportSummary)]
        return next((one.messages for one in reversed(found) if one.session == session), 0)

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


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_a_session_appears_and_grows(folder: Path) -> None:
    store = MemoryStore()
    log = ClaudeCode().user("one")
    path = folder / "session.jsonl"
    async with following(store, folder.parent) as running:
        path.write_bytes(log.data())
        await running.until(lambda: running.messages(SESSION) == 1)
        before = len(log.data())
        add(path, log.answer("m", text("yes"), stop_reason="end_turn").data()[before:])
        await running.until(lambda: running.messages(SESSION) == 2)
        assert len(await messages(store, SESSION)) == 2
        result = await running.end()
    assert (result.total.sessions, result.total.messages) == (1, 2)
    assert result.total.added == len(await records(store, SESSION))
    await same_as_import(store, path)


async def test_subagents_and_new_folders_appear_linked(folder: Path) -> None:
    store = MemoryStore()
    log = ClaudeCode().user("go").answer("m1", call("t1"))
    path = folder / "main.jsonl"
    child = f"{SESSION}.agent-a1"
    async with following(store, folder.parent) as running:
        path.write_bytes(log.progress(agentId="a1").data())
        await running.until(lambda: running.messages(SESSION) == 1)
        agents = folder / "main" / "subagents"
        agents.mkdir(parents=True)
        agent = ClaudeCode(agentId="a1", isSidechain=True).user("look")
        (agents / "agent-a1.jsonl").write_bytes(agent.data())
        await running.until(lambda: running.messages(child) == 1)
        before = len(agent.data())
        add(agents / "agent-a1.jsonl", agent.user("and there").data()[before:])
        await running.until(lambda: running.messages(child) == 2)
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "other.jsonl").write_bytes(jsonl(CHAT))
        await running.until(lambda: running.messages("other") == 2)
    links = [r for r in await records(store, SESSION) if r.type == "session:linked"]
    assert len(links) == 1
    await same_as_import(store, path)


async def test_what_did_not_change_is_not_read_again(folder: Path, tmp_path: Path) -> None:
    store = MemoryStore()
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))
    (folder / "b.jsonl").write_bytes(jsonl(CHAT))
    (folder / "settings.json").write_text('{"theme": "dark"}')
    (folder / "broken.json").write_bytes(b"[" * 100_000)
    known = tmp_path / "store.db"
    async with following(store, folder, known=known) as running:
        await running.until(lambda: running.messages("a") == running.messages("b") == 2)
        await running.see(lambda: len(running.follower.result.passed_over) == 2)
    add(folder / "b.jsonl", jsonl(CHAT))
    (folder / "c.jsonl").write_bytes(jsonl(CHAT))
    async with following(store, folder, known=known, patience=0.0) as running:
        await running.until(lambda: running.messages("b") == 4 and running.messages("c") == 2)
        result = await running.end()
    assert running.follower.unchanged == 3
    assert [one.session for one in running.told if isinstance(one, ImportSummary)] != ["a"]
    # What was passed over is said again, and that it is without reading it.
    assert {one.path.name for one in result.passed_over} == {"settings.json", "broken.json"}
    assert [one.path.name for one in running.told if isinstance(one, FilePassedOver)] == [
        "broken.json"
    ]
    # Another store at the same place knows nothing.
    async with following(MemoryStore(), folder, known=known) as running:
        await running.until(lambda: running.messages("a") == 2)


async def test_without_what_is_known_of_files_all_are_read_and_nothing_is_doubled(
    folder: Path, tmp_path: Path
) -> None:
    store = MemoryStore()
    path = folder / "a.jsonl"
    path.write_bytes(jsonl(CHAT))
    known = tmp_path / "store.db"
    beside = known.with_name(known.name + SUFFIX)
    for torn in (None, b"", b'{"eventctx_imported":1,"lib', b'{"eventctx_imported":9}'):
        if torn is not None:
            beside.write_bytes(torn)
        async with following(store, folder, known=known) as running:
            await running.see(lambda: bool(running.follower.result.sessions))
        assert json.loads(beside.read_bytes())["imported"].keys() == {str(path)}
        assert beside.stat().st_mode & 0o777 == 0o600
    await same_as_import(store, path, "a")


async def test_somebody_elses_file_of_that_name_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))
    beside = tmp_path / f"store.db{SUFFIX}"
    beside.write_bytes(b'["mine"]')
    async with following(MemoryStore(), folder, known=tmp_path / "store.db") as running:
        await running.until(lambda: running.messages("a") == 2)
    assert beside.read_bytes() == b'["mine"]'


async def test_a_file_that_cannot_be_read_is_said_once_and_the_rest_followed(
    folder: Path,
) -> None:
    bad = folder / "bad.jsonl"
    bad.write_bytes(b"[" * 100_000)
    store = MemoryStore()
    async with following(store, folder, patience=0.1) as running:
        await running.until(lambda: len(running.told) == 1)
        (folder / "good.jsonl").write_bytes(jsonl(CHAT))
        await running.until(lambda: running.messages("good") == 2)
        result = await running.end()
    assert [one.path for one in running.told if isinstance(one, FilePassedOver)] == [bad]
    assert result.total.failed == 1


async def test_a_file_whose_first_line_is_half_written_is_not_said_to_be_broken(
    folder: Path,
) -> None:
    data, path = ClaudeCode().user("one").data(), folder / "a.jsonl"
    async with following(MemoryStore(), folder) as running:
        path.write_bytes(b"")
        path.write_bytes(data[:30])
        await running.see(lambda: bool(running.follower.result.passed_over))
        add(path, data[30:])
        await running.until(lambda: running.messages(SESSION) == 1)
        result = await running.end()
    assert result.passed_over == ()
    assert all(isinstance(one, ImportSummary) for one in running.told)


async def test_a_file_that_is_cut_is_passed_over_until_it_is_whole_again(folder: Path) -> None:
    path = folder / "a.jsonl"
    log = ClaudeCode().user("one").user("two")
    data = log.data()
    path.write_bytes(data)
    store = MemoryStore()
    async with following(store, folder, patience=0.0) as running:
        await running.until(lambda: running.messages(SESSION) == 2)
        path.write_bytes(data[: data.index(b"\n") + 1])
        await running.until(lambda: len(running.told) == 2)
        cut = running.told[1]
        assert isinstance(cut, FilePassedOver)
        assert cut.error == "SourceChanged"
        path.write_bytes(log.user("three").data())
        await running.until(lambda: running.messages(SESSION) == 3)
        result = await running.end()
    assert result.passed_over == ()


async def test_a_document_and_a_folder_of_events_are_read_anew(folder: Path) -> None:
    store = MemoryStore()
    path = folder / "chat.json"
    log = openhands_talk()
    async with following(store, folder) as running:
        path.write_text(json.dumps(CHAT))
        await running.until(lambda: running.messages("chat") == 2)
        path.write_text(json.dumps([*CHAT, *CHAT]))
        await running.until(lambda: running.messages("chat") == 4)
        log.folder(folder / "run" / "events")
        await running.until(lambda: running.messages("run") == 5)
        log.user("more").says("sure").folder(folder / "run" / "events")
        await running.until(lambda: running.messages("run") == 7)
    await same_as_import(store, path, "chat")


@pytest.mark.parametrize("named", [True, False])
async def test_amplifiers_files_of_a_session_are_followed_as_one(
    folder: Path, *, named: bool
) -> None:
    store = MemoryStore()
    session = folder / "amp-1"
    session.mkdir()
    log = AmplifierLog().prompt("go").request().response(text("done"))
    events = session / "events.jsonl"
    events.write_bytes(log.data())
    (session / "metadata.json").write_text("{}")
    (session / "transcript.jsonl").write_bytes(jsonl(CHAT))
    async with following(store, session if named else folder) as running:
        await running.until(lambda: len(running.told) == 1)
        before = len(log.data())
        add(events, log.prompt("more").request().response(text("sure")).data()[before:])
        (session / "transcript.jsonl").write_bytes(jsonl([*CHAT, *CHAT]))
        await running.until(lambda: len(running.told) == 2)
        result = await running.end()
    assert len([info async for info in store.streams()]) == result.total.sessions == 1
    assert result.total.failed == 0
    await same_as_import(store, events, result.sessions[0].session or "")


async def test_an_open_import_is_closed_when_its_file_stands_still(folder: Path) -> None:
    store = MemoryStore()
    path = folder / "a.jsonl"
    log = ClaudeCode().user("one").progress()
    async with following(store, folder, quiet=0.2) as running:
        path.write_bytes(log.data())
        await running.until(lambda: running.messages(SESSION) == 1)
        # What is kept verbatim is written at the end of an import.
        assert [r.type for r in await records(store, SESSION)][-1] != "import:raw"
        await running.see(lambda: running.follower._followed[path].task is None)
        assert [r.type for r in await records(store, SESSION)][-1] == "import:raw"
        before = len(log.data())
        add(path, log.user("two").data()[before:])
        await running.until(lambda: running.messages(SESSION) == 2)
    await same_as_import(store, path)


async def test_a_store_that_fails_ends_it(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))
    (folder / "b.jsonl").write_bytes(jsonl(CHAT))
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
    agents = folder / "main" / "subagents"
    agents.mkdir(parents=True)
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("look")
    (agents / "agent-a1.jsonl").write_bytes(agent.data())
    path = folder / "main.jsonl"
    path.write_bytes(ClaudeCode().user("go").answer("m1", call("t1")).progress(agentId="a1").data())
    async with following(store, folder) as running:
        await running.until(lambda: running.messages(child) == 1)
        result = await running.end()
    assert result.passed_over == ()
    await same_as_import(store, path, child)


async def test_a_session_that_was_closed_to_its_file_is_imported_into_another_store(
    folder: Path, tmp_path: Path
) -> None:
    store, other = MemoryStore(), MemoryStore()
    for name in ("deleted", "taken-over"):
        path = folder / f"{name}.jsonl"
        path.write_bytes(ClaudeCode(name).user("one").data())
        await load(store, path, take_over=name == "taken-over")
    last = (await records(store, "deleted"))[-1]
    await store.delete("deleted", draft("session:deleted"), last.position)
    for known in (0, 2):
        async with following(store, folder, known=tmp_path / "s.db") as running:
            await running.see(lambda: len(running.follower.result.passed_over) == 2)
            await running.see(lambda: all(one.task is None for one in running.all))
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
    found = {one.program: one.path for one in known_folders(tmp_path, moved)}
    assert found["Codex"] == Path("/elsewhere/sessions")
    assert found["Claude Code"] == Path("/other/projects")
    assert found["opencode"] == Path("/data/opencode")


def test_further_folders_of_a_program_are_known_where_they_exist(tmp_path: Path) -> None:
    storage = tmp_path / ".config" / "Code" / "User" / "globalStorage"
    tasks = storage / "rooveterinaryinc.roo-cline" / "tasks"
    assert "Roo Code" not in {one.program for one in known_folders(tmp_path, {})}
    tasks.mkdir(parents=True)
    (tmp_path / ".cline" / "data" / "tasks").mkdir(parents=True)
    found = known_folders(tmp_path, {})
    assert ("Roo Code", tasks) in {(one.program, one.path) for one in found}
    assert [one.path.name for one in found if one.program == "Cline"] == ["sessions", "tasks"]
