"""Sessions of an engine: opened once, with the settings they were made with, and all closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StoreFull, StoreUnavailable
from eventctx.log.events import PlanStart
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected
from eventctx.policies.presets import Simple
from eventctx.session.settings import SettingsForgotten
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore
from tests.policies.advisers import Scripted
from tests.session.given import opened
from tests.sessions import USER, names


class FullFor(MemoryStore):
    """A store whose disk is full for some of its sessions; appends wait for ``held``, if any."""

    full: frozenset[str] = frozenset()
    held: asyncio.Future[None] | None = None

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        if stream in self.full:
            return Ack.failed(StoreFull("no space left on the disk"))
        ack = super().append(stream, drafts, expected)
        return ack if self.held is None else asyncio.ensure_future(self._after(self.held, ack))

    async def _after(self, held: asyncio.Future[None], ack: Awaitable[Appended]) -> Appended:
        await asyncio.shield(held)
        return await ack

    async def close(self) -> None:
        """Stay readable: the records are what the test is about."""


async def test_an_engine_closes_every_session_although_one_cannot_be_written() -> None:
    store = FullFor()
    engine = Engine(store)
    contexts = {name: await engine.session(name) for name in ("a", "b", "c")}
    store.full = frozenset("abc")
    for context in contexts.values():
        await context.emit(PlanStart())
        await context._session.appends.drain()
    store.full = frozenset("a")
    with pytest.raises(StoreFull):
        await engine.close()
    found = [await names(Engine(store), name) for name in contexts]
    assert found == [["session:start"], *[["session:start", "plan:start"]] * 2]


async def test_an_opening_that_failed_binds_the_next_one_to_nothing() -> None:
    store = FullFor()
    store.full = frozenset("s")
    engine = Engine(store)
    with pytest.raises(StoreFull):
        await engine.session("s", policy="summarize", summarizer=Scripted())
    store.full = frozenset()
    context = await engine.session("s", policy="summarize", summarizer=Scripted())
    assert context.session_id == "s"


async def test_an_open_session_refuses_another_tokenizer_in_words() -> None:
    engine, context = await opened(tokenizer=len)
    assert await engine.session("s") is await engine.session("s", tokenizer=len) is context
    with pytest.raises(InvalidSetting, match="open with another tokenizer"):
        await engine.session("s", tokenizer=lambda text: 1)
    await engine.close_session("s")
    await engine.session("s", tokenizer=lambda text: 1)


async def test_an_engine_whose_close_is_cancelled_closes_every_session_first() -> None:
    store = FullFor()
    engine = Engine(store)
    for name in ("a", "b"):
        await (await engine.session(name)).emit(PlanStart())
    store.held = asyncio.get_running_loop().create_future()
    await (await engine.session("a")).emit(PlanStart())
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    closing.cancel()
    store.held.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert engine._sessions.context("a") is engine._sessions.context("b") is None


def threads_of(name: str) -> list[str]:
    return [one.name for one in threading.enumerate() if name in one.name or "release" in one.name]


def ended_within(seconds: float, name: str) -> bool:
    end = time.monotonic() + seconds
    while (left := threads_of(name)) and time.monotonic() < end:
        time.sleep(0.01)
    return not left


async def drop_one(path: Path) -> None:
    engine = await eventctx.open(path)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    for _ in range(200):
        await ctx.emit(PlanStart())


async def written(path: Path) -> int:
    async with eventctx.open(path) as engine:
        return (await names(engine)).count("plan:start")


async def test_a_dropped_engine_warns_writes_its_queue_and_ends_its_threads(tmp_path: Path) -> None:
    path = tmp_path / "dropped.db"
    await drop_one(path)
    with pytest.warns(ResourceWarning, match=r"dropped\.db was dropped without a close"):
        gc.collect()
    assert await asyncio.to_thread(ended_within, 10, "dropped.db")
    assert await written(path) == 200


@pytest.mark.slow
def test_a_program_that_forgets_to_close_ends_and_has_written_everything(tmp_path: Path) -> None:
    text = (
        "import asyncio, sys, eventctx\n"
        "from eventctx.log.events import PlanStart\n"
        "async def main():\n"
        "    ctx = await (await eventctx.open(sys.argv[1])).session('s')\n"
        "    for _ in range(200):\n"
        "        await ctx.emit(PlanStart())\n"
        "asyncio.run(main())\n"
    )
    path = tmp_path / "forgotten.db"
    program = [sys.executable, "-W", "always", "-c", text, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert "forgotten.db was dropped without a close" in done.stderr
    assert asyncio.run(written(path)) == 200


async def test_an_engine_whose_opening_fails_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    async with eventctx.open(path) as engine:
        await (await engine.session("s")).add_message(USER)
    with apsw.Connection(str(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        sought = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_streams_1'"
        (page,) = database.execute(sought).fetchone()
    data = bytearray(path.read_bytes())
    data[(page - 1) * size] ^= 1  # no page of an index begins so
    path.write_bytes(data)
    with pytest.raises(StoreUnavailable, match="the database file is damaged"):
        await eventctx.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gc.collect()
    assert threads_of("damaged.db") == []


@pytest.mark.slow
async def test_a_closed_engine_and_one_on_a_given_store_go_in_silence(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        await engine.session("s")
    store = MemoryStore()
    one = Engine(store)
    await one.session("s")
    del engine, one
    gc.collect()
    assert await names(Engine(store)) == ["session:start"]


MADE: list[dict[str, Any]] = [
    {},
    {"max_tokens": 5_000, "on_overflow": "send_floor"},
    {"policy": "truncate", "keep_recent": 7, "keep_turns": 2},
    {"policy": "importance", "recency_weight": 0.2, "importance_weight": 0.7},
    {"truncate_chars": 99, "compact_threshold": 0.7},
    {"policy": "token-budget", "max_tokens": None, "memory": False},
    {"max_messages": 9, "policy": Simple(keep_recent=3)},
]


@pytest.mark.parametrize("made", MADE, ids=str)
@pytest.mark.filterwarnings("ignore::eventctx.session.settings.UnknownSetting")
async def test_a_session_keeps_what_it_was_made_with(made: dict[str, Any]) -> None:
    engine, first = await opened(USER, **made)
    _, again = await opened(store=engine.store)
    assert (again.settings, again.policy) == (first.settings, first.policy)


async def test_a_file_keeps_them_and_a_fork_inherits_them(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s", policy="truncate", keep_recent=3, max_tokens=4_000)
        at = (await ctx.add_message(USER)).position
        await engine.fork("s", at, "fork")
    async with eventctx.open(path) as engine:
        for name in ("s", "fork"):
            again = await engine.session(name)
            assert (again.settings, again.policy) == (ctx.settings, ctx.policy)
            assert await engine.session(name, policy="truncate", keep_recent=3, max_tokens=4_000)


async def test_settings_that_are_given_hold_for_this_opening_and_a_dry_run_uses_the_first() -> None:
    engine, _ = await opened(*[USER] * 6, policy="truncate", keep_recent=2, max_tokens=4_000)
    _, other = await opened(store=engine.store, max_tokens=9_000)
    assert (other.settings.max_tokens, other.policy.name) == (9_000, "workset")
    _, again = await opened(store=engine.store)
    assert (again.settings.max_tokens, again.policy.name) == (4_000, "truncate")
    assert (await Engine(engine.store).dry_run("s", force=True)).strategy == "truncate"


OWN = SimpleNamespace(name="own", version=1, max_messages=None, propose=lambda *_: None)


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        ({"policy": OWN}, "does not hold the whole policy 'own'"),
        ({"policy": "pipeline", "policies": ["simple", "truncate"]}, "the whole policy 'pipeline'"),
        ({"policy": "summarize", "summarizer": Scripted()}, "expected summarizer="),
    ],
    ids=["object", "pipeline", "function"],
)
async def test_what_the_log_cannot_keep_is_warned_of(made: dict[str, Any], missing: str) -> None:
    engine, _ = await opened(max_tokens=5_000, **made)
    with pytest.warns(SettingsForgotten, match=missing):
        _, again = await opened(store=engine.store)
    assert (again.settings.max_tokens, again.policy.name) == (5_000, "workset")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, again = await opened(store=engine.store, **made)
    assert again.policy.name != "workset"


async def test_a_given_function_is_enough_for_a_remembered_policy() -> None:
    engine, _ = await opened(policy="summarize", summarizer=Scripted(), fan_in=3)
    _, again = await opened(store=engine.store, summarizer=Scripted())
    assert (again.policy.name, getattr(again.policy, "fan_in", None)) == ("summarize", 3)
