"""The number that an added message gets, as its receipt says."""

from __future__ import annotations

import asyncio

import eventctx
from eventctx.engine import Engine
from eventctx.log.events import PlanStart
from eventctx.log.store import MessageReceipt, Receipt
from eventctx.session.aggregate import MAX_UNREAD
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER, user


async def numbered(engine: Engine, session: str) -> dict[int, str]:
    """The texts of a session's messages by number."""
    found = await engine.transcript(session)
    return {one.number: one.message["content"] for one in found if one.message is not None}


async def test_a_message_can_be_pinned_by_its_receipt() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        for _ in range(3):
            await ctx.add_message(USER)
        receipt = await ctx.add_message(user("keep this"))
        assert receipt.number == 3
        await ctx.pin(receipt.number)
        why = await engine.why("s", receipt.number)
        assert why.message == user("keep this")
        assert why.pinned


async def test_numbers_go_on_behind_a_set_and_a_clear() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message(user("a"))
        await ctx.set_messages([user("a"), user("b"), user("c")])
        assert (await ctx.add_message(user("d"))).number == 3
        await ctx.clear()
        assert (await ctx.add_message(user("e"))).number == 4
        assert await numbered(engine, "s") == {4: "e"}


async def test_a_fork_counts_on_from_where_it_began() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message(user("a"))
        at = (await ctx.add_message(user("b"))).position
        await ctx.add_message(user("c"))
        await engine.fork("s", at, "fork")
        fork = await engine.session("fork")
        assert (await fork.add_message(user("d"))).number == 2


async def test_messages_of_several_tasks_and_processes_know_their_own_numbers() -> None:
    store = MemoryStore()
    ours, theirs = Engine(store), Engine(store)
    contexts = [await ours.session("s"), await theirs.session("s")]
    got: dict[int, str] = {}

    async def add(ctx: eventctx.Context, text: str) -> None:
        await ctx.emit(PlanStart())
        receipt = await ctx.add_message(user(text))
        assert receipt.number not in got
        got[receipt.number] = text

    for attempt in range(20):
        adds = [add(ctx, f"{attempt}.{n}.{i}") for i, ctx in enumerate(contexts) for n in range(4)]
        await asyncio.gather(*adds)
    assert got == await numbered(ours, "s")


async def test_a_session_that_was_evicted_still_counts() -> None:
    engine = Engine(MemoryStore(), most_open_sessions=1)
    ctx = await engine.session("s")
    await ctx.add_message(user("a"))
    other = await engine.session("other")
    await other.add_message(user("b"))
    assert (await ctx.add_message(user("c"))).number == 1
    for _ in range(MAX_UNREAD):
        await ctx.add_message(USER)
    assert (await ctx.add_message(user("d"))).number == MAX_UNREAD + 2
    await engine.close()


async def test_an_observation_has_a_number_too() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.add_message(USER)
        receipt = await ctx.add_message(user("exit code 0"), observation=True)
        assert receipt.number == 1


async def test_the_number_is_no_part_of_what_a_receipt_proves() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        receipt = await ctx.add_message(USER)
        plain = Receipt(receipt.stream, receipt.position, receipt.digest)
        assert isinstance(receipt, MessageReceipt)
        assert receipt == plain == Receipt.parse(str(receipt))
        assert hash(receipt) == hash(plain)
        assert receipt != Receipt(receipt.stream, receipt.position + 1, receipt.digest)
        assert (await engine.verify("s", receipt)).ok
