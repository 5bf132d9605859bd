"""The rows of a request: the caller's own, what the log says they were, with the tools they had."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import EventctxError, LogCorrupted
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestContent
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.session.given import in_threads, opened, prove
from tests.sessions import filled, user, with_frames
from tests.transcripts import Message, stories

Rows = list[dict[str, Any]]


async def is_as_recorded(engine: Engine, rows: Rows) -> None:
    """The rows are, in content and order of keys, those of the last request on record."""
    position = (await engine.audit("s")).requests[-1].position
    view = await engine.request_view("s", position=position)
    assert json.dumps(rows) == json.dumps(view.messages)
    assert view.verified


async def test_what_a_caller_does_to_its_rows_reaches_no_later_request() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine)
    first = await ctx.get_messages_for_request()
    kept = json.dumps(first)
    first[1]["content"][0]["input"]["path"] = "mine"
    first[4]["content"].clear()
    del first[8:]
    second = await ctx.get_messages_for_request()
    assert json.dumps(second) == kept
    await is_as_recorded(engine, second)


async def test_rows_are_plain_dicts_and_lists_that_any_library_takes() -> None:
    ctx = await filled(Engine(MemoryStore()))
    await ctx.get_messages_for_request()
    rows = await ctx.get_messages_for_request()

    def kinds(value: Any) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value
        nested = [kinds(one) for one in inner if isinstance(one, dict | list)]
        return {type(value)}.union(*nested)

    assert kinds(rows) == {dict, list}
    assert yaml.safe_load(yaml.safe_dump(rows)) == rows


async def test_a_row_that_was_given_back_is_stored_as_the_plain_one() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine, rounds=3)
    rows = await ctx.get_messages_for_request()
    await ctx.set_messages(rows)
    assert await ctx.resume_messages(await ctx.get_messages_for_request()) is False
    await ctx.add_message(rows[0])
    transcript = await ctx.get_messages()
    assert transcript == [*rows, rows[0]]
    assert type(transcript[1]["content"][0]) is dict
    assert [line.number for line in await engine.transcript("s")] == [0, 1, 2, 3, 4, 5, 6, 7]


async def test_requests_of_many_threads_that_change_their_rows_are_all_as_the_log_has_them() -> (
    None
):
    engine = Engine(MemoryStore())
    ctx = await filled(engine)
    original = await ctx.get_messages()

    async def work() -> None:
        for _ in range(15):
            rows = await ctx.get_messages_for_request()
            assert rows == original
            for row in rows:
                row.clear()

    await in_threads([work] * 6)
    await is_as_recorded(engine, await ctx.get_messages_for_request())


# -- any order of anything -----------------------------------------------------------------------

ACTS = ("set", "clear", "compact", "restore", "pin", "unpin", "prompt", "theirs", "resume")


def change(rows: Rows, draw: Any) -> None:
    """Do something to a row, on top or deep in it."""
    if not rows:
        return
    value: Any = draw(st.sampled_from(rows))
    while draw(st.booleans()):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        inner = [item for item in items if isinstance(item, dict | list)]
        if not inner:
            break
        value = draw(st.sampled_from(inner))
    if isinstance(value, dict):
        ways = {
            "set": lambda: value.update({draw(st.sampled_from([*value, "new"])): "mine"}),
            "delete": lambda: value and value.pop(draw(st.sampled_from([*value]))),
            "clear": value.clear,
            "update": lambda: value.update(role="mine"),
        }
    else:
        ways = {
            "append": lambda: value.append("mine"),
            "clear": value.clear,
            "insert": lambda: value.insert(0, {"type": "text", "text": "mine"}),
            "double": lambda: value.extend(value),
        }
    ways[draw(st.sampled_from([*ways]))]()


class Play:
    """One session of two engines on a store, with every request that was handed out."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.store = MemoryStore()
        with_frames(self.store)
        self.handed_out: list[Rows] = []

    async def run(self, messages: list[Message]) -> None:
        self.engine, self.other = Engine(self.store), Engine(self.store)
        options: dict[str, Any] = {"policy": "simple", "keep_recent": 4}
        budget = self.draw(st.sampled_from([300, 2_000, 100_000]))
        options |= {"max_tokens": budget, "on_overflow": "send_floor"}
        self.ctx = await self.engine.session("s", **options)
        self.theirs = await self.other.session("s", **options)
        for message in messages:
            await self.ctx.add_message(message)
            if self.draw(st.integers(0, 3)) == 0:
                await self._act(self.draw(st.sampled_from(ACTS)))
            for _ in range(self.draw(st.integers(0, 2))):
                await self._ask()

    async def _ask(self) -> None:
        rows = await self.ctx.get_messages_for_request()
        await is_as_recorded(self.engine, rows)
        self.handed_out.append(rows)
        for _ in range(self.draw(st.integers(0, 3))):
            change(self.draw(st.sampled_from(self.handed_out)), self.draw)

    async def _act(self, act: str) -> None:
        ctx, draw = self.ctx, self.draw
        numbers = [message.number for message in await self.engine.transcript("s")]
        number = draw(st.sampled_from(numbers)) if numbers else 0
        try:
            if act == "set":
                await ctx.set_messages([m for m in await ctx.get_messages() if draw(st.booleans())])
            elif act == "resume":
                copy = (await ctx.get_messages())[: draw(st.integers(0, 9))]
                await ctx.resume_messages(copy, may_be_behind=draw(st.booleans()))
            elif act == "prompt":
                text = draw(st.sampled_from(["one", "two", None]))
                await ctx.set_system_prompt(text, replaces_stored=draw(st.booleans()))
            elif act == "theirs":
                await self.theirs.add_message({"role": "user", "content": "theirs"})
                if draw(st.booleans()):
                    (await self.theirs.get_messages_for_request())[-1].clear()
            elif act in ("pin", "unpin", "restore"):
                await getattr(ctx, act)(number)
            else:
                await getattr(ctx, act)()
        except EventctxError:
            pass  # what cannot be done at this point leaves the session as it was


@settings(max_examples=some(20, 500), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_every_request_is_as_recorded_whatever_happened_and_was_done_to_earlier_rows(
    data: st.DataObject,
) -> None:
    await Play(data.draw).run(data.draw(stories()).messages)


READ = {"name": "read", "input_schema": {"type": "object"}}
WRITE = {"name": "write", "input_schema": {"type": "object"}}


async def contents(engine: eventctx.Engine) -> list[RequestContent]:
    found: list[Any] = [decode_event(record) async for record in engine.store.read("s")]
    return [event for event in found if isinstance(event, RequestContent)]


async def test_tools_are_stored_once_for_all_requests_with_them_and_a_fork_shows_them() -> None:
    engine, ctx = await opened(user("go"))
    for tools in ([READ], [READ], [READ, WRITE], [READ], None):
        await ctx.get_messages_for_request(tools=tools)
    assert [one.kind for one in await contents(engine)] == ["tools", "tools"]
    requests = (await engine.audit("s")).requests
    shown = [(await engine.request_view("s", position=row.position)).tools for row in requests]
    assert shown == [[READ], [READ], [READ, WRITE], [READ], None]
    await engine.fork("s", requests[0].position, "f")
    await (await engine.session("f")).get_messages_for_request(tools=[READ])
    *_, row = (await engine.audit("f")).requests
    assert (await engine.request_view("f", position=row.position)).tools == [READ]
    # A session that is opened again does not store its tools again.
    _, again = await opened(store=engine.store)
    await again.get_messages_for_request(tools=[READ])
    assert len(await contents(engine)) == 2
    await prove(engine)


@pytest.mark.parametrize("data", [b'{"tools":[{"name":"other"}]}', b'{"too'])
async def test_tools_that_were_edited_are_damage(data: bytes, tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s")
        await ctx.add_message(user("go"))
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
