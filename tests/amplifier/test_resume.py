"""Sessions that go on: after a restart, a crash, a rewind, and from what other modules left."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.projections.view.entries import ANSWER_KEPT, CALL_NOT_ENDED
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.given import audited, bare, events, records_of, types
from tests.amplifier.hosts import LOOPS, session, tool
from tests.importers.given import jsonl

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

BESIDE_A_TOOL = ROOT / "tests" / "programs" / "host_with_two_tools.py"


def die(path: Path, loop: str = "basic") -> None:
    program = [sys.executable, str(BESIDE_A_TOOL), str(path), loop]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(program, env=env, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr


def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a host's storage keeps a transcript: no system rows, no nulls, a time for each."""

    return [
        {**bare(row), "timestamp": "2026-01-01T00:00:00.000+00:00"}
        for row in rows
        if row["role"] not in ("system", "developer")
    ]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_session_goes_on_after_kill_nine_and_shows_what_a_tool_had_answered(
    path: Path, loop: str
) -> None:
    die(path, loop)
    provider = ScriptedAmplifierProvider("Alive.")
    async with session(provider, loop=loop, store=path) as host:
        assert await host.execute("Still there?") == "Alive."
    rows = provider.messages[0]
    turn = ["user", "assistant"]
    assert [row["role"] for row in rows] == ["system", *turn, *turn, "tool", "tool", "user"]
    made = [row["content"] for row in rows if row["role"] == "tool"]
    assert made == [f"{ANSWER_KEPT}the text of read", CALL_NOT_ENDED]
    records = await records_of(path)
    (lost,) = events(records, "tool:error")
    assert (lost.name, lost.status) == ("die", "lost")
    assert [one.status for one in events(records, "prompt:complete")] == ["ok", "lost", "ok"]
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2, 3]


async def test_a_transcript_that_the_host_kept_is_ignored_and_loses_nothing(path: Path) -> None:
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})], thinking="hm"), "Done.")
    system = {"role": "system", "content": "Be brief."}
    async with session(provider, tool("read"), store=path) as host:
        context = host.coordinator.get("context")
        await context.add_message(system)
        await host.execute("Read.")
        stored = await context.get_messages()
    again = ScriptedAmplifierProvider("Yes.")
    async with session(again, tool("read"), store=path) as host:
        context = host.coordinator.get("context")
        await context.set_messages(kept(stored))
        await context.set_messages([system, *kept(stored)])
        assert await context.get_messages() == stored
        await host.execute("Still there?")
    assert again.messages[0][0] == system
    records = await records_of(path)
    assert types(records).count("context:set_ignored") == 2
    assert "context:messages_set" not in types(records)
    first, _ = events(records, "context:set_ignored")
    assert first.missing_roles == ("system",)


async def test_a_host_that_was_killed_before_its_save_rolls_nothing_back(path: Path) -> None:
    die(path)
    provider = ScriptedAmplifierProvider("Alive.")
    async with session(provider, store=path) as host:
        context = host.coordinator.get("context")
        rows = await context.get_messages()
        # The host saved after the first turn, and was killed in the second.
        await context.set_messages(kept(rows[:3]))
        assert await context.get_messages() == rows
        await host.execute("Still there?")
    asked = [row["content"] for row in provider.messages[0] if row["role"] == "user"]
    assert asked == ["Hello?", "Die.", "Still there?"]
    (ignored,) = events(await records_of(path), "context:set_ignored")
    assert (ignored.messages, ignored.missing_roles) == (2, ("system",))
    assert ignored.ahead == len(rows) - 3


@pytest.mark.parametrize("before", ["a set", "a turn", "a message", "a request", "nothing"])
async def test_a_beginning_of_the_transcript_set_later_is_an_undo(before: str, path: Path) -> None:
    async with session(ScriptedAmplifierProvider("One.", "Two."), store=path) as host:
        await host.execute("First.")
        await host.execute("Second.")
        stored = await host.coordinator.get("context").get_messages()
    async with session(ScriptedAmplifierProvider("Three."), store=path) as host:
        context = host.coordinator.get("context")
        assert len(await context.get_messages()) == 4
        if before == "a set":
            await context.set_messages(kept(stored))
        elif before == "a turn":
            await host.execute("Third.")
        elif before == "a message":
            await context.add_message({"role": "user", "content": "Third."})
        elif before == "a request":
            await context.get_messages_for_request()
        await context.set_messages(stored[:2])
        left = await context.get_messages()
    assert left == (stored if before == "nothing" else stored[:2])


async def test_a_repaired_transcript_takes_effect_before_the_next_turn(path: Path) -> None:
    provider = ScriptedAmplifierProvider("One.", "Two.")
    async with session(provider, store=path) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        await host.execute("First.")
        rows = kept(await context.get_messages())
        rows[-1] = {"role": "assistant", "content": "Mended."}
        await context.set_messages(rows)
        await host.execute("Second.")
    shown = [row["content"] for row in provider.messages[1]]
    assert shown == ["Be brief.", "First.", "Mended.", "Second."]
    await audited(path)


class Silent:
    async def execute(self, prompt: str, context: Any, providers: Any, *_: Any, **__: Any) -> str:
        await context.add_message({"role": "user", "content": prompt})
        await context.get_messages_for_request()
        await context.add_message({"role": "assistant", "content": "Yes."})
        return "Yes."


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events", Silent()])
async def test_a_child_whose_rows_are_added_again_holds_them_once(loop: Any, path: Path) -> None:
    child: Any = {"store": path, "session_id": "child", "parent_id": "session-1"}
    first = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})], thinking="hm"), "Done.")
    async with session(first, tool("read"), **child) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        await host.execute("Go on.")
        stored = await context.get_messages()
    async with session(ScriptedAmplifierProvider("Yes."), tool("read"), loop=loop, **child) as host:
        context = host.coordinator.get("context")
        await host.coordinator.hooks.emit("session:resume", {"session_id": "child"})
        for row in kept(stored):
            await context.add_message(row)
        assert await context.get_messages() == stored
        await context.add_message({"role": "user", "content": "From the parent."})
        await host.execute("Go on.")
        rows = await context.get_messages()
    added = [{"role": "user", "content": text} for text in ("From the parent.", "Go on.")]
    assert rows[:-1] == [*stored, *added]
    (ignored,) = events(await records_of(path, "child"), "context:set_ignored")
    assert (ignored.messages, ignored.missing_roles) == (len(stored) - 1, ("system",))


async def test_a_session_without_a_parent_takes_the_same_words_again(path: Path) -> None:
    for number in range(2):
        async with session(ScriptedAmplifierProvider("Hi."), store=path) as host:
            context = host.coordinator.get("context")
            await context.add_message({"role": "user", "content": "Hello"})
            assert len(await context.get_messages()) == number + 1


# -- sessions that other context modules left ------------------------------------------------------


SESSION = "0f3a2c1e-0000-4000-8000-000000000001"
STAMP = "2026-01-01T10:00:00.000+00:00"
MEMORY = {"role": "system", "content": "[Context from MEM.md]\n\nUse tabs.", "timestamp": STAMP}


def read() -> ScriptedTool:
    return ScriptedTool("read", "text", amplifier=True)


async def rows_of_a_turn() -> list[dict[str, Any]]:
    """The messages of a session as Amplifier's loops add them, without system messages."""
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})], thinking="hm"), "Done.")
    async with session(provider, read()) as host:
        await host.execute("Read.")
        rows = await host.coordinator.get("context").get_messages()
    return [{**row, "timestamp": STAMP} for row in rows]


async def kept_and_left(home: Path, project: str = "-home-me-proj") -> tuple[list[Any], Path]:
    """What the host's command line kept of a session, and the session's folder with it."""
    kept = [bare(row) for row in await rows_of_a_turn()]
    return kept, left(home, project, "transcript.jsonl", kept)


def left(home: Path, project: str, file: str, rows: list[dict[str, Any]]) -> Path:
    """A session's folder with what a program left in it."""
    folder = home / ".amplifier" / "projects" / project / "sessions" / SESSION
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(jsonl(rows))
    if file == "transcript.jsonl":
        (folder / "metadata.json").write_text("{}")
    return folder


async def imported(*arguments: Path | str) -> str:
    # The command runs a loop of its own.
    given = ["import", *map(str, arguments)]
    result = await asyncio.to_thread(CliRunner().invoke, cli, given)
    assert result.exit_code == 0, result.output
    return result.output


async def goes_on(path: Path, kept: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """The transcript and the request of a resumed session, whose host sets what it kept."""
    provider = ScriptedAmplifierProvider("Going on.")
    async with session(provider, read(), store=path, session_id=SESSION) as host:
        context = host.coordinator.get("context")
        await context.set_messages(kept)
        await host.execute("Still there?")
        return await context.get_messages(), provider.messages[0]


async def test_a_session_of_context_persistent_goes_on_with_every_row(
    home: Path, path: Path
) -> None:
    rows = await rows_of_a_turn()
    kept = [bare(row) for row in rows]
    left(home, "-home-me-proj", "transcript.jsonl", kept)
    folder = left(home, "proj-30de1e70", "context-messages.jsonl", [MEMORY, *rows])
    assert "taken over" in await imported("--take-over", folder, "--store", path)
    transcript, sent = await goes_on(path, kept)
    assert transcript[:-2] == [MEMORY, *rows]
    assert sent[0]["content"] == MEMORY["content"]
    records = await records_of(path, SESSION)
    (ignored,) = events(records, "context:set_ignored")
    assert (ignored.messages, ignored.missing_roles) == (len(rows), ("system",))
    assert "context:messages_set" not in types(records)


async def test_a_mirror_of_context_simple_goes_on_after_the_command_that_its_error_names(
    home: Path, path: Path
) -> None:
    kept, folder = await kept_and_left(home, "-home-me proj")
    left(home, "proj-30de1e70", "context-messages.jsonl", [MEMORY, *kept])
    await imported(folder, "--store", path)
    with pytest.raises(eventctx.ImportedSession) as raised:
        await goes_on(path, kept)
    command = str(raised.value).partition("for good with `")[2].partition("`")[0]
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("eventctx", "import")
    assert str(folder) in arguments
    await imported(*arguments)
    transcript, _ = await goes_on(path, kept)
    assert transcript[:-2] == kept
    assert "context:messages_set" not in types(await records_of(path, SESSION))


@pytest.mark.parametrize("loop", ["basic", "streaming", "loop-eventctx-events"])
async def test_a_turn_on_a_mirror_ends_with_the_command_that_makes_it_ours(
    loop: str,
    home: Path,
    path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, folder = await kept_and_left(home, "p")
    await imported(folder, "--store", path)
    provider = ScriptedAmplifierProvider("unreached")
    async with session(provider, loop=loop, store=path, session_id=SESSION) as host:
        with pytest.raises(RuntimeError, match=f"--take-over {folder} --store {path}"):
            await host.execute("Still there?")
    assert provider.messages == []
    assert "session:end" not in caplog.text + "".join(capfd.readouterr())


# -- what rewind took back -------------------------------------------------------------------------


ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": [{"type": "text", "text": "Answer to one"}]},
    {"role": "user", "content": "two"},
    {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "c1", "name": "read", "input": {}}],
        "tool_calls": [{"id": "c1", "tool": "read", "arguments": {}}],
    },
]
"""A session whose last turn broke off: the call has no result."""


def folder_of(home: Path) -> Path:
    return home / ".amplifier" / "projects" / "-home-me-proj" / "sessions" / "session-1"


def keep(home: Path, rows: list[dict[str, Any]]) -> Path:
    """Save a transcript as Amplifier's command line does."""
    path = folder_of(home) / "transcript.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name("metadata.json").write_text('{"session_id": "session-1"}')
    path.write_bytes(jsonl(rows))
    return path


def rewind_by_hand(home: Path, rows: list[dict[str, Any]], later: float = 2) -> None:
    """Leave what the script leaves: a shorter transcript, and a copy of the one of before."""
    path = keep(home, rows)
    stamp = (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y%m%d%H%M%S")
    path.with_name(f"transcript.jsonl.bak-pre-rewind-{stamp}").write_text("")


def rewind_by_the_script(home: Path) -> None:
    root = Path(os.environ.get("EVENTCTX_AMPLIFIER_MODULES", "/nowhere"), "foundation")
    script = root / "scripts" / "amplifier-session.py"
    if not script.exists():
        pytest.skip("no amplifier-foundation; set EVENTCTX_AMPLIFIER_MODULES to its folder")
    ran = subprocess.run(
        [sys.executable, script, "rewind", folder_of(home)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(ran.stdout).get("status") == "rewound", ran


async def resumed(
    path: Path, kept: list[dict[str, Any]], context: str = "context-eventctx"
) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
    """The contents of the next request after a resume, what was shown, and the transcript."""
    provider, display = ScriptedAmplifierProvider("Again."), Mock()
    async with session(provider, context=context, store=path) as host:
        host.coordinator.display_system = display
        ctx = host.coordinator.get("context")
        await ctx.set_messages(kept)
        await host.execute("again")
        rows = await ctx.get_messages()
    shown = [call.args for call in display.show_message.call_args_list]
    return [message.content for message in provider.requests[-1].messages], shown, rows


async def broken_off(path: Path, context: str = "context-eventctx") -> None:
    async with session(ScriptedAmplifierProvider(), context=context, store=path) as host:
        for row in ROWS:
            await host.coordinator.get("context").add_message(row)


@pytest.mark.parametrize("context", ["context-eventctx", "context-eventctx-persistent"])
@pytest.mark.parametrize("by", ["hand", "script"])
async def test_what_rewind_took_back_is_in_no_request_and_the_person_is_told(
    by: str, context: str, path: Path, home: Path
) -> None:
    await broken_off(path, context)
    if by == "hand":
        rewind_by_hand(home, ROWS[:2])
    else:
        keep(home, ROWS)
        rewind_by_the_script(home)
    left = (folder_of(home) / "transcript.jsonl").read_text().splitlines()
    kept = [json.loads(line) for line in left]
    assert kept == ROWS[:2]
    sent, shown, rows = await resumed(path, kept, context)
    texts = [one if isinstance(one, str) else one[0].text for one in sent]
    assert texts == ["one", "Answer to one", "again"]
    assert [row["content"] for row in rows[:2]] == [row["content"] for row in ROWS[:2]]
    ((text, level, source),) = shown
    assert (level, source) == ("warning", "context-eventctx")
    assert "rewind took 2 messages of this session back" in text
    assert f"eventctx transcript session-1 --at 5 --store {path}" in text
    async with eventctx.open(path) as engine:
        before = await engine.transcript("session-1", at=5)
    assert [one.message for one in before] == ROWS


async def test_what_was_taken_back_once_is_not_taken_again(path: Path, home: Path) -> None:
    await broken_off(path)
    rewind_by_hand(home, ROWS[:2], later=0)
    _, first, rows = await resumed(path, ROWS[:2])
    folder = folder_of(home)
    for one in folder.glob("*.bak-*"):
        one.rename(folder / "transcript.jsonl.bak-pre-rewind-20260101000000")
    _, second, again = await resumed(path, rows)
    assert (len(first), len(second)) == (1, 0)
    assert again[: len(rows)] == rows


async def test_a_copy_that_only_ends_before_the_log_undoes_nothing_and_the_person_is_told(
    path: Path, home: Path
) -> None:
    await broken_off(path)
    keep(home, ROWS[:2])
    _, shown, rows = await resumed(path, ROWS[:2])
    assert rows[:4] == ROWS
    ((text, *_),) = shown
    assert "ends 2 messages before the log does" in text
    records = await records_of(path)
    assert [one.ahead for one in events(records, "context:set_ignored")] == [2]
