"""What the ledger keeps between questions makes no difference to any answer, and goes with a text.

A second store object on the same records stands for a process that keeps nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventctx import Context
from eventctx.engine import Engine
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.log.naming import RequestName
from eventctx.log.store import EventStore
from eventctx.queries import key_frames
from eventctx.queries.explaining import NOW
from eventctx.queries.instruction_reading import KeptDemands, instructions_of
from eventctx.queries.key_frames import KeyFrames
from tests.how_much import some
from tests.queries.lost.test_any_session import STEP, play
from tests.sessions import with_frames

EVERY = 5
SOME = st.one_of(
    STEP,
    st.tuples(st.just("erase"), st.integers(0, 9)),
    st.tuples(st.just("withdraw"), st.integers(0, 9)),
    st.tuples(st.just("ask"), st.none()),
)


async def same(store: EventStore, selector: RequestName = NOW) -> None:
    found = await instructions_of(store, "s", selector)
    frames = key_frames._of_stores[store]
    key_frames._of_stores[store] = KeyFrames(store)
    try:
        plain = await instructions_of(store, "s", selector)
    finally:
        key_frames._of_stores[store] = frames
    assert msgspec.json.encode(found) == msgspec.json.encode(plain)


async def and_ask(engine: Engine, ctx: Context, what: str, value: Any) -> None:
    with_frames(engine.store, EVERY)
    if what == "erase":
        with contextlib.suppress(InvalidSetting):
            await engine.erase("s", [value], reason="asked for")
    elif what == "withdraw":
        with contextlib.suppress(InvalidSetting, NoSuchDemand, AlreadyTakenBack):
            await ctx.withdraw_instruction(value, 1)
    await ctx.get_messages_for_request()
    if what in ("ask", "erase", "compact"):
        await same(engine.store)


@settings(max_examples=some(15, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(SOME, min_size=6, max_size=24))
def test_a_ledger_from_key_frames_is_the_ledger_from_zero(steps: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        engine = await play(steps, and_ask)
        now = (await key_frames.timeline_at(engine.store, "s")).changes
        await same(engine.store)
        for one in reversed(now.time.requests[:]):
            await same(engine.store, RequestName(position=one.position))

    asyncio.run(run())


async def test_nothing_stays_in_memory_of_a_demand_that_was_erased() -> None:
    engine = await play([("say", "Never touch the migrations.")] * 6, and_ask)
    store = engine.store
    await engine.instructions("s")
    found = with_frames(store, EVERY)._held["s"].beside[KeptDemands]
    assert isinstance(found, KeptDemands)
    assert any(found.demands.values())
    kept = weakref.ref(found)
    del found
    await engine.erase("s", [0], reason="asked for")
    gc.collect()
    assert kept() is None
    assert (await engine.instructions("s")).erased == 1
