"""``transcript_path`` of context-persistent, and from our module to context-persistent and back."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.amplifier import persistent
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.conversations import find_real_module
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import Mount, mounted, session

MODULE = "context-eventctx-persistent"
HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi."}
COPY = "context-messages.jsonl"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def files_in(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir()]


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "timestamp"} for row in rows]


def copying(tmp_path: Path, **config: Any) -> Any:
    """A mounted context that copies its transcript to a file."""
    given = {"store": str(tmp_path / "contexts.db"), **config}
    return mounted({"transcript_path": str(tmp_path / COPY), **given}, module=persistent)


# -- the copy ------------------------------------------------------------------------------------


async def test_a_new_session_begins_with_the_messages_of_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    old = {**HELLO, "timestamp": "2026-01-01T00:00:00.000+00:00"}
    memory = {"role": "system", "content": "[Context from AGENTS.md]\n\nUse tabs."}
    text = "\n".join([json.dumps(memory), json.dumps(old), "{half a li", "[]", '{"a": 1}', ""])
    (tmp_path / COPY).write_text(text + json.dumps({**HI, "score": float("nan")}) + "\n")
    async with copying(tmp_path, memory_files=[str(tmp_path / "AGENTS.md")]) as context:
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
    path = tmp_path / COPY
    async with copying(tmp_path) as context:
        await context.add_message(HELLO)
    async with copying(tmp_path) as context:
        assert await context.get_messages() == [HELLO]
        await context.add_message(HI)
    assert untimed(lines_of(path)) == [HELLO, HI]
    path.unlink()
    async with copying(tmp_path) as context:
        await context.get_messages()
    assert untimed(lines_of(path)) == [HELLO, HI]
    # A line that a killed process left half takes no message along.
    with path.open("a") as file:
        file.write('{"role": "us')
    async with copying(tmp_path) as context:
        await context.add_message(HI)
        await context.add_message(HELLO)
    first, second, half, *rest = path.read_text().splitlines()
    assert half == '{"role": "us'
    lines = [json.loads(line) for line in (first, second, *rest)]
    assert untimed(lines) == [HELLO, HI, HI, HELLO]


async def test_a_set_and_a_clear_write_the_file_anew(tmp_path: Path) -> None:
    path = tmp_path / COPY
    async with copying(tmp_path, store="memory://") as context:
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
    written = partial(copying, tmp_path, transcript_path=str(tmp_path / place))
    async with written() as context:
        await context.add_message(HELLO)
        await context.clear()
        await context.add_message(HI)
        assert await context.get_messages() == [HI]
    async with written() as context:
        assert await context.get_messages() == [HI]
    assert "the copy of the transcript cannot be written" in caplog.text
    assert sorted(files_in(tmp_path)) == ["contexts.db", "file", "folder"]


# -- times ---------------------------------------------------------------------------------------


def times(rows: list[dict[str, Any]]) -> list[datetime]:
    """The times as the host's command line reads them."""
    found = [(row.get("metadata") or {}).get("timestamp") for row in rows]
    return [datetime.fromisoformat(one.replace("Z", "+00:00")) for one in found]


async def test_rows_carry_the_time_of_their_record_and_requests_do_not(path: Path) -> None:
    before = datetime.now(UTC)
    provider = ScriptedAmplifierProvider("Hi.", "Again.")
    stamping: Any = {"context": MODULE, "config": {"stamp_messages": True}}
    async with session(provider, store=path, **stamping) as host:
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
    async with eventctx.open(path) as engine:
        stored = await (await engine.session("session-1")).get_messages()
    assert [row.get("metadata") for row in stored] == [None] * 4


@pytest.mark.parametrize("stamps", [True, False])
async def test_a_stamped_copy_that_the_host_sets_is_nothing_new(stamps: bool, path: Path) -> None:
    first = [HELLO, {**HI, "metadata": {}}, {**HELLO, "metadata": {"source": "hook"}}, HI]
    stamped = partial(mounted, module=persistent)
    async with stamped({"store": str(path), "stamp_messages": True}) as context:
        for row in first:
            await context.add_message(row)
        copy = await context.get_messages()
    async with stamped({"store": str(path), "stamp_messages": stamps}) as context:
        await context.set_messages(copy)
    async with eventctx.open(path) as engine:
        assert await (await engine.session("test-session")).get_messages() == first
    records = await records_of(path, "test-session")
    assert len(events(records, "context:set_ignored")) == 1
    assert events(records, "context:messages_set") == []


async def test_a_row_with_a_time_of_its_own_keeps_it() -> None:
    given = [
        {**HELLO, "metadata": {"timestamp": "2026-01-01T00:00:00Z", "a": 1}},
        {**HI, "timestamp": "2026-01-01T00:00:01Z"},
        {**HELLO, "metadata": "not a mapping"},
    ]
    async with mounted({"stamp_messages": True}, module=persistent) as context:
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
        return lines_of(self._path) if self._path.exists() else []

    def _append(self, row: dict[str, Any]) -> None:
        line = json.dumps({"timestamp": "2026-01-01T00:00:00.000+00:00", **row})
        with self._path.open("a") as file:
            file.write(f"{line}\n")

    async def add_message(self, message: dict[str, Any]) -> None:
        self._append(message)

    async def get_messages(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return self._rows()

    get_messages_for_request = get_messages

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        assert not self._rows(), "it ignores a transcript where its file has one"


async def mount_double(coordinator: Any, config: dict[str, Any]) -> None:
    path = file_of_session(coordinator.session_id)
    await coordinator.mount("context", LikePersistent(path, config.get("memory_files", [])))


def file_of_session(session_id: str) -> Path:
    here = Path.cwd()
    project = f"{here.name}-{sha256(str(here).encode()).hexdigest()[:8]}"
    folder = Path.home() / ".amplifier" / "projects" / project / "sessions" / session_id
    return folder / "context-messages.jsonl"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of a session, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "contexts.db"


DOUBLE: dict[str, Mount] = {"context-persistent": mount_double}


@pytest.fixture(params=["double", "real"])
def theirs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Mount]:
    """context-persistent, by the name that a mount plan has for it."""
    if request.param == "double":
        return DOUBLE
    for name in ("context-simple", "context-persistent"):
        find_real_module(name, monkeypatch)
    return {"context-persistent": import_module("amplifier_module_context_persistent").mount}


async def said(
    prompt: str, store: Path | None, theirs: dict[str, Mount] = DOUBLE, **config: Any
) -> list[Any]:
    """The contents that the model is sent with a prompt, in a session that is resumed for it.

    It is ours in a store, else one of context-persistent.
    """
    provider = ScriptedAmplifierProvider(f"Answer to {prompt}")
    module = "context-persistent" if store is None else MODULE
    named: Any = {"context": module, "config": config, "modules": theirs}
    async with session(provider, store=store or "memory://", **named) as host:
        await host.execute(prompt)
    contents = [message.content for message in provider.requests[-1].messages]
    return [one if isinstance(one, str) else "".join([b.text for b in one]) for one in contents]


def answered(*prompts: str) -> list[str]:
    """The texts of turns, without the answer to the last one."""
    return [text for one in prompts for text in (one, f"Answer to {one}")][:-1]


async def test_a_session_goes_to_context_persistent_and_back_with_every_turn(
    here: Path, theirs: dict[str, Mount]
) -> None:
    (here.parent / "AGENTS.md").write_text("Use tabs.")
    memory: Any = {"theirs": theirs, "memory_files": ["AGENTS.md"]}
    turns = []
    for prompt, store in (("one", here), ("two", None), ("three", here), ("four", None)):
        turns.append(prompt)
        rules = "[Context from AGENTS.md]\n\nUse tabs."
        assert await said(prompt, store, **memory) == [rules, *answered(*turns)]
    (file,) = (Path.home() / ".amplifier").rglob("*.jsonl")
    assert file == file_of_session("session-1")
    assert events(await records_of(here), "context:messages_set") == []


async def test_a_transcript_that_was_cleared_there_is_what_goes_on_and_the_log_keeps_the_rest(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await said("one", here)
    file_of_session("session-1").write_text("")
    await said("two", None)
    assert await said("three", here) == answered("two", "three")
    assert "found another one in" in caplog.text
    async with eventctx.open(here) as engine:
        first = (await engine.audit("session-1")).requests[0]
        view = await engine.request_view("session-1", position=first.position)
    assert [row["content"] for row in view.messages] == ["one"]


async def test_what_was_erased_does_not_come_back_from_the_file(here: Path) -> None:
    await said("secret", here)
    async with eventctx.open(here) as engine:
        await engine.erase("session-1", [0])
    await said("two", None)
    sent = await said("three", here)
    assert sent == ["[erased]", "Answer to secret", *answered("two", "three")]
    assert lines_of(file_of_session("session-1"))[0]["content"] == "[erased]"


async def test_a_message_that_could_not_be_written_leaves_no_gap_in_the_file(
    here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = ScriptedAmplifierProvider("Answer to one", "Answer to two")
    with caplog.at_level(logging.WARNING):
        async with session(provider, context=MODULE, store=here) as host:
            folder = file_of_session("session-1").parent
            folder.parent.mkdir(parents=True)
            folder.write_text("in the way")
            await host.execute("one")
            folder.unlink()
            await host.execute("two")
    assert await said("three", None) == answered("one", "two", "three")
    assert caplog.text.count("cannot be written") == 1
