"""``transcript_path`` of context-persistent, and from our module to context-persistent and back."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

import eventctx
from eventctx.adapters.amplifier import persistent
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.conversations import find_real_module
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import Mount, session

MODULE = "context-eventctx-persistent"
HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi."}


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def files_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "timestamp"} for row in rows]


class Mounted:
    """A context on a coordinator without a kernel, until its cleanup."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    async def __aenter__(self) -> Any:
        coordinator = MockCoordinator()
        self._cleanup = await persistent.mount(coordinator, self._config)
        return coordinator.get("context")

    async def __aexit__(self, *error: object) -> None:
        await self._cleanup()


# -- the copy ------------------------------------------------------------------------------------


async def test_a_new_session_begins_with_the_messages_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "context-messages.jsonl"
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    old = {**HELLO, "timestamp": "2026-01-01T00:00:00.000+00:00"}
    memory = {"role": "system", "content": "[Context from AGENTS.md]\n\nUse tabs."}
    text = "\n".join([json.dumps(memory), json.dumps(old), "{half a li", "[]", '{"a": 1}', ""])
    path.write_text(text + json.dumps({**HI, "score": float("nan")}) + "\n")
    config = {
        "store": str(tmp_path / "contexts.db"),
        "transcript_path": str(path),
        "memory_files": [str(tmp_path / "AGENTS.md")],
    }
    async with Mounted(config) as context:
        assert await context.get_messages() == [old, {**HI, "score": "nan"}]
        # The host's own copy lacks the times, and is nothing new.
        await context.set_messages([HELLO])
        await context.set_messages([HELLO, {**HI, "score": "nan"}])
        rows = await context.get_messages_for_request()
        assert [row["content"] for row in rows] == [memory["content"], "Hello", "Hi."]
    for line in (3, 4, 5):
        assert f"line {line} is no message and is skipped" in caplog.text
    records = await records_of(tmp_path / "contexts.db", "test-session")
    assert len(events(records, "context:messages_set")) == 1
    assert [one.ahead for one in events(records, "context:set_ignored")] == [1, 0]


async def test_a_resumed_session_is_that_of_the_log_and_goes_on_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "context-messages.jsonl"
    config = {"store": str(tmp_path / "contexts.db"), "transcript_path": str(path)}
    async with Mounted(config) as context:
        await context.add_message(HELLO)
    async with Mounted(config) as context:
        assert await context.get_messages() == [HELLO]
        await context.add_message(HI)
    assert untimed(lines_of(path)) == [HELLO, HI]
    path.unlink()
    async with Mounted(config) as context:
        await context.get_messages()
    assert untimed(lines_of(path)) == [HELLO, HI]


async def test_a_line_that_a_killed_process_left_half_takes_no_message_along(
    tmp_path: Path,
) -> None:
    path = tmp_path / "context-messages.jsonl"
    config = {"store": str(tmp_path / "contexts.db"), "transcript_path": str(path)}
    async with Mounted(config) as context:
        await context.add_message(HELLO)
    with path.open("a") as file:
        file.write('{"role": "us')
    async with Mounted(config) as context:
        await context.add_message(HI)
        await context.add_message(HELLO)
    first, half, *rest = path.read_text().splitlines()
    assert half == '{"role": "us'
    assert untimed([json.loads(line) for line in (first, *rest)]) == [HELLO, HI, HELLO]


async def test_a_set_and_a_clear_write_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / "context-messages.jsonl"
    config = {"store": "memory://", "transcript_path": str(path)}
    async with Mounted(config) as context:
        await context.add_message(HELLO)
        await context.set_messages([HI])
        assert lines_of(path) == [HI]
        await context.clear()
        assert path.read_text() == ""
        await context.add_message(HELLO)
        assert untimed(lines_of(path)) == [HELLO]
    assert files_in(tmp_path) == [path.name]


@pytest.mark.parametrize("place", ["folder", "file/below", "x" * 300])
async def test_a_file_that_cannot_be_written_stops_nothing(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    config = {"store": str(tmp_path / "contexts.db"), "transcript_path": str(tmp_path / place)}
    async with Mounted(config) as context:
        await context.add_message(HELLO)
        await context.clear()
        await context.add_message(HI)
        assert await context.get_messages() == [HI]
    async with Mounted(config) as context:
        assert await context.get_messages() == [HI]
    assert "the copy of the transcript cannot be written" in caplog.text
    assert sorted(files_in(tmp_path)) == ["contexts.db", "file", "folder"]


# -- times ---------------------------------------------------------------------------------------


def times(rows: list[dict[str, Any]]) -> list[datetime]:
    """The times as the host's command line reads them."""
    found = [(row.get("metadata") or {}).get("timestamp") for row in rows]
    return [datetime.fromisoformat(one.replace("Z", "+00:00")) for one in found]


async def test_rows_carry_the_time_of_their_record_and_requests_do_not(tmp_path: Path) -> None:
    config = {"store": str(tmp_path / "contexts.db"), "stamp_messages": True}
    before = datetime.now(UTC)
    provider = ScriptedAmplifierProvider("Hi.", "Again.")
    async with session(provider, context=MODULE, config=config) as host:
        await host.execute("Hello")
        await host.execute("More")
        context = host.coordinator.get("context")
        rows = await context.get_messages()
        request = await context.get_messages_for_request()
    found = times(rows)
    assert found == sorted(found)
    assert len(set(found)) > 1
    assert abs((found[0] - before).total_seconds()) < 60
    assert rows[0]["metadata"]["timestamp"].endswith("+00:00")
    assert [one.metadata for one in provider.requests[1].messages] == [None] * 3
    assert [row.get("metadata") for row in request] == [None] * 4
    async with eventctx.open(config["store"]) as engine:
        stored = await (await engine.session("session-1")).get_messages()
    assert [row.get("metadata") for row in stored] == [None] * 4


@pytest.mark.parametrize("stamps", [True, False])
async def test_a_stamped_copy_that_the_host_sets_is_nothing_new(
    stamps: bool, tmp_path: Path
) -> None:
    store = str(tmp_path / "contexts.db")
    first = [HELLO, {**HI, "metadata": {}}, {**HELLO, "metadata": {"source": "hook"}}, HI]
    async with Mounted({"store": store, "stamp_messages": True}) as context:
        for row in first:
            await context.add_message(row)
        copy = await context.get_messages()
    async with Mounted({"store": store, "stamp_messages": stamps}) as context:
        await context.set_messages(copy)
    async with eventctx.open(store) as engine:
        ctx = await engine.session("test-session")
        assert await ctx.get_messages() == first
    records = await records_of(Path(store), "test-session")
    assert len(events(records, "context:set_ignored")) == 1
    assert events(records, "context:messages_set") == []


async def test_a_row_with_a_time_of_its_own_keeps_it() -> None:
    given = [
        {**HELLO, "metadata": {"timestamp": "2026-01-01T00:00:00Z", "a": 1}},
        {**HI, "timestamp": "2026-01-01T00:00:01Z"},
        {**HELLO, "metadata": "not a mapping"},
    ]
    async with Mounted({"store": "memory://", "stamp_messages": True}) as context:
        for row in given:
            await context.add_message(row)
        assert await context.get_messages() == given
        await context.add_message({**HI, "metadata": {"a": 1}})
        last = (await context.get_messages())[-1]
        assert last["metadata"]["a"] == 1
        assert times([last])


# -- to context-persistent and back, with no turn lost --------------------------------------------


class LikePersistent:
    """context-persistent: its file is the session, and each message a line of it."""

    def __init__(self, path: Path, memory: list[str]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self._rows():
            for one in memory:
                text = f"[Context from {Path(one).name}]\n\n{Path(one).read_text()}"
                self._append({"role": "system", "content": text})

    def _rows(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def _append(self, row: dict[str, Any]) -> None:
        line = json.dumps({"timestamp": "2026-01-01T00:00:00.000+00:00", **row})
        with self._path.open("a") as file:
            file.write(f"{line}\n")

    async def add_message(self, message: dict[str, Any]) -> None:
        self._append(message)

    async def get_messages_for_request(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return self._rows()

    async def get_messages(self) -> list[dict[str, Any]]:
        return self._rows()

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        assert not self._rows(), "it ignores a transcript where its file has one"

    async def clear(self) -> None:
        self._path.write_text("")


async def mount_double(coordinator: Any, config: dict[str, Any]) -> None:
    path = file_of_session(coordinator.session_id)
    await coordinator.mount("context", LikePersistent(path, config.get("memory_files", [])))


def file_of_session(session_id: str) -> Path:
    here = Path.cwd()
    project = f"{here.name}-{sha256(str(here).encode()).hexdigest()[:8]}"
    folder = Path.home() / ".amplifier" / "projects" / project / "sessions" / session_id
    return folder / "context-messages.jsonl"


@pytest.fixture(params=["double", "real"])
def theirs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Mount]:
    """context-persistent, by the name that a mount plan has for it."""
    if request.param == "double":
        return {"context-persistent": mount_double}
    for name in ("context-simple", "context-persistent"):
        find_real_module(name, monkeypatch)
    return {"context-persistent": import_module("amplifier_module_context_persistent").mount}


async def said(
    prompt: str, module: str, config: dict[str, Any], theirs: dict[str, Mount]
) -> list[Any]:
    """The contents that the model is sent with a prompt, in a session that is resumed for it."""
    provider = ScriptedAmplifierProvider(f"Answer to {prompt}")
    async with session(provider, context=module, config=config, modules=theirs) as host:
        await host.execute(prompt)
    return [_text(message.content) for message in provider.requests[-1].messages]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join([one.text for one in content])


def answered(*prompts: str) -> list[str]:
    """The texts of turns, without the answer to the last one."""
    return [text for one in prompts for text in (one, f"Answer to {one}")][:-1]


async def test_a_session_goes_to_context_persistent_and_back_with_every_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Mount]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    memory = {"memory_files": ["AGENTS.md"]}
    ours = {**memory, "store": str(tmp_path / "contexts.db")}
    rules = "[Context from AGENTS.md]\n\nUse tabs."
    assert await said("one", MODULE, ours, theirs) == [rules, *answered("one")]
    assert await said("two", "context-persistent", memory, theirs) == [
        rules,
        *answered("one", "two"),
    ]
    assert await said("three", MODULE, ours, theirs) == [rules, *answered("one", "two", "three")]
    last = await said("four", "context-persistent", memory, theirs)
    assert last == [rules, *answered("one", "two", "three", "four")]
    (file,) = (Path.home() / ".amplifier").rglob("*.jsonl")
    assert file == file_of_session("session-1")
    records = await records_of(tmp_path / "contexts.db")
    assert events(records, "context:messages_set") == []


async def test_a_transcript_that_was_cleared_there_is_what_goes_on_and_the_log_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs: dict[str, Mount] = {"context-persistent": mount_double}
    ours = {"store": str(tmp_path / "contexts.db")}
    await said("one", MODULE, ours, theirs)
    file_of_session("session-1").write_text("")
    await said("two", "context-persistent", {}, theirs)
    assert await said("three", MODULE, ours, theirs) == answered("two", "three")
    assert "found another one in" in caplog.text
    async with eventctx.open(ours["store"]) as engine:
        first = (await engine.audit("session-1")).requests[0]
        view = await engine.request_view("session-1", position=first.position)
    assert [row["content"] for row in view.messages] == ["one"]


async def test_what_was_erased_does_not_come_back_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    theirs: dict[str, Mount] = {"context-persistent": mount_double}
    ours = {"store": str(tmp_path / "contexts.db")}
    await said("secret", MODULE, ours, theirs)
    async with eventctx.open(ours["store"]) as engine:
        await engine.erase("session-1", [0])
    await said("two", "context-persistent", {}, theirs)
    sent = await said("three", MODULE, ours, theirs)
    assert sent == ["[erased]", "Answer to secret", *answered("two", "three")]
    rows = [json.loads(line) for line in file_of_session("session-1").read_text().splitlines()]
    assert [row["content"] for row in rows][:1] == ["[erased]"]


async def test_a_message_that_could_not_be_written_leaves_no_gap_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"store": str(tmp_path / "contexts.db")}
    provider = ScriptedAmplifierProvider("Answer to one", "Answer to two")
    with caplog.at_level(logging.WARNING):
        async with session(provider, context=MODULE, config=config) as host:
            folder = file_of_session("session-1").parent
            folder.parent.mkdir(parents=True)
            folder.write_text("in the way")
            await host.execute("one")
            folder.unlink()
            await host.execute("two")
    assert await said("three", "context-persistent", {}, {"context-persistent": mount_double}) == (
        answered("one", "two", "three")
    )
    assert caplog.text.count("cannot be written") == 1
