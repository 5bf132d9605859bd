"""Tool definitions of live sessions: kept once per digest, shown with the request."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.errors import LogCorrupted
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestContent

READ = {"name": "read", "input_schema": {"type": "object"}}
WRITE = {"name": "write", "input_schema": {"type": "object"}}


async def contents(engine: eventctx.Engine) -> list[RequestContent]:
    found: list[Any] = [decode_event(record) async for record in engine.store.read("s")]
    return [event for event in found if isinstance(event, RequestContent)]


async def test_tools_are_stored_once_for_all_requests_with_them() -> None:
    engine = await eventctx.open(":memory:")
    ctx = await engine.session("s")
    await ctx.add_message({"role": "user", "content": "go"})
    for tools in ([READ], [READ], [READ, WRITE], [READ], None):
        await ctx.get_messages_for_request(tools=tools)
    assert len(await contents(engine)) == 2
    shown = [
        (await engine.request_view("s", position=row.position)).tools
        for row in (await engine.audit("s")).requests
    ]
    assert shown == [[READ], [READ], [READ, WRITE], [READ], None]
    assert all(one.kind == "tools" for one in await contents(engine))
    assert (await engine.verify("s")).ok
    await engine.close()


async def test_a_session_that_is_opened_again_does_not_store_its_tools_again(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        engine = await eventctx.open(tmp_path / "s.db")
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "go"})
        await ctx.get_messages_for_request(tools=[READ])
        found = await contents(engine)
        await engine.close()
    assert len(found) == 1


async def test_a_fork_shows_the_tools_that_its_parent_stored() -> None:
    engine = await eventctx.open(":memory:")
    ctx = await engine.session("s")
    await ctx.add_message({"role": "user", "content": "go"})
    await ctx.get_messages_for_request(tools=[READ])
    await engine.fork("s", (await engine.audit("s")).requests[-1].position, "f")
    fork = await engine.session("f")
    await fork.get_messages_for_request(tools=[READ])
    (row,) = (await engine.audit("f")).requests
    assert (await engine.request_view("f", position=row.position)).tools == [READ]
    await engine.close()


@pytest.mark.parametrize("data", [b'{"tools":[{"name":"other"}]}', b'{"too'])
async def test_tools_that_were_edited_are_damage(data: bytes, tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        await ctx.add_message({"role": "user", "content": "go"})
        await ctx.get_messages_for_request(tools=[READ])
        at = (await engine.audit("s")).requests[0].position
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database:
        change = "UPDATE records SET data = ? WHERE instr(payload, ?)"
        assert database.execute(change, (data, b'"kind":"tools"')).rowcount == 1
        database.commit()
    async with eventctx.open(tmp_path / "s.db") as engine:
        with pytest.raises(LogCorrupted):
            await engine.request_view("s", position=at)
        if data.endswith(b"}"):
            view = await engine.request_view("s", position=at, allow_damage=True)
            assert (view.verified, view.consistent) == (False, False)
