"""One session from several tasks, threads and processes, after a crash and with damaged caches."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.engine import Engine, open_engine
from eventctx.errors import (
    DecodeError,
    EventctxError,
    LogCorrupted,
    SessionWasDeleted,
    WrongExpectedVersion,
)
from eventctx.log import events
from eventctx.log.integrity import sound_bodies
from eventctx.log.record import Body, Draft
from eventctx.log.store import ANY, Address, Appended, StreamInfo
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections.view.snapshot import NAME as SNAPSHOT
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.session.aggregate import SNAPSHOT_EVERY
from eventctx.session.contents import MAX_BYTES, MAX_NEW
from eventctx.session.context import Context
from eventctx.session.host_requests import ObservedRequest
from eventctx.session.host_turns import HostReporter
from eventctx.session.pending import Listener
from eventctx.session.repository import load, open_session
from eventctx.session.transcript import Transcript
from eventctx.stores.memory import MemoryStore
from tests.session.given import in_threads, opened, texts, two_processes
from tests.sessions import USER, filled, model, names, user


async def test_calls_of_one_process_keep_their_order_and_know_their_numbers() -> None:
    engine, a, b = await two_processes()
    numbers: dict[int, str] = {}

    async def add(ctx: Context, text: str) -> None:
        await ctx.emit(events.PlanStart())
        receipt = await ctx.add_message(user(text))
        assert receipt.number not in numbers
        numbers[receipt.number] = text

    for attempt in range(20):
        adds = [
            add(ctx, f"{name}.{attempt}.{n}")
            for n in range(4)
            for name, ctx in (("a", a), ("b", b))
        ]
        await asyncio.gather(*adds)
    rows = await engine.transcript("s")
    assert numbers == {one.number: one.message and one.message["content"] for one in rows}
    for name in "ab":
        mine = [text for text in texts(await a.get_messages()) if text.startswith(name)]
        assert mine == [f"{name}.{attempt}.{n}" for attempt in range(20) for n in range(4)]
    times = [record.time async for record in engine.records("s")]
    assert times == sorted(times)


async def test_turns_of_several_processes_have_different_numbers_and_their_records_inside() -> None:
    engine, a, b = await two_processes()

    async def turns(ctx: eventctx.Context) -> list[int]:
        numbers = []
        for _ in range(5):
            async with ctx.turn() as turn:
                await ctx.add_message(USER)
                numbers.append(turn.number)
        return numbers

    first, second = await asyncio.gather(turns(a), turns(b))
    assert sorted(first + second) == list(range(1, 11))
    await a.close()
    await b.close()
    seen: dict[str, list[str]] = {}
    async for record in engine.records("s"):
        if record.turn_id is not None:
            seen.setdefault(record.turn_id, []).append(record.type)
    expected = ["prompt:submit", "context:message_added", "prompt:complete"]
    assert list(seen.values()) == [expected] * 10


async def test_a_set_a_clear_and_a_compaction_raise_when_another_process_wrote_unseen() -> None:
    _, ctx, other = await two_processes(USER)
    await other.get_messages()
    for act in (ctx.clear, ctx.compact, lambda: ctx.set_messages([USER])):
        await other.add_message(user("theirs"))
        before = await other.get_messages()
        with pytest.raises(WrongExpectedVersion, match=r"expected version \d+, found \d+"):
            await act()
        assert await ctx.get_messages() == before
    await ctx.set_messages([USER])
    assert await other.get_messages() == [USER]
    await ctx.clear()
    assert await other.get_messages() == []


@pytest.mark.slow
async def test_a_long_session_opens_from_a_snapshot_and_its_tail(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with eventctx.open(path) as engine:
        ctx = await filled(engine, rounds=400, max_tokens=20_000)
        view = await ctx.get_messages_for_request()
    async with eventctx.open(path) as engine:
        snapshot = await engine.store.load_snapshot("s", SNAPSHOT)
        head = await engine.store.head("s")
        assert snapshot and head and head.head - snapshot.position < 10
        assert len(snapshot.data) < 10_000
        ctx = await engine.session("s", max_tokens=20_000)
        assert await ctx.get_messages_for_request() == view


async def test_a_message_waits_for_its_fold_where_no_snapshot_is_due() -> None:
    session = await open_session(MemoryStore(), "s", Listener(lambda record: None), time.time_ns)
    transcript = Transcript(session)
    for number in range(3 * SNAPSHOT_EVERY):
        await transcript.add(user(str(number)))
    waiting = session.aggregate.unfolded_bytes
    await transcript.add_all([USER, USER])
    assert session.aggregate.unfolded_bytes == waiting + 2 * len(encode_message(USER))
    assert session.aggregate.view.messages == 3 * SNAPSHOT_EVERY + 2
    assert session.aggregate.unfolded_bytes == 0


async def test_a_session_of_messages_alone_gets_a_snapshot_each_time_it_doubles() -> None:
    engine, ctx = await opened()
    found: dict[int, None] = {}
    for number in range(8 * SNAPSHOT_EVERY):
        await ctx.add_message(user(str(number)))
        if snapshot := await engine.store.load_snapshot("s", SNAPSHOT):
            found[snapshot.position // SNAPSHOT_EVERY] = None
    assert list(found) == [0, 1, 3, 7]


@pytest.mark.parametrize("store", ["memory://", "file"])
async def test_threads_find_what_was_acknowledged_to_them(store: str, tmp_path: Path) -> None:
    async with open_engine(tmp_path / "log.db" if store == "file" else store) as engine:
        ctx = await engine.session("s")

        async def work(name: str) -> None:
            for number in range(25):
                await ctx.add_message(user(f"{name} {number}"))
                await ctx.get_messages_for_request()
                mine = [one for one in texts(await ctx.get_messages()) if one.startswith(name)]
                assert mine == [f"{name} {n}" for n in range(number + 1)]

        await asyncio.gather(in_threads([partial(work, name) for name in "abcde"]), work("here"))
        found = await ctx.get_messages()
        assert found == await (await Engine(engine.store).session("s")).get_messages()
        assert len(found) == 150


@pytest.mark.slow
async def test_bodies_kept_in_memory_have_a_bound() -> None:
    ctx = await Engine(MemoryStore()).session("s", max_tokens=10**9)
    most = 0
    for number in range(24):
        await ctx.add_message(user(f"{number} " + "x" * 2**21))
        assert ctx._session.aggregate.view.messages == number + 1
        most = max(most, held(ctx))
    assert 2**21 < most <= MAX_NEW
    assert len(await ctx.get_messages_for_request()) == 24
    assert 2**24 < held(ctx) <= MAX_BYTES


def held(ctx: Context) -> int:
    """Bytes of bodies that a session really has in memory."""
    bodies = ctx._session.bodies
    return sum(len(data or b"") for kept in (bodies._held, bodies._new) for data in kept.values())


async def asking(engine: Engine) -> tuple[Context, HostReporter]:
    """A session whose host is about to make a request in an iteration of a turn."""
    ctx = await engine.session("s")
    await ctx.add_message(USER)
    host = ctx.following()
    await host.turn_began()
    await host.iteration_began()
    return ctx, host


@pytest.mark.parametrize("by_the_program", [True, False])
async def test_of_two_requests_at_once_one_begins_the_call(
    by_the_program: bool, tmp_path: Path
) -> None:
    async with open_engine(tmp_path / "log.db") as engine:
        ctx, host = await asking(engine)
        both: list[Coroutine[Any, Any, Any]]
        if by_the_program:
            own = ObservedRequest("openai-chat-1", [USER])
            both = [ctx.observe_request(own, call=host) for _ in range(2)]
        else:
            both = [ctx.get_messages_for_request(call=host) for _ in range(2)]
        one, other = await asyncio.wait_for(asyncio.gather(*both), 60)
        assert one != other if by_the_program else one == other == [USER]
        await host.model_answered()
        await host.turn_ended()
        await ctx.close()
        made = await names(engine)
        assert made.count("context:request_prepared") == 2
        assert made.count("provider:request") == made.count("provider:response") == 1


async def test_a_call_may_end_while_its_beginning_goes_to_the_disk(tmp_path: Path) -> None:
    async with open_engine(tmp_path / "log.db") as engine:
        ctx, host = await asking(engine)

        async def another_run() -> None:
            await host.iteration_began()
            await ctx.get_messages_for_request(call=host)

        both = (ctx.get_messages_for_request(call=host), another_run())
        await asyncio.wait_for(asyncio.gather(*both), 60)
        await host.turn_ended()
        await ctx.close()
        made = await names(engine)
        assert made.count("provider:request") == 2
        assert made.count("provider:response") + made.count("provider:error") == 2


class BusyStore(MemoryStore):
    """Lets other tasks run before each answer, for as long as ``chance`` says."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def _wait(self, most: int) -> None:
        for _ in range(self._chance.randrange(most)):
            await asyncio.sleep(0)

    def append(self, stream: str, *rest: Any) -> Awaitable[Appended]:
        return asyncio.ensure_future(self._acknowledged(super().append(stream, *rest)))

    async def _acknowledged(self, ack: Awaitable[Appended]) -> Appended:
        await self._wait(8)
        return await ack

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        await self._wait(6)
        return await super().bodies(stream, addresses)

    async def head(self, stream: str) -> StreamInfo | None:
        await self._wait(4)
        return await super().head(stream)


async def _one_step(ctx: eventctx.Context, chance: random.Random, name: str) -> None:
    step = chance.random()
    if step < 0.5:
        words = "word " * chance.choice((3, 300))
        await ctx.add_message(user(f"{name} You must never do it. {words}"))
    elif step < 0.7:
        await ctx.get_messages_for_request()
    elif step < 0.78:
        await ctx.compact()
    elif step < 0.82:
        await ctx.clear()
    elif step < 0.9:
        await ctx.set_messages([user(f"set {name}")])
    else:
        await ctx.get_messages()


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "seed"), [("workset", 0), ("truncate", 3), ("ladder", 4)])
async def test_processes_on_one_session_meet_conflicts_at_most(policy: str, seed: int) -> None:
    store = BusyStore(random.Random(seed))  # noqa: S311
    engines = [Engine(store) for _ in range(3)]

    async def work(engine: Engine, number: int) -> None:
        chance = random.Random(seed * 100 + number)  # noqa: S311
        ctx = await engine.session("s", max_tokens=2_500, on_overflow="send_floor", policy=policy)
        for _ in range(25):
            await store._wait(1 + chance.randrange(4))
            try:
                await _one_step(ctx, chance, str(number))
            except WrongExpectedVersion:
                continue

    await asyncio.gather(
        *[work(one, 10 * place + task) for place, one in enumerate(engines) for task in range(4)]
    )
    assert (await engines[0].verify("s")).ok


async def test_a_body_beyond_the_log_or_of_a_deleted_session_is_no_damage() -> None:
    engine, ctx = await opened(USER)
    for address, error in ((Address(7, 0), WrongExpectedVersion), (Address(0, 5), LogCorrupted)):
        with pytest.raises(error):
            await sound_bodies(engine.store, "s", [address])
    await ctx.close()
    await engine.delete("s")
    with pytest.raises(SessionWasDeleted):
        await sound_bodies(engine.store, "s", [Address(1, 0)])


# -- damaged caches, later versions and edited facts ---------------------------------------------


async def compacted() -> Engine:
    engine, ctx = await opened(max_tokens=2_000)
    for number in range(40):
        said, answered = f"question {number} " + "x" * 200, f"answer {number} " + "y" * 200
        await ctx.add_messages([user(said), model(answered)])
        await ctx.get_messages_for_request()
    return engine


@pytest.mark.slow
async def test_a_snapshot_that_is_damaged_or_does_not_fit_the_log_is_as_good_as_none() -> None:
    store: Any = (await compacted()).store
    snapshot, whole = await store.load_snapshot("s", SNAPSHOT), await load(store, "s")
    assert snapshot and whole
    draw = random.Random(3)  # noqa: S311
    broken = [b"", b"\x00\xff\x00", snapshot.data[:-5], snapshot.data + b"x"]
    for _ in range(200):
        data = bytearray(snapshot.data)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        broken.append(bytes(data))
    changes = [{"digest": bytes(32)}, {"version": 99}, {"position": 10**6}]
    for change in [*changes, *[{"data": data} for data in broken]]:
        store.save_snapshot("s", SNAPSHOT, msgspec.structs.replace(snapshot, **change))
        again = await load(store, "s")
        assert again and again.view.layout.measure() == whole.view.layout.measure()
        assert again.snapshot == -1


async def test_facts_that_somebody_edited_in_an_export_are_read_anew() -> None:
    engine, _ = await opened(user("go"), user("next"))
    _, *lines = [line async for line in export_lines(engine.store, await engine.store.head("s"))]
    real = encode_facts(read_facts(user("go")))
    forged = encode_facts(read_facts({"role": "tool", "tool_call_id": "x", "content": "go"}))
    encoded = [msgspec.json.encode(facts)[1:-1] for facts in (real, forged)]
    assert encoded[0] in lines[1]
    lines[1] = lines[1].replace(encoded[0], encoded[1])
    other = Engine(MemoryStore())
    await import_drafts(other.store, "s", read_drafts(lines))
    again = await other.session("s")
    assert texts(await again.get_messages_for_request()) == ["go", "next"]


@pytest.mark.parametrize(
    "name", ["context:messages_set", "context:post_compact", "prompt:submit", "usage:reported"]
)
async def test_a_known_event_of_a_later_release_is_a_typed_error(name: str) -> None:
    engine = await compacted()
    draft = Draft(os.urandom(16), name, 99, 0, b'{"event":"%s","new":1}' % name.encode())
    await engine.store.append("s", [draft], ANY)
    with pytest.raises(DecodeError, match=r"version 99 was written by a later release"):
        await engine.audit("s")
    assert (await engine.verify("s")).ok


async def test_damaged_facts_are_a_typed_error() -> None:
    engine = await compacted()
    first, *_ = [one async for one in engine.records("s") if one.bodies]
    broken = msgspec.structs.replace(first.bodies[0], facts=b"\xc1garbage")
    place: Any = engine.store._streams["s"].records  # type: ignore[attr-defined]
    place[first.position] = msgspec.structs.replace(first, bodies=(broken,))
    with pytest.raises(EventctxError, match="facts of a body are damaged"):
        await engine.audit("s")


async def test_verifying_a_session_while_it_grows_raises_no_alarm() -> None:
    engine, ctx = await opened(USER)

    async def grow() -> None:
        while True:
            await ctx.add_message(USER)
            await asyncio.sleep(0)

    growing = asyncio.create_task(grow())
    for _ in range(100):
        assert (await engine.verify("s")).ok
    assert not growing.done()
    growing.cancel()
