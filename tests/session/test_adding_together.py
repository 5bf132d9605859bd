"""Messages that are added in one append, alone or with the request, and appends that fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidMessage, StoreFull
from eventctx.log.codec import decode_event
from eventctx.log.events import PlanStart
from eventctx.log.store import MessageReceipt, Receipt
from eventctx.session.context import Context
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.projections.test_folding_together import transcripts
from tests.session.counting_store import CountingStore
from tests.session.given import ASK, calling, opened, prove, records_of, result, two_processes
from tests.sessions import USER, user

ANSWER = {"role": "assistant", "content": "well"}


async def begun(**more: Any) -> tuple[CountingStore, Context]:
    store = CountingStore()
    _, ctx = await opened(ASK, store=store, **more)
    store.appends.clear()
    return store, ctx


async def one_by_one(ctx: Context, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await ctx.add_message(message)


async def in_two(ctx: Context, messages: list[dict[str, Any]]) -> None:
    half = len(messages) // 2
    await ctx.add_messages(messages[:half])
    await ctx.get_messages_for_request(adding=messages[half:])


@settings(max_examples=some(15, 60))
@given(transcripts(), st.sampled_from(["by_form", "after_actions", "never"]))
async def test_a_log_is_the_same_whether_messages_are_added_one_by_one_or_together(
    messages: list[dict[str, Any]], observations: Any
) -> None:
    written: list[Any] = []
    requests: list[list[dict[str, Any]]] = []
    for add in (one_by_one, Context.add_messages, in_two):
        store = MemoryStore()
        ctx = await Engine(store).session("s", observations=observations)
        await add(ctx, messages)
        added = await records_of(store, kind="context:message_added")
        # What a record says, without its random ids and salts.
        bodies = [[(body.data, body.facts) for body in record.bodies] for record in added]
        events = [(decode_event(record), record.turn_id is None) for record in added]
        written.append((events, bodies))
        requests.append(await ctx.get_messages_for_request())
        assert await ctx.get_messages() == messages
    assert written[0] == written[1] == written[2]
    assert requests[0] == requests[1] == requests[2]


async def test_receipts_say_where_each_message_stands_also_behind_what_rides() -> None:
    _, ctx = await begun()
    await ctx.emit(PlanStart())
    receipts = await ctx.add_messages([calling("a", "b"), result("a", "1"), result("b", "2")])
    assert [(one.position, one.number) for one in receipts] == [(3, 1), (4, 2), (5, 3)]
    assert await ctx.add_messages([]) == []


async def test_results_and_the_request_that_brings_them_go_to_the_store_in_one_append() -> None:
    store, ctx = await begun()
    await ctx.add_message(calling("a", "b"))
    store.appends.clear()
    done = [result("a", "1"), result("b", "2")]
    sent = await ctx.get_messages_for_request(adding=done, tools=[{"name": "read"}])
    added = ["context:message_added"] * 2
    tools = ["context:request_content"]
    assert store.appends == [[*added, *tools, "context:request_prepared"]]
    assert sent == [ASK, calling("a", "b"), *done] == await ctx.get_messages()
    engine = Engine(store)
    (last,) = (await engine.audit("s")).requests
    assert (await engine.request_view("s", position=last.position)).messages == sent
    await prove(engine)


async def test_messages_that_a_compaction_is_about_are_on_disk_before_it() -> None:
    store, ctx = await begun(max_tokens=2_000)
    words = [{"role": "user", "content": f"{n} " + "word " * 300} for n in range(8)]
    await ctx.get_messages_for_request(adding=words)
    assert store.appends[0] == ["context:message_added"] * 8
    assert store.appends[1][0] == "context:pre_compact"
    assert await ctx.get_messages() == [ASK, *words]


async def test_messages_of_a_request_that_overflows_are_added_once() -> None:
    _, ctx = await begun(max_tokens=1_000)
    long = {"role": "user", "content": "word " * 3_000}
    with pytest.raises(ContextOverflow):
        await ctx.get_messages_for_request(adding=[long])
    assert await ctx.get_messages() == [ASK, long]


async def test_what_another_process_wrote_stands_before_what_is_added_once() -> None:
    engine, ctx, other = await two_processes(ASK)
    await other.add_message(ANSWER)
    assert await ctx.get_messages_for_request(adding=[ASK]) == [ASK, ANSWER, ASK]
    await other.add_message(ANSWER)
    assert [one.number for one in await ctx.add_messages([ASK, ASK])] == [4, 5]
    await other.add_message(ANSWER)
    await ctx.add_message(ASK)
    rows = [ASK, ANSWER, ASK, ANSWER, ASK, ASK, ANSWER, ASK]
    assert await ctx.get_messages() == await other.get_messages() == rows
    assert await ctx.get_messages_for_request() == rows
    assert await other.get_messages_for_request() == rows
    assert (await engine.verify("s")).ok


async def test_a_refused_message_or_a_full_store_keeps_all_of_them_out() -> None:
    store, ctx = await begun()
    for adding in (ctx.add_messages, lambda rows: ctx.get_messages_for_request(adding=rows)):
        with pytest.raises(InvalidMessage):
            await adding([ANSWER, {"role": "user", "content": float("nan")}])
        store.full = True
        with pytest.raises(StoreFull):
            await adding([ANSWER, ASK])
        store.full = False
    assert await ctx.get_messages_for_request(adding=[ASK]) == [ASK, ASK]


async def test_what_comes_with_a_hosts_request_belongs_to_the_iteration_before() -> None:
    engine, ctx = await opened()
    host = ctx.following()
    await host.turn_began("t1")
    for adding in ([ASK], [result("a", "1")]):
        await host.iteration_began("p", "m")
        await ctx.get_messages_for_request(adding=adding, call=host)
        await host.model_answered()
        await ctx.add_message(calling("a"))
    await host.turn_ended()
    found = [(one.type, one.iteration) async for one in engine.records("s")]
    assert [at for kind, at in found if kind == "context:message_added"] == [None, 1, 1, 2]
    assert [at for kind, at in found if kind == "context:request_prepared"] == [1, 2]


async def test_objects_of_an_sdk_may_be_among_them() -> None:
    said: Any = SimpleNamespace(model_dump=lambda **_: dict(ANSWER))
    _, ctx = await begun()
    await ctx.add_messages([said, ASK])
    assert (await ctx.get_messages_for_request(adding=[said]))[1:] == [ANSWER, ASK, ANSWER]


async def test_numbers_go_on_behind_a_set_a_clear_and_in_a_fork_and_name_what_is_pinned() -> None:
    engine, ctx = await opened(user("a"))
    second = await ctx.add_message(user("b"), observation=True)
    assert second.number == 1
    await ctx.set_messages([user("a"), user("b"), user("c")])
    assert (await ctx.add_message(user("d"))).number == 3
    await ctx.pin(3)
    why = await engine.why("s", 3)
    assert (why.message, why.pinned) == (user("d"), True)
    await engine.fork("s", second.position, "fork")
    assert (await (await engine.session("fork")).add_message(user("d"))).number == 2
    await ctx.clear()
    assert (await ctx.add_message(user("e"))).number == 4
    assert [one.number for one in await engine.transcript("s")] == [4]


async def test_the_number_is_no_part_of_what_a_receipt_proves() -> None:
    engine, ctx = await opened()
    receipt = await ctx.add_message(USER)
    plain = Receipt(receipt.stream, receipt.position, receipt.digest)
    assert isinstance(receipt, MessageReceipt)
    assert receipt == plain == Receipt.parse(str(receipt))
    assert hash(receipt) == hash(plain)
    assert receipt != Receipt(receipt.stream, receipt.position + 1, receipt.digest)
    assert (await engine.verify("s", receipt)).ok


async def test_a_failed_append_leaves_nothing_and_the_view_is_read_again() -> None:
    store = CountingStore()
    engine, ctx = await opened(store=store)
    store.full = True
    with pytest.raises(StoreFull):
        async with ctx.turn("never"):
            raise AssertionError("the block must not run")
    store.full = False
    await ctx.add_message(USER)
    assert [record.turn_id async for record in engine.records("s")] == [None, None]
    assert await ctx.get_messages() == [USER]  # held from here on
    for call in (
        lambda: ctx.add_message({"role": "user", "content": "lost"}),
        lambda: ctx.get_messages_for_request(),
        lambda: ctx.set_messages([]),
        lambda: ctx.clear(),
        lambda: ctx.pin(0),
    ):
        store.full = True
        with pytest.raises(StoreFull):
            await call()
        store.full = False
        assert await ctx.get_messages() == [USER]
        assert await ctx.get_token_count() > 0
    await ctx.add_message(ANSWER)
    assert await ctx.get_messages_for_request() == await ctx.get_messages() == [USER, ANSWER]
    assert (await engine.verify("s")).ok
