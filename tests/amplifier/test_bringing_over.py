"""Sessions that other context modules left: imported, taken over, and gone on with in place."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.given import events, records_of, types
from tests.amplifier.hosts import session
from tests.importers.given import jsonl

pytestmark = pytest.mark.slow

SESSION = "0f3a2c1e-0000-4000-8000-000000000001"
STAMP = "2026-01-01T10:00:00.000+00:00"
MEMORY = {"role": "system", "content": "[Context from MEM.md]\n\nUse tabs.", "timestamp": STAMP}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


async def rows_of_a_turn() -> list[dict[str, Any]]:
    """The messages of a session as Amplifier's loops add them, without system messages."""
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})], thinking="hm"), "Done.")
    tool = ScriptedTool("read", "text", amplifier=True)
    async with session(provider, tool) as host:
        await host.execute("Read.")
        rows = await host.coordinator.get("context").get_messages()
    return [{**row, "timestamp": STAMP} for row in rows]


def bare(value: Any) -> Any:
    """A row as Amplifier's command line saves it: without nulls and the thinking block."""
    if isinstance(value, dict):
        return {
            key: bare(inner)
            for key, inner in value.items()
            if inner is not None and key != "thinking_block"
        }
    return [bare(one) for one in value] if isinstance(value, list) else value


def left(home: Path, project: str, file: str, rows: list[dict[str, Any]]) -> Path:
    """A session's folder with what a program left in it."""
    folder = home / ".amplifier" / "projects" / project / "sessions" / SESSION
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(jsonl(rows))
    return folder


async def imported(*arguments: str) -> str:
    # The command runs a loop of its own.
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["import", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


async def goes_on(path: Path, kept: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The transcript and the request of a resumed session, whose host sets what it kept."""
    provider = ScriptedAmplifierProvider("Going on.")
    tool = ScriptedTool("read", "text", amplifier=True)
    async with session(provider, tool, config={"store": str(path)}, session_id=SESSION) as host:
        context = host.coordinator.get("context")
        await context.set_messages(kept)
        await host.execute("Still there?")
        return await context.get_messages(), provider.messages[0]


async def test_a_session_of_context_persistent_goes_on_with_all_its_messages(home: Path) -> None:
    rows = await rows_of_a_turn()
    kept = [bare(row) for row in rows]
    left(home, "-home-me-proj", "transcript.jsonl", kept)
    folder = left(home, "proj-30de1e70", "context-messages.jsonl", [MEMORY, *rows])
    path = home / "contexts.db"
    assert "taken over" in await imported("--take-over", str(folder), "--store", str(path))
    transcript, sent = await goes_on(path, kept)
    assert transcript[:-2] == [MEMORY, *rows]
    assert sent[0]["content"] == MEMORY["content"]
    records = await records_of(path, SESSION)
    (ignored,) = events(records, "context:set_ignored")
    assert (ignored.messages, ignored.missing_roles) == (len(rows), ("system",))
    assert "context:messages_set" not in types(records)


@pytest.mark.parametrize("text", ["Use tabs.", "Use spaces.", None])
async def test_a_memory_file_is_in_no_request_twice(home: Path, text: str | None) -> None:
    rows = await rows_of_a_turn()
    folder = left(home, "proj-30de1e70", "context-messages.jsonl", [MEMORY, *rows])
    path = home / "contexts.db"
    await imported("--take-over", str(folder), "--store", str(path))
    async with eventctx.open(path) as engine:
        await engine.erase(SESSION, [1])
        kept = await (await engine.session(SESSION)).get_messages()
    if text is not None:
        (home / "MEM.md").write_text(text)
    files = {"store": str(path), "memory_files": [str(home / "MEM.md")]}
    for _ in range(2):
        provider = ScriptedAmplifierProvider("Going on.")
        async with session(provider, config=files, session_id=SESSION) as host:
            await host.execute("Still there?")
            transcript = await host.coordinator.get("context").get_messages()
        (sent,) = provider.messages
        leading = [row["content"] for row in sent if row["role"] == "system"]
        assert leading == [f"[Context from MEM.md]\n\n{text or 'Use tabs.'}"]
    assert transcript[: len(kept) - 1] == kept[1:]
    assert [record.type for record in await records_of(path, SESSION)].count(
        "context:messages_set"
    ) == 1


async def test_a_session_of_context_simple_goes_on_from_the_hosts_transcript(home: Path) -> None:
    kept = [bare(row) for row in await rows_of_a_turn()]
    folder = left(home, "-home-me-proj", "transcript.jsonl", kept)
    (folder / "metadata.json").write_text("{}")
    path = home / "contexts.db"
    await imported("--take-over", str(folder), "--store", str(path))
    transcript, _ = await goes_on(path, kept)
    assert transcript[:-2] == kept
    assert "context:messages_set" not in types(await records_of(path, SESSION))


async def test_a_session_that_is_not_imported_begins_with_what_the_host_kept(home: Path) -> None:
    kept = [bare(row) for row in await rows_of_a_turn()]
    path = home / "contexts.db"
    transcript, _ = await goes_on(path, kept)
    assert transcript[:-2] == kept


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events"])
async def test_a_turn_on_a_mirror_ends_with_the_command_that_makes_it_ours(
    loop: str, home: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder = left(home, "p", "transcript.jsonl", [bare(row) for row in await rows_of_a_turn()])
    (folder / "metadata.json").write_text("{}")
    path = home / "contexts.db"
    await imported(str(folder), "--store", str(path))
    provider = ScriptedAmplifierProvider("unreached")
    config = {"store": str(path)}
    async with session(provider, loop=loop, config=config, session_id=SESSION) as host:
        with pytest.raises(RuntimeError, match=f"--take-over {folder} --store {path}"):
            await host.execute("Still there?")
    assert provider.messages == []
    assert "session:end" not in caplog.text + "".join(capfd.readouterr())


async def test_the_error_for_a_mirror_is_the_command_that_makes_it_ours(home: Path) -> None:
    rows = await rows_of_a_turn()
    kept = [bare(row) for row in rows]
    folder = left(home, "-home-me proj", "transcript.jsonl", kept)
    (folder / "metadata.json").write_text("{}")
    left(home, "proj-30de1e70", "context-messages.jsonl", [MEMORY, *rows])
    path = home / "contexts.db"
    await imported(str(folder), "--store", str(path))
    with pytest.raises(eventctx.ImportedSession) as raised:
        await goes_on(path, kept)
    command = str(raised.value).partition("for good with `")[2].partition("`")[0]
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("eventctx", "import")
    assert str(folder) in arguments
    await imported(*arguments)
    transcript, _ = await goes_on(path, kept)
    assert transcript[:-2] == kept
