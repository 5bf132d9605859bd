"""Every compaction that began ends exactly once, whoever breaks it off, and when."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.policies.advisers import Paused, Scripted, talk


async def ends(engine: Engine) -> list[int]:
    """How many ends each compaction has that began."""
    found: dict[str | None, int] = {}
    async for record in engine.records("s"):
        if record.type == "context:pre_compact":
            found[record.span_id] = 0
        elif record.type == "context:post_compact":
            found[record.span_id] += 1
    return list(found.values())


async def due(engine: Engine, summarizer: Scripted) -> eventctx.Context:
    ctx = await engine.session(
        "s", policy="summarize", summarizer=summarizer, max_tokens=4_000, adviser_timeout=5
    )
    for message in talk(12):
        await ctx.add_message(message)
    return ctx


@pytest.mark.slow
@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_a_request_that_is_cancelled_at_any_moment_leaves_one_end(
    store: str, tmp_path: Path
) -> None:
    for steps in range(40):
        url = "memory://" if store == "memory" else tmp_path / f"{steps}.db"
        async with eventctx.open(url) as engine:
            ctx = await due(engine, Scripted())
            request = asyncio.create_task(ctx.get_messages_for_request())
            for _ in range(steps):
                await asyncio.sleep(0)
            request.cancel()
            with suppress(asyncio.CancelledError):
                await request
            await ctx.close()
            assert set(await ends(engine)) <= {1}, steps
            assert await ctx.get_messages_for_request()
            assert set(await ends(engine)) <= {1}, steps


async def test_a_request_that_is_cancelled_twice_leaves_one_end() -> None:
    async with eventctx.open() as engine:
        summarizer = Paused()
        ctx = await due(engine, summarizer)
        request = asyncio.create_task(ctx.get_messages_for_request())
        await summarizer.called.wait()
        request.cancel()
        await asyncio.sleep(0)
        request.cancel()
        with suppress(asyncio.CancelledError):
            await request
        await ctx.close()
        assert [row.outcome for row in (await engine.audit("s")).compactions] == ["cancelled"]


async def test_a_compaction_that_another_process_closed_is_not_closed_again() -> None:
    store = MemoryStore()
    engine = Engine(store)
    summarizer = Paused()
    ctx = await due(engine, summarizer)
    request = asyncio.create_task(ctx.get_messages_for_request())
    await summarizer.called.wait()
    await Engine(store).session("s", policy="workset")
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request
    await ctx.close()
    assert [row.outcome for row in (await engine.audit("s")).compactions] == ["failed"]


async def test_an_engine_that_closes_while_a_summarizer_works_leaves_an_end() -> None:
    store = MemoryStore()
    summarizer = Paused()
    ctx = await due(Engine(store), summarizer)
    request = asyncio.create_task(ctx.get_messages_for_request())
    await summarizer.called.wait()
    request.cancel()
    with suppress(asyncio.CancelledError):
        await request
    await ctx.close()
    again = Engine(store)
    await again.session("s", policy="workset")
    assert await ends(again) == [1]
