"""What a host brings back, of which nothing is lost, and the rows of a request, its own."""

from __future__ import annotations

import contextlib
import itertools
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
from eventctx.log.events import RequestContent, SetIgnored
from eventctx.log.store import Address
from eventctx.session.reconcile import AddedAgain, earlier_copy, reconcile
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.session.given import in_threads, opened, prove, records_of
from tests.sessions import filled, names, user, with_frames
from tests.transcripts import Message, stories

SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Use tabs."}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text, "visibility": None}]}


def became(stored: list[Any], brought: list[Any]) -> list[Any] | None:
    rows = reconcile(stored, brought).rows
    if rows is None:
        return None
    return [stored[place] if place is not None else brought[at or 0] for place, at in rows]


STATEFUL = {**assistant("b"), "thinking_block": {"type": "thinking"}}
PLAIN = {"role": "assistant", "content": [{"text": "b", "type": "text"}], "thinking_text": "…"}
TIMED = {**user("a"), "timestamp": "2026-01-01T00:00:00.000"}


@pytest.mark.parametrize(
    ("stored", "copy", "missing"),
    [
        ([SYSTEM, user("a"), DEVELOPER, assistant("b")], [user("a"), assistant("b")], True),
        ([user("a"), STATEFUL], [TIMED, PLAIN], False),
    ],
    ids=["without system and developer rows", "with the keys that storage adds and drops"],
)
def test_a_poorer_copy_changes_nothing(stored: list[Any], copy: list[Any], missing: bool) -> None:
    found = reconcile(stored, copy)
    assert found.rows is None
    assert found.missing_roles == (("system", "developer") if missing else ())


NEWER = {"role": "system", "content": "Be thorough."}
A, B, C, MENDED = user("a"), assistant("b"), user("c"), assistant("mended")


@pytest.mark.parametrize(
    ("stored", "brought", "becomes"),
    [
        # What was mended takes effect, and the system rows keep their places.
        ([SYSTEM, A, DEVELOPER, B, C], [A, MENDED, C], [SYSTEM, A, DEVELOPER, MENDED, C]),
        ([SYSTEM, A, DEVELOPER], [A, C], [SYSTEM, A, DEVELOPER, C]),
        ([SYSTEM, A, C], [C], [SYSTEM, C]),
        ([SYSTEM, A], [], [SYSTEM]),
        # A system prompt replaces the one at the beginning, unless it is known.
        ([SYSTEM, A, DEVELOPER, B], [NEWER, A, B], [NEWER, A, DEVELOPER, B]),
        ([SYSTEM, DEVELOPER, A, B], [SYSTEM, A, MENDED], [SYSTEM, DEVELOPER, A, MENDED]),
        ([], [SYSTEM, A], [SYSTEM, A]),
        ([], [], []),
        # An erased row equals nothing.
        ([None, C], [A, C], [A, C]),
    ],
)
def test_what_is_brought_takes_effect_and_no_inner_system_row_is_lost(
    stored: list[Any], brought: list[Any], becomes: list[Any]
) -> None:
    assert became(stored, brought) == becomes


def test_rows_that_repeat_are_recognised_however_many_there_are() -> None:
    stored = [row for _ in range(100) for row in (user("go on"), SYSTEM, assistant("ok"))]
    brought = [row for row in stored if row != SYSTEM]
    assert reconcile(stored, brought).rows is None
    longer = became(stored, [*brought, user("go on")])
    assert longer == [*stored, user("go on")]


def test_an_edit_that_is_no_loss_is_no_copy() -> None:
    known = {"timestamp": "1", "n": 1, "at": [None, 1]}
    stored = [{**user("a"), "metadata": known}]
    edits: list[Any] = [{"timestamp": "2"}, {"n": 1.0}, {"n": True}, {"at": [1]}, {"more": ""}]
    for edit in edits:
        brought = [{**user("a"), "metadata": {**known, **edit}}]
        assert became(stored, brought) == brought


ROWS = st.lists(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        st.sampled_from("abc"),
    ),
    max_size=8,
)


@given(ROWS, ROWS, st.integers(0, 8))
def test_every_given_row_is_there_in_order_and_no_inner_system_row_is_lost(
    stored: list[dict[str, Any]], brought: list[dict[str, Any]], length: int
) -> None:
    rows = became(stored, brought)
    rows = stored if rows is None else rows
    left = iter(rows)
    assert all(any(one == row for one in left) for row in brought)
    inner = itertools.dropwhile(lambda row: row["role"] in ("system", "developer"), stored)
    assert all(row in rows for row in inner if row["role"] in ("system", "developer"))
    said = [row for row in stored if row["role"] in ("user", "assistant")]
    assert reconcile(stored, said).rows is None or not stored
    # Any beginning of a conversation is an earlier copy.
    found, ahead = earlier_copy(stored, said[:length]), len(said) - length
    assert (found is not None) == (ahead > 0)
    assert found is None or (found.rows, found.ahead) == (None, ahead)


LONG = [SYSTEM, user("a"), STATEFUL, DEVELOPER, user("a"), assistant("d")]


def test_a_copy_that_ends_before_ours_is_known_as_one_and_no_other_is() -> None:
    copy = [A, B, A, assistant("d")]
    for ahead in (1, 2, 3, 4):
        poorer = [{**row, "timestamp": "2026-01-01"} for row in copy[: 4 - ahead]]
        assert earlier_copy(LONG, poorer) == (None, ("system", "developer"), ahead)
    # A copy may have its system rows, too.
    assert earlier_copy(LONG, LONG[:4]) == (None, (), 2)
    assert earlier_copy(LONG, LONG[:2]) == (None, ("developer",), 3)
    for other in (copy, [A, MENDED], [A, A], [B], [NEWER, A], [*LONG, user("e")]):
        assert earlier_copy(LONG, other) is None, other


def test_rows_that_are_added_again_are_known_in_their_order() -> None:
    again = AddedAgain([SYSTEM, user("a"), assistant("b"), user("a"), DEVELOPER])
    poorer = {"role": "assistant", "content": [{"text": "b", "type": "text"}], "timestamp": "now"}
    came = [user("a"), poorer, user("new"), user("a"), user("a"), SYSTEM, DEVELOPER]
    assert [again.holds(row) for row in came] == [True, True, False, True, False, False, True]
    assert again.count == 4
    assert again.missing_roles == ("system",)


async def test_an_ignored_set_is_recorded_and_the_view_goes_on_growing() -> None:
    engine, ctx = await opened(SYSTEM, A, B)
    before = await ctx.get_messages_for_request()
    assert await ctx.resume_messages([A, B]) is False
    assert await ctx.get_messages() == [SYSTEM, A, B]
    await ctx.add_message(C)
    assert (await ctx.get_messages_for_request())[: len(before)] == before
    types = await names(engine)
    assert types.count("context:set_ignored") == 1 and "context:messages_set" not in types
    # A copy that ends earlier is ignored only where it may be behind.
    for copy, ahead in (([A], 2), ([], 3)):
        assert await ctx.resume_messages(copy, may_be_behind=True) is False
        event: Any = decode_event((await records_of(engine.store))[-1])
        wanted = SetIgnored(messages=len(copy), missing_roles=("system",), ahead=ahead)
        assert event == wanted
    assert len(await ctx.get_messages()) == 4
    assert await ctx.resume_messages([A]) is True
    assert await ctx.get_messages() == [SYSTEM, A]
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("way", ["resume_messages", "set_messages"])
async def test_an_erased_row_that_comes_back_as_it_was_shown_is_the_erased_row(way: str) -> None:
    engine, ctx = await opened(A, user("secret"), C)
    position = (await engine.transcript("s"))[1].position
    await engine.store.erase({"s": {Address(position): b""}})
    await engine.close_session("s")
    ctx = await engine.session("s")
    shown = await ctx.get_messages()
    assert shown[1] == user("[erased]")
    await getattr(ctx, way)([*shown, user("d")])
    assert [one.number for one in await engine.transcript("s")] == [0, 1, 2, 3]
    assert await ctx.get_messages() == [*shown, user("d")]


async def test_a_set_that_takes_effect_keeps_the_numbers_and_the_fuller_rows() -> None:
    full = {**B, "metadata": {"state": None, "id": 7}}
    engine, ctx = await opened(SYSTEM, A, full)
    poorer: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "b"}]}
    assert await ctx.resume_messages([A, {**poorer, "metadata": {"id": 7}}, user("new")]) is True
    assert await ctx.get_messages() == [SYSTEM, A, full, user("new")]
    assert [message.number for message in await engine.transcript("s")] == [0, 1, 2, 3]
    assert (await engine.verify("s")).ok


def test_a_time_that_the_host_got_with_a_row_is_nothing_new() -> None:
    stored = [user("a"), {**user("b"), "metadata": {}}, {**user("c"), "metadata": {"n": 1}}]
    timed = {"timestamp": "2026-01-01T00:00:00.000+00:00"}
    brought = [
        {**user("a"), "metadata": timed},
        {**user("b"), "metadata": timed},
        {**user("c"), "metadata": {"n": 1, **timed}},
    ]
    assert became(stored, brought) is None
    assert became(stored, [*brought[:2], {**user("c"), "metadata": {"n": 2, **timed}}]) is not None
    # A time of the message's own is a part of it, and a copy that lacks it is another message.
    own = [{**user("a"), "metadata": timed}]
    assert became(own, [user("a")]) == [user("a")]


# -- the rows of a request -----------------------------------------------------------------------

Rows = list[dict[str, Any]]


async def is_as_recorded(engine: Engine, rows: Rows) -> None:
    """The rows are, in content and order of keys, those of the last request on record."""
    position = (await engine.audit("s")).requests[-1].position
    view = await engine.request_view("s", position=position)
    assert json.dumps(rows) == json.dumps(view.messages)
    assert view.verified


async def test_rows_are_plain_dicts_that_any_library_takes_also_those_given_back() -> None:
    engine = Engine(MemoryStore())
    ctx = await filled(engine, rounds=3)
    await ctx.get_messages_for_request()
    rows = await ctx.get_messages_for_request()

    def kinds(value: Any) -> set[type]:
        inner = value.values() if isinstance(value, dict) else value
        nested = [kinds(one) for one in inner if isinstance(one, dict | list)]
        return {type(value)}.union(*nested)

    assert kinds(rows) == {dict, list}
    assert yaml.safe_load(yaml.safe_dump(rows)) == rows
    await ctx.set_messages(rows)
    assert await ctx.resume_messages(await ctx.get_messages_for_request()) is False
    await ctx.add_message(rows[0])
    transcript = await ctx.get_messages()
    assert transcript == [*rows, rows[0]]
    assert kinds(transcript) == {dict, list}
    assert [line.number for line in await engine.transcript("s")] == [0, 1, 2, 3, 4, 5, 6, 7]


async def test_requests_of_threads_that_change_their_rows_are_as_the_log_has_them() -> None:
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
            message.clear()  # reaches neither the log nor a view
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
async def test_each_request_is_as_recorded_whatever_became_of_earlier_rows(
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
