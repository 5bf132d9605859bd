"""Neighbours on the same messages, in the same run: append, load, and preparing a request."""

from __future__ import annotations

from importlib import import_module

import eventctx
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import drafts, message

FIGURE = "peers"
LENGTHS = (1000, 10_000)
KEYS = ("append", "load", "prepare")
PEERS = {
    "openai-agents SQLiteSession": "peer_openai_agents",
    "langgraph-checkpoint-sqlite": "peer_langgraph",
}


async def measure(place: Place) -> list[Row]:
    found: list[Row] = []
    for length in LENGTHS:
        own = await ours(place, length)
        found += [
            Row(
                figure=FIGURE,
                name=f"eventctx: {key} at {length:,}",
                value=own.milli(key),
                unit="ms",
                note=_WHAT[key],
                cpu=own.cpu(key),
            )
            for key in KEYS
        ]
        for name, module in PEERS.items():
            found += await _peer(place, length, own, name, module)
    return found


_WHAT = {
    "append": "ctx.add_message, durable",
    "load": "session() and get_messages() in a fresh engine",
    "prepare": "get_messages_for_request(), all in view, recorded durably",
}


async def _peer(place: Place, length: int, own: Samples, name: str, module: str) -> list[Row]:
    try:
        peer = import_module(f"tests.benchmarks.{module}")
    except ImportError:
        return [missing(FIGURE, f"{name} at {length:,}", "not installed")]
    samples: Samples = await peer.measure(place, length)
    return [
        Row(
            figure=FIGURE,
            name=f"{name}: {key} at {length:,}",
            value=samples.milli(key),
            unit="ms",
            against="eventctx",
            floor=own.milli(key),
            note=peer.WHAT[key],
            cpu=samples.cpu(key),
            floor_cpu=own.cpu(key),
        )
        for key in KEYS
    ]


async def ours(place: Place, length: int) -> Samples:
    samples = Samples()
    path = place.path("ours.db")
    async with eventctx.open(path) as engine:
        context = await engine.session("one", max_tokens=10**9)
        batch = [*drafts(length)]
        for first in range(0, length, 500):
            await engine.store.append("one", batch[first : first + 500], first)
        await context.get_messages_for_request()
        for number in range(length, length + 100):
            one = message(number)
            await samples.time("append", lambda: context.add_message(one))  # noqa: B023
        for _ in range(10):
            await samples.time("prepare", context.get_messages_for_request)
        for _ in range(5):
            async with eventctx.open(path) as fresh:

                async def load() -> None:
                    again = await fresh.session("one", max_tokens=10**9)
                    await again.get_messages()

                await samples.time("load", load)
    return samples
