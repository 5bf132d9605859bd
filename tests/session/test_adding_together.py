"""Messages that are added in one append, alone or with the request, and appends that fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import ContextOverflow, InvalidMessage, StoreFull
from eventctx.log.codec import decode_event
from eventctx.log.events import MessageAdded, PlanEnd, PlanStart
from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, Expected, MessageReceipt, Receipt
from eventctx.messages.encoding import encode_message
from eventctx.session.context import Context
from eventctx.session.pending import Listener
from eventctx.session.repository import open_session
from eventctx.session.transcript import Transcript
from eventctx.stores.ack import Ack
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.projections.test_folding_together import transcripts
from tests.session.counting_store import CountingStore
from tests.session.given import ASK, calling, result
from tests.sessions import USER, user

ANSWER = {"role": "assistant", "content": "well"}


async def begun(**more: Any) -> tuple[CountingStore, Context]:
    store = CountingStore()
    ctx = await Engine(store).session("s", **more)
    await ctx.add_message(ASK)
    store.appends.clear()
    return store, ctx


def told(record: Record) -> tuple[Any, ...]:
    """What a record says, without its random ids and salts."""
    bodies = [(body.data, body.facts) for body in record.bodies]
    return decode_event(record), bodies, record.turn_id is None


async def logs(store: MemoryStore, session: str = "s") -> list[tuple[Any, ...]]:
    return [told(record) async for record in store.read(session)]


# -- as one after the other ----------------------------------------------------------------------


async def one_by_one(ctx: Context, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await ctx.add_message(message)


async def together(ctx: Context, messages: list[dict[str, Any]]) -> None:
    await ctx.add_messages(messages)


async def in_two(ctx: Context, messages: list[dict[str, Any]]) -> None:
    half = len(messages) // 2
    await ctx.add_messages(messages[:half])
    await ctx.get_messages_for_request(adding=messages[half:])


@settings(max_examples=some(15, 60))
@given(transcripts(), st.sampled_from(["by_form", "after_actions", "never"]))
async def test_a_log_is_the_same_whether_messages_are_added_one_by_one_or_together(
    messages: list[dict[str, Any]], observations: Any
) -> None:
    written: list[list[tuple[Any, ...]]] = []
    requests: list[list[dict[str, Any]]] = []
    for add in (one_by_one, together, in_two):
        store = MemoryStore()
        ctx = await Engine(store).session("s", observations=observations)
        await add(ctx, messages)
        written.append([one for one in await logs(store) if isinstance(one[0], MessageAdded)])
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


# -- in one append -------------------------------------------------------------------------------


async def test_results_and_the_request_that_brings_them_go_to_the_store_in_one_append() -> None:
    store, ctx = await begun()
    await ctx.add_message(calling("a", "b"))
    store.appends.clear()
    sent = await ctx.get_messages_for_request(adding=[result("a", "1"), result("b", "2")])
    added = ["context:message_added"] * 2
    assert store.appends == [[*added, "context:request_prepared"]]
    assert sent == [ASK, calling("a", "b"), result("a", "1"), result("b", "2")]
    assert await ctx.get_messages() == sent


async def test_a_request_that_brings_messages_verifies() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await ctx.get_messages_for_request(adding=[ASK])
        sent = await ctx.get_messages_for_request(adding=[ANSWER, ASK], tools=[{"name": "read"}])
        assert (await engine.verify("s")).ok
        *_, last = (await engine.audit("s")).requests
        view = await engine.request_view("s", position=last.position)
        assert view.verified
        assert view.messages == sent


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


async def test_what_another_process_wrote_stands_before_the_messages_and_they_are_added_once() -> (
    None
):
    store, ctx = await begun()
    other = await Engine(store).session("s")
    await other.add_message(ANSWER)
    assert await ctx.get_messages_for_request(adding=[ASK]) == [ASK, ANSWER, ASK]
    await other.add_message(ANSWER)
    assert [one.number for one in await ctx.add_messages([ASK, ASK])] == [4, 5]
    assert await ctx.get_messages() == [ASK, ANSWER, ASK, ANSWER, ASK, ASK]


# -- nothing half --------------------------------------------------------------------------------


async def test_a_message_that_is_refused_keeps_all_of_them_out() -> None:
    _, ctx = await begun()
    for adding in (ctx.add_messages, lambda rows: ctx.get_messages_for_request(adding=rows)):
        with pytest.raises(InvalidMessage):
            await adding([ANSWER, {"role": "user", "content": float("nan")}])
    assert await ctx.get_messages() == [ASK]


async def test_a_full_store_takes_neither_the_messages_nor_the_request() -> None:
    store, ctx = await begun()
    store.full = True
    with pytest.raises(StoreFull):
        await ctx.get_messages_for_request(adding=[ANSWER])
    with pytest.raises(StoreFull):
        await ctx.add_messages([ANSWER, ASK])
    store.full = False
    assert await ctx.get_messages_for_request(adding=[ASK]) == [ASK, ASK]


# -- whose they are ------------------------------------------------------------------------------


async def test_what_comes_with_a_hosts_request_belongs_to_the_iteration_before() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        host = ctx.following()
        await host.turn_began("t1")
        for adding in ([ASK], [result("a", "1")]):
            await host.iteration_began("p", "m")
            await ctx.get_messages_for_request(adding=adding, call=host)
            await host.model_answered()
            await ctx.add_message(calling("a"))
        await host.turn_ended()
        records = [one async for one in engine.records("s")]
        added = [one.iteration for one in records if one.type == "context:message_added"]
        assert added == [None, 1, 1, 2]
        sent = [one.iteration for one in records if one.type == "context:request_prepared"]
        assert sent == [1, 2]


async def test_objects_of_an_sdk_may_be_among_them() -> None:
    class Said:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return dict(ANSWER)

    _, ctx = await begun()
    await ctx.add_messages([Said(), ASK])
    assert (await ctx.get_messages_for_request(adding=[Said()]))[1:] == [ANSWER, ASK, ANSWER]


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


async def test_answers_that_are_added_wait_for_their_fold_until_the_view_is_asked_for() -> None:
    session = await open_session(MemoryStore(), "s", Listener(lambda record: None), time.time_ns)
    transcript = Transcript(session)
    for _ in range(3):
        await transcript.add_all([ANSWER])
    assert session.aggregate.unfolded_bytes == 3 * len(encode_message(ANSWER))
    assert session.aggregate.view.messages == 3
    assert session.aggregate.unfolded_bytes == 0


class Failing(MemoryStore):
    """A store whose next appends fail as a full disk makes them fail."""

    failures = 0

    def append(
        self, stream: str, drafts: Sequence[Draft], expected: Expected
    ) -> Awaitable[Appended]:
        if self.failures:
            self.failures -= 1
            return Ack.failed(StoreFull("no space left on the disk"))
        return super().append(stream, drafts, expected)


async def test_an_unwritten_activity_event_is_raised_by_the_next_awaited_call() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1  # the event rides on the message, so one append holds both
    await ctx.emit(PlanStart())
    with pytest.raises(StoreFull):
        await ctx.add_message(USER)
    await ctx.add_message(USER)
    await ctx.emit(PlanEnd())
    await ctx.close()
    types = [record.type async for record in engine.records("s")]
    assert types == ["session:start", "plan:start", "context:message_added", "plan:end"]


async def test_a_turn_that_cannot_begin_leaves_no_trace_of_itself() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    store.failures = 1
    with pytest.raises(StoreFull):
        async with ctx.turn("never"):
            raise AssertionError("the block must not run")
    await ctx.add_message(USER)
    assert [record.turn_id async for record in engine.records("s")] == [None, None]


async def test_a_failed_append_leaves_nothing_and_the_view_is_read_again() -> None:
    store = Failing()
    engine = Engine(store)
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    for call in (
        lambda: ctx.add_message({"role": "user", "content": "lost"}),
        lambda: ctx.get_messages_for_request(),
        lambda: ctx.set_messages([]),
        lambda: ctx.clear(),
        lambda: ctx.pin(0),
    ):
        store.failures = 1
        with pytest.raises(StoreFull):
            await call()
        assert await ctx.get_messages() == [USER]
        assert await ctx.get_token_count() > 0
    assert await ctx.get_messages_for_request() == [USER]
    assert (await engine.verify("s")).ok


async def test_cancelling_a_call_leaves_a_sound_session(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "c.db") as engine:
        ctx = await engine.session("s", max_tokens=2_000)
        for number in range(60):
            message = {"role": "user", "content": f"{number} " + "x" * 300}
            task = asyncio.ensure_future(
                ctx.add_message(message) if number % 3 else ctx.get_messages_for_request()
            )
            for _ in range(number % 4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await ctx.add_message(USER)
        messages = await ctx.get_messages()
        assert messages[-1] == USER
        assert (await ctx.get_messages_for_request())[-1] == USER
        assert (await engine.verify("s")).ok
