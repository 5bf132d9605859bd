"""A live session that is sent while it runs, and sending it again from its log.

What a receiver shows of either is compared with the log.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import eventctx
from eventctx.cli.main import cli
from eventctx.hooks.otlp import exporter_for
from eventctx.hooks.trace import TraceSink
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span


async def live_session(
    store: Path, url: str, service: str, resource: Mapping[str, str] | None = None
) -> str:
    """Three compactions, parallel tools, a tool that fails, and a turn that is cancelled.

    Sent to ``url`` under the resource that sending from the log has, and ``resource``; all was
    sent when this returns the session's name.
    """
    provider = TracerProvider(resource=Resource({"service.name": service, **(resource or {})}))
    provider.add_span_processor(BatchSpanProcessor(exporter_for(url)))
    sink, session = TraceSink(provider), f"live-{secrets.token_hex(4)}"
    async with eventctx.open(store, sinks=[sink]) as engine:
        ctx = await engine.session(session, max_tokens=2_000)
        await ctx.add_message({"role": "system", "content": "Be brief."})
        for number in range(3):
            async with ctx.turn(f"turn-{number}", agent="coder") as turn:
                await ctx.add_message({"role": "user", "content": f"Task {number}. " + "x" * 600})
                for _ in range(4):
                    async with turn.iteration() as cycle:
                        await tool_round(ctx, cycle)
        with pytest.raises(asyncio.CancelledError):
            async with ctx.turn("turn-3", agent="coder") as turn, turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("model-1", "acme"):
                    raise asyncio.CancelledError
    await asyncio.to_thread(provider.shutdown)
    return session


async def tool_round(ctx: eventctx.Context, cycle: eventctx.Iteration) -> None:
    await ctx.get_messages_for_request()
    async with cycle.provider_call("model-1", "acme") as call:
        await call.usage(900, 20, cache_read=300)
        call.finished("tool_use", "r1")
    keys = [secrets.token_hex(4) for _ in range(3)]
    uses = [{"type": "tool_use", "id": key, "name": "read", "input": {}} for key in keys]
    await ctx.add_message({"role": "assistant", "content": uses})

    async def tool(key: str, *, fails: bool) -> None:
        async with cycle.tool_call("read", key):
            await asyncio.sleep(0)
            if fails:
                raise FileNotFoundError("no such file: a.py")

    await asyncio.gather(*[tool(key, fails=key == keys[2]) for key in keys], return_exceptions=True)
    done = [{"type": "tool_result", "tool_use_id": key, "content": "z" * 400} for key in keys]
    await ctx.add_message({"role": "user", "content": done})


async def folded(store: Path, session: str) -> list[Span]:
    async with eventctx.open(store, create=False) as engine:
        return list(fold([record async for record in engine.records(session)]))


def trace(store: Path, *arguments: str) -> None:
    """Run ``eventctx trace``, for instance to send a session again."""
    done = CliRunner().invoke(cli, ["trace", "--store", str(store), *arguments])
    assert done.exit_code == 0, done.output
