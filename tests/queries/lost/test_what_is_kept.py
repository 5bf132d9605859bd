"""What reports keep between questions makes no difference to any answer, and goes with the texts.

Every answer is compared with that of a process that has kept nothing yet, and with the view that
it is about: what is shown there, word for word.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx import Context
from eventctx.engine import Engine
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.log.naming import RequestName
from eventctx.log.record import Body
from eventctx.log.store import Address, EventStore
from eventctx.queries import key_frames
from eventctx.queries.explaining import NOW
from eventctx.queries.instruction_reading import instructions_of
from eventctx.queries.lost.answers import Lost
from eventctx.queries.lost.reading import what_left
from eventctx.queries.lost.session_index import SessionIndex
from eventctx.queries.requests import address_of, request_at
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.lost.given import AFTER, BEFORE, session, user
from tests.queries.lost.test_any_session import STEP, check_against_view, check_report, play
from tests.sessions import with_frames

EVERY = 5

OTHERS = [st.tuples(st.just(what), st.integers(0, 9)) for what in ("erase", "withdraw", "ask")]
SOME = st.one_of(STEP, *OTHERS)
STEPS = st.lists(SOME, min_size=6, max_size=24)


async def answers(store: EventStore, **asked: Any) -> tuple[Lost, bytes]:
    """What left, and this with the ledger of instructions as JSON."""
    lost = await what_left(store, "s", **asked)
    ledger = None
    if "compaction" not in asked:
        ledger = await instructions_of(store, "s", asked.get("selector", NOW))
    return lost, msgspec.json.encode([lost, ledger])


async def same(store: EventStore, **asked: Any) -> Lost:
    found, said = await answers(store, **asked)
    kept = key_frames._of_stores.pop(store, None)
    _, fresh = await answers(store, **asked)
    if kept is not None:
        key_frames._of_stores[store] = kept
    assert said == fresh
    check_report(found)
    if found.about != "compaction":  # else messages are those in view before it
        known = (await key_frames.timeline_at(store, "s")).changes.origins[: found.messages.total]
        bodies = await store.bodies("s", [address_of(one.ref) for one in known])
        assert found.messages.erased == sum(body.data is None for body in bodies)
    return found


async def same_at_every_moment(store: EventStore) -> None:
    now = (await key_frames.timeline_at(store, "s")).changes
    await same(store)
    for number in range(1, len(now.compacted) + 1):
        await same(store, compaction=number)
    for one in now.time.requests:
        found = await same(store, selector=RequestName(position=one.position))
        view = await request_at(store, "s", one.position)
        check_against_view(found, view.messages)


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


@settings(max_examples=some(8, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_an_index_that_grew_answers_as_one_that_was_just_made(steps: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        engine = await play(steps, and_ask)
        await same_at_every_moment(engine.store)

    asyncio.run(run())


class CountingBodies(MemoryStore):
    """Counts the bodies that are read."""

    read_bodies = 0

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        self.read_bodies += len(addresses)
        return await super().bodies(stream, addresses)


async def filled(store: EventStore) -> tuple[Engine, Context]:
    with_frames(store, EVERY)
    return await session(*BEFORE, *AFTER, store=store)


def index_of(store: EventStore) -> SessionIndex:
    found = key_frames.key_frames(store)._held["s"].beside[SessionIndex]
    assert isinstance(found, SessionIndex)
    return found


async def test_each_body_is_read_once_and_then_only_those_that_came() -> None:
    store = CountingBodies()
    engine, ctx = await filled(store)
    store.read_bodies = 0
    for _ in range(3):
        await engine.lost("s")
        assert store.read_bodies == len(BEFORE) + len(AFTER)
    await ctx.add_message(user("And now the views."))
    await engine.lost("s")
    assert store.read_bodies == len(BEFORE) + len(AFTER) + 1


@pytest.mark.slow
@pytest.mark.parametrize("destroyed", ["an erasure", "a deletion"])
async def test_nothing_stays_in_memory_of_what_was_destroyed(destroyed: str) -> None:
    store = MemoryStore()
    engine, _ = await filled(store)
    await engine.lost("s")
    kept = weakref.ref(index_of(store))
    if destroyed == "an erasure":
        await engine.erase("s", [0], reason="asked for")
    else:
        await engine.delete("s", reason="asked for")
    gc.collect()
    assert kept() is None


async def test_an_erasure_by_another_process_is_seen_by_the_next_question() -> None:
    store = MemoryStore()
    engine, _ = await filled(store)
    assert any("migrations" in one.text for one in (await engine.lost("s")).items)
    kept = weakref.ref(index_of(store))
    frames = key_frames._of_stores.pop(store)  # of this process; the other one has its own
    await Engine(store).erase("s", [0], reason="asked for")
    key_frames._of_stores[store] = frames
    found = await engine.lost("s")
    assert not any("migrations" in one.text for one in found.items)
    gc.collect()
    assert kept() is None


@pytest.mark.slow
async def test_an_erasure_reaches_what_other_readers_of_the_file_keep(tmp_path: Path) -> None:
    url = f"{tmp_path}/store.db"
    async with eventctx.open(url, receipts=False) as engine, eventctx.open(url) as reader:
        assert engine.store is not reader.store
        with_frames(reader.store, EVERY)
        await (await engine.session("s")).add_messages(BEFORE)
        await reader.lost("s")
        kept = weakref.ref(index_of(reader.store))
        await engine.erase("s", [0], reason="asked for")
        gc.collect()
        assert kept() is None


async def test_what_is_kept_of_many_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_frames, "MOST_BESIDE", 25)
    engine = Engine(MemoryStore())
    with_frames(engine.store, EVERY)
    for name in ("a", "b", "c"):
        await (await engine.session(name)).add_messages(BEFORE)
        await engine.lost(name)
    held = key_frames.key_frames(engine.store)._held
    assert [name for name, frames in held.items() if frames.beside] == ["b", "c"]


NAMES = ("total_in_cents", "shop/models.py:12", "x-request-4711ab", "balance_in_cents")
CALL_IDS = ("a", "b")
VALUES = {"run": ("make a", "grep x"), "read": ("/r/m.py", "m.py"), "ok": NAMES, "failed": NAMES}
CALLS = [
    st.tuples(st.just(what), st.sampled_from(CALL_IDS), st.sampled_from(values))
    for what, values in VALUES.items()
]
PART = st.one_of(*CALLS, st.tuples(st.just("text"), st.just(""), st.sampled_from(NAMES)))
ROW = st.tuples(st.booleans(), st.lists(PART, min_size=1, max_size=3))


def block_of(what: str, call_id: str, value: str) -> dict[str, Any]:
    match what:
        case "text":
            return {"type": "text", "text": f"I'll use {value} instead of the old one."}
        case "run" | "read":
            name, key = ("Bash", "command") if what == "run" else ("Read", "file_path")
            return {"type": "tool_use", "id": call_id, "name": name, "input": {key: value}}
    text = f"Exit code 1\nError: no {value}" if what == "failed" else value
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {**block, "is_error": what == "failed"}


@settings(max_examples=some(25, 150), deadline=None)
@given(st.lists(ROW, min_size=2, max_size=14), st.integers(0, 13))
def test_ids_that_come_again_and_results_out_of_place_make_no_difference(
    rows: list[tuple[bool, list[tuple[str, str, str]]]], cleared: int
) -> None:
    async def run() -> None:
        store = MemoryStore()
        with_frames(store, EVERY)
        ctx = await Engine(store).session("s")
        for place, (by_model, parts) in enumerate(rows):
            row = {"role": "assistant" if by_model else "user"}
            await ctx.add_message({**row, "content": [block_of(*part) for part in parts]})
            if place == cleared:
                await ctx.set_messages((await ctx.get_messages())[place // 2 :])
            await same(store)

    asyncio.run(run())
