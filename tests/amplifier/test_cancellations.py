"""Cancellations at every await: the log is whole, and the next call works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Generator
from pathlib import Path
from typing import Any

import pytest
from amplifier_core.testing import MockCoordinator

import eventctx
from eventctx.adapters.amplifier import mount
from eventctx.adapters.amplifier.engines import ENGINES
from tests.amplifier.given import events, records_of, unended
from tests.amplifier.hosts import Named, mounted

QUESTION = {"role": "user", "content": "a"}


class Steps:
    """Awaits something in a task that is cancelled at its ``at``-th step."""

    def __init__(self, inner: Awaitable[Any], at: int) -> None:
        self._inner = inner
        self._at = at

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._inner.__await__()
        taken = 0
        waited = next(steps)
        while True:
            taken += 1
            task = asyncio.current_task()
            if taken == self._at and task is not None:
                task.cancel()
            try:
                sent = yield waited
            except BaseException as error:
                waited = steps.throw(error)
            else:
                try:
                    waited = steps.send(sent)
                except StopIteration as end:
                    return end.value


async def test_a_child_whose_beginning_is_cancelled_is_linked_to_its_parent_all_the_same(
    tmp_path: Path,
) -> None:
    config = {"store": str(tmp_path / "contexts.db")}
    engines, at, done = len(ENGINES._shared), 0, False
    while not done:
        at += 1
        assert at < 200
        context, cleanup = await mounted(config, Named(f"child-{at}", "parent"))

        async def add(context: Any = context, number: int = at) -> None:
            await Steps(context.add_message(QUESTION), number)

        (came,) = await asyncio.gather(asyncio.ensure_future(add()), return_exceptions=True)
        done = came is None
        await context.add_message(QUESTION)
        await cleanup()
        linked = events(await records_of(tmp_path / "contexts.db", f"child-{at}"), "session:linked")
        assert [one.session for one in linked] == ["parent"]
    assert at > 1
    assert len(ENGINES._shared) == engines


async def test_a_session_survives_a_cancellation_at_every_await(tmp_path: Path) -> None:
    config = {"store": str(tmp_path / "contexts.db"), "max_tokens": 1_500}
    at, done = 0, False
    context, cleanup = await mounted(config)
    while not done:
        at += 1
        assert at < 200

        async def work(number: int = at) -> None:
            await context.add_message({"role": "user", "content": f"question {number} " * 20})
            await context.get_messages_for_request()
            answer = {"role": "assistant", "content": f"answer {number} " * 20}
            await context.add_message(answer)
            await context.compact()
            await context.set_messages([*await context.get_messages(), QUESTION])

        async def run(number: int = at) -> None:
            await Steps(work(), number)

        (came,) = await asyncio.gather(asyncio.ensure_future(run()), return_exceptions=True)
        assert came is None or isinstance(came, asyncio.CancelledError), came
        done = came is None
        before = await context.get_messages()
        await context.add_message({"role": "user", "content": "and on"})
        assert await context.get_messages() == [*before, {"role": "user", "content": "and on"}]
        await context.get_messages_for_request()
    assert at > 5
    await cleanup()
    async with eventctx.open(config["store"]) as engine:
        assert (await engine.verify("test-session")).ok
        records = [record async for record in engine.records("test-session")]
    assert unended(records) == []


async def test_a_cleanup_that_is_cancelled_at_any_await_lets_go_all_the_same(
    tmp_path: Path,
) -> None:
    at, done = 0, False
    while not done:
        at += 1
        assert at < 100
        path = tmp_path / f"{at}.db"
        coordinator = MockCoordinator()
        cleanup = await mount(coordinator, {"store": str(path)})
        await coordinator.hooks.emit("prompt:submit", {"prompt": "a"})
        # Only noted so far: the cleanup records it.
        await coordinator.hooks.emit("provider:request", {"provider": "p", "iteration": 1})

        async def ended(work: Awaitable[None], number: int = at) -> None:
            await Steps(work, number)

        task = asyncio.ensure_future(ended(cleanup()))
        (came,) = await asyncio.gather(task, return_exceptions=True)
        assert came is None or isinstance(came, asyncio.CancelledError), came
        done = came is None
        assert not [one.name for one in threading.enumerate() if path.name in one.name]
        with pytest.raises(eventctx.StoreUnavailable):
            await coordinator.get("context").get_messages()
        async with eventctx.open(path) as engine:
            assert (await engine.verify("test-session")).ok
            records = [record async for record in engine.records("test-session")]
        assert unended(records) == []
        assert [one.type for one in records].count("provider:request") == 1
    assert at > 1
