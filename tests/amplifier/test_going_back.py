"""From ``context-eventctx-persistent`` to context-persistent and back, with no turn lost.

The real module is tried where ``find_real_module`` finds it and context-simple, and always a double
that reads and writes its file as it does.
"""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.conversations import find_real_module
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import Mount, session

MODULE = "context-eventctx-persistent"


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
