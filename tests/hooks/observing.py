"""A scripted agent on a live engine, and the hook calls that were lost while it ran."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.hooks.registry import Hooks
from tests.services.receiver import Receiver
from tests.sessions import tool_round, user


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as listening:
        yield listening


SPANS = 2 + 2 * 3 * 2  # two turns, each of three rounds of a model call and a tool call


async def agent(ctx: eventctx.Context) -> list[Any]:
    """Two turns of three rounds; returns every request, and the transcript at the end."""
    seen: list[Any] = []
    for number in range(2):
        async with ctx.turn(f"turn-{number}", agent="coder") as turn:
            await ctx.add_message(user(f"go {number}"))
            for step in range(3):
                async with turn.iteration() as cycle:
                    seen.append(await ctx.get_messages_for_request())
                    async with cycle.provider_call("model-1", "acme") as call:
                        await call.usage(900, 20)
                    asks, answers = tool_round(10 * number + step, 500)
                    await ctx.add_message(asks)
                    async with cycle.tool_call("read", asks["content"][0]["id"]):
                        await asyncio.sleep(0)
                    await ctx.add_message(answers)
    seen.append(await ctx.get_messages())
    return seen


async def logged(engine: eventctx.Engine) -> list[tuple[str, list[bytes | None]]]:
    records = engine.records("s", bodies=True)
    return [(one.type, [body.data for body in one.bodies]) async for one in records]


@asynccontextmanager
async def turning() -> AsyncIterator[None]:
    """Fail if the loop stands still for five seconds, as a thread measures them."""
    beat, stop, late = threading.Event(), threading.Event(), list[int]()

    def watch() -> None:
        while not stop.is_set():
            beat.clear()
            if not beat.wait(5.0) and not stop.is_set():
                late.append(1)

    async def turn() -> None:
        while True:
            beat.set()
            await asyncio.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    task = asyncio.create_task(turn())
    try:
        yield
    finally:
        stop.set()
        task.cancel()
        await asyncio.wait([task])
    assert not late, "the loop stood still"


def shown(store: Path) -> dict[tuple[str, str], int]:
    """The losses that ``eventctx stats`` shows, by handler and kind."""
    done = CliRunner().invoke(cli, ["stats", "--json", "--store", str(store)])
    assert done.exit_code == 0, done.output
    losses = json.loads(done.stdout)["losses"]
    return {(one["handler"], one["kind"]): one["count"] for one in losses}


def lost(hooks: Hooks) -> dict[tuple[str, str], int]:
    """The same from the registry."""
    kinds = {"error": hooks.stats().errors, "dropped": hooks.stats().dropped}
    return {(name, kind): n for kind, counts in kinds.items() for name, n in counts.items()}


class Case:
    """A store on disk, and the agent on it with the sinks of a test."""

    def __init__(self, store: Path, expected: tuple[list[Any], list[Any]]) -> None:
        self.store = store
        self.expected = expected

    async def __call__(
        self,
        *sinks: Any,
        prepare: Callable[[eventctx.Engine], Any] = lambda engine: None,
        hooks: Hooks | None = None,
    ) -> dict[tuple[str, str], int]:
        """Run the agent until the engine is closed; returns the losses, which stats show, too."""
        hooks = hooks or Hooks()
        async with turning(), eventctx.open(self.store, sinks=sinks, hooks=hooks) as engine:
            prepare(engine)
            ctx = await engine.session("s", max_tokens=2_000)
            assert await agent(ctx) == self.expected[0]
            assert await logged(engine) == self.expected[1]
            assert (await engine.verify("s")).problems == ()
        # In a thread, because the command runs an event loop of its own.
        assert await asyncio.to_thread(shown, self.store) == lost(hooks)
        return lost(hooks)
