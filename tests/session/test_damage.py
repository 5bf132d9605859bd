"""Damaged caches, later versions and edited facts: a typed error or no harm, never another view."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import DecodeError, EventctxError
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.view.snapshot import NAME as SNAPSHOT
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.session.repository import load
from eventctx.stores.memory import MemoryStore


async def compacted(store: MemoryStore) -> Engine:
    engine = Engine(store)
    ctx = await engine.session("s", max_tokens=2_000)
    for number in range(40):
        await ctx.add_message({"role": "user", "content": f"question {number} " + "x" * 200})
        await ctx.add_message({"role": "assistant", "content": f"answer {number} " + "y" * 200})
        await ctx.get_messages_for_request()
    return engine


@pytest.mark.slow
async def test_a_damaged_snapshot_is_as_good_as_none() -> None:
    store = MemoryStore()
    await compacted(store)
    snapshot = await store.load_snapshot("s", SNAPSHOT)
    whole = await load(store, "s")
    assert snapshot is not None
    assert whole is not None
    draw = random.Random(3)  # noqa: S311
    broken = [b"", b"\x00\xff\x00", snapshot.data[:-5], snapshot.data + b"x"]
    for _ in range(200):
        data = bytearray(snapshot.data)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        broken.append(bytes(data))
    for data in broken:
        store.save_snapshot("s", SNAPSHOT, msgspec.structs.replace(snapshot, data=data))
        again = await load(store, "s")
        assert again is not None
        assert again.view.layout.measure() == whole.view.layout.measure()
        assert again.snapshot == -1


async def test_facts_that_somebody_edited_in_an_export_are_read_anew() -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    for text in ("go", "next"):
        await ctx.add_message({"role": "user", "content": text})
    info = await engine.store.head("s")
    assert info is not None
    _, *lines = [line async for line in export_lines(engine.store, info)]
    real = encode_facts(read_facts({"role": "user", "content": "go"}))
    forged = encode_facts(read_facts({"role": "tool", "tool_call_id": "x", "content": "go"}))
    encoded = [msgspec.json.encode(facts)[1:-1] for facts in (real, forged)]
    assert encoded[0] in lines[1]
    lines[1] = lines[1].replace(encoded[0], encoded[1])
    other = Engine(MemoryStore())
    await import_drafts(other.store, "s", read_drafts(lines))
    again = await other.session("s")
    assert [m["content"] for m in await again.get_messages_for_request()] == ["go", "next"]


@pytest.mark.parametrize(
    "name", ["context:messages_set", "context:post_compact", "prompt:submit", "usage:reported"]
)
async def test_a_known_event_of_a_later_release_is_a_typed_error(name: str) -> None:
    engine = await compacted(MemoryStore())
    draft = Draft(os.urandom(16), name, 99, 0, b'{"event":"%s","new":1}' % name.encode())
    await engine.store.append("s", [draft], ANY)
    with pytest.raises(DecodeError, match=r"version 99 was written by a later release"):
        await engine.audit("s")
    assert (await engine.verify("s")).ok


async def test_damaged_facts_are_a_typed_error() -> None:
    store = MemoryStore()
    engine = await compacted(store)
    found = [r async for r in engine.records("s") if r.bodies]
    broken = msgspec.structs.replace(found[0].bodies[0], facts=b"\xc1garbage")
    place: Any = store._streams["s"].records
    place[found[0].position] = msgspec.structs.replace(found[0], bodies=(broken,))
    with pytest.raises(EventctxError, match="facts of a body are damaged"):
        await engine.audit("s")


async def test_verifying_a_session_while_it_grows_raises_no_alarm() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "x"})
        done = asyncio.Event()

        async def grow() -> None:
            while not done.is_set():
                await ctx.add_message({"role": "user", "content": "x"})
                await asyncio.sleep(0)

        growing = asyncio.create_task(grow())
        for _ in range(100):
            assert (await engine.verify("s")).ok
        done.set()
        await growing
