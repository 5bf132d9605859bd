"""Writes golden files for new event types and fields. A file that is there is never edited.

Run ``python -m tests.golden.make`` with samples of what is new under the name of a file of their
own in ``SAMPLES``. The samples of files that are there are in those files, and no more needed here.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.queries.transfer import export_lines
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore

HERE = Path(__file__).parent

SAMPLES: dict[str, list[events.Event]] = {
    # The field that came with the provider of a summarizer, which only its answer names.
    "events-v1-advisers.jsonl": [events.ProviderResponse(model="small-1", provider="example")],
}


def _write(name: str, data: bytes) -> None:
    path = HERE / name
    if not path.exists():
        path.write_bytes(data)


def _write_events(name: str, samples: list[events.Event]) -> None:
    line = b'{"type":"%s","version":%d,"payload":%s}\n'
    rows = [encode_event(sample) for sample in samples]
    _write(name, b"".join([line % (n.encode(), v, p) for n, v, p in rows]))


async def _session(engine: Engine) -> None:
    ctx = await engine.session("golden", max_tokens=1_500)
    async with ctx.turn("turn-1") as turn:
        await ctx.add_message({"role": "system", "content": "Be brief."})
        await ctx.add_message({"role": "user", "content": "Grüße: read a.txt, ten times"})
        for number in range(10):
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    await call.usage(100 + number, 7)
                block = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
                await ctx.add_message({"role": "assistant", "content": [block]})
                async with cycle.tool_call("read", f"c{number}"):
                    pass
                done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "z" * 500}
                await ctx.add_message({"role": "user", "content": [done]})
    await ctx.set_messages([*await ctx.get_messages(), {"role": "assistant", "content": "Done."}])
    await ctx.close()


async def _stores() -> None:
    ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    draws = itertools.count(1)
    options: Any = {
        "clock": lambda: next(ticks),
        "random": lambda n: next(draws).to_bytes(n, "big"),
    }
    memory = Engine(MemoryStore(), **options)
    await _session(memory)
    info = await memory.store.head("golden")
    assert info is not None
    lines = [line async for line in export_lines(memory.store, info)]
    _write("export-v1.jsonl", b"\n".join(lines) + b"\n")
    engine = Engine(await SqliteStore.open(HERE / "store-v1.db"), **options)
    await _session(engine)
    await engine.fork("golden", 9, "branch")
    await engine.close()
    (HERE / "store-v1.db").rename(HERE / "store-v1.sqlite")


if __name__ == "__main__":
    for name, samples in SAMPLES.items():
        _write_events(name, samples)
    if not (HERE / "export-v1.jsonl").exists():
        asyncio.run(_stores())
