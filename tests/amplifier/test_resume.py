"""A session that goes on: after a restart, a crash, and with what the host kept of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.projections.view.entries import ANSWER_KEPT, CALL_NOT_ENDED
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import bare, events, records_of, types
from tests.amplifier.hosts import LOOPS, session, tool

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

CRASHING = """
import asyncio, os, signal, sys
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.hosts import session, tool

def die(given):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    calls = Reply(calls=[("read", {"n": 1}), ("die", {"n": 1})])
    provider = ScriptedAmplifierProvider("Hello.", calls, "unreached")
    async with session(provider, tool("read"), tool("die", die), store=sys.argv[1]) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        await host.execute("Hello?")
        await host.execute("Die.")

asyncio.run(main())
"""
BESIDE_A_TOOL = ROOT / "tests" / "programs" / "host_with_two_tools.py"


def die(*program: Any) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, *program], env=env, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr


def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a host's storage keeps a transcript: no system rows, no nulls, a time for each."""

    return [
        {**bare(row), "timestamp": "2026-01-01T00:00:00.000+00:00"}
        for row in rows
        if row["role"] not in ("system", "developer")
    ]


async def test_a_session_goes_on_after_kill_nine_with_open_calls(path: Path) -> None:
    die("-c", CRASHING, path)
    provider = ScriptedAmplifierProvider("Alive.")
    async with session(provider, store=path) as host:
        assert await host.execute("Still there?") == "Alive."
    rows = provider.messages[0]
    roles = ["system", "user", "assistant", "user", "assistant", "tool", "tool", "user"]
    assert [row["role"] for row in rows] == roles
    made = [row["content"] for row in rows if row["role"] == "tool"]
    assert made[1] == CALL_NOT_ENDED  # of ``read`` it depends on what was on disk
    records = await records_of(path)
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2, 3]


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_tool_answered_beside_one_that_killed_is_shown(path: Path, loop: str) -> None:
    die(BESIDE_A_TOOL, path, loop)
    provider = ScriptedAmplifierProvider("Alive.")
    async with session(provider, loop=loop, store=path) as host:
        await host.execute("Still there?")
    made = [row["content"] for row in provider.messages[0] if row["role"] == "tool"]
    assert made == [f"{ANSWER_KEPT}the text of read", CALL_NOT_ENDED]
    records = await records_of(path)
    (lost,) = events(records, "tool:error")
    assert (lost.name, lost.status) == ("die", "lost")
    assert [one.status for one in events(records, "prompt:complete")] == ["lost", "ok"]


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
    die("-c", CRASHING, path)
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
    async with eventctx.open(path) as engine:
        assert (await engine.request_view("session-1", turn=1)).verified


class Silent:
    """An orchestrator that tells nothing."""

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
