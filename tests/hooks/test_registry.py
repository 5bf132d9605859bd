"""Hooks hear every record without hurting anybody, and interceptors of a compaction have a say."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, UnknownEventName
from eventctx.hooks.interceptors import Interceptors
from eventctx.hooks.registry import Hooks
from eventctx.log import events as ev
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from eventctx.policies.advisers import CompactionAsked, Verdict
from tests.hooks.given import Session
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.sessions import filled


def records(count: int, session: str = "s1") -> list[Record]:
    made = Session(session)
    return [made.add(ev.MessageAdded()) for _ in range(count)]


async def published(hooks: Hooks, count: int = 1) -> None:
    for record in records(count):
        hooks.publish(record)
    await hooks.drain()


def test_wildcards_match_even_pyees_own_names_and_lower_priorities_run_first_in_their_order():
    hooks, family, everything, session = Hooks(), [], [], Session()
    hooks.on("context:*", lambda record: family.append(record.type))
    hooks.on("*", lambda record: everything.append(record.type))
    names = ["context:message_added", "plan:start", "context:later", "error", "new_listener"]
    for name in names:
        hooks.publish(session.raw(name))
    assert (family, everything) == (["context:message_added", "context:later"], names)
    hooks, heard = Hooks(), []
    for name, pattern, priority in (
        ("third", "*", 0),
        ("fourth", "context:message_added", 0),
        ("second", "context:*", -1),
        ("last", "*", 9),
        ("first", "context:message_added", -5),
    ):
        handler = functools.partial(lambda name, _: heard.append(name), name)
        hooks.on(pattern, handler, priority=priority)
    hooks.publish(*records(1))
    assert heard == ["first", "second", "third", "fourth", "last"]


def test_a_function_registered_twice_runs_once_per_record_until_it_is_unsubscribed():
    hooks, heard = Hooks(), []

    @hooks.on("*")
    def handler(record: Record) -> None:
        heard.append(record)

    first, second = records(2)
    handler(first)
    offs = [hooks.on(name, handler) for name in (*["context:message_added"] * 2, "*")]
    hooks.publish(first)
    assert heard == [first, first], "the decorator leaves the function as it is"
    for off in (*offs, *offs):
        off()
    hooks.publish(second)
    assert len(heard) == 2


def test_a_misspelt_name_is_refused_with_the_right_one_and_so_is_no_function():
    for wrong, right in [
        ("context:pre_compat", "context:pre_compact"),
        ("tool_pre", "tool:pre"),
        ("contxt:*", "context:*"),
        ("provider:responce", "provider:response"),
    ]:
        with pytest.raises(UnknownEventName, match=right.replace("*", r"\*")):
            Hooks().on(wrong, print)
        with pytest.raises(UnknownEventName):
            Hooks().on(wrong)
        with pytest.raises(InvalidSetting):
            Hooks().on("*", wrong)  # type: ignore[call-overload]


def raising(error: type[BaseException]) -> Callable[[Record], None]:
    def broken(record: Record) -> None:
        raise error

    return broken


@pytest.mark.parametrize(
    "error", [ValueError, asyncio.CancelledError, RecursionError, GeneratorExit]
)
async def test_a_raising_handler_stops_neither_the_publisher_nor_the_others(
    error: type[BaseException], caplog: pytest.LogCaptureFixture
):
    hooks, heard = Hooks(), []
    hooks.on("*", raising(error), priority=-1)
    hooks.on("*", heard.append)
    with caplog.at_level(logging.DEBUG, "eventctx.hooks"):
        await published(hooks, 3)
    ((name, count),) = hooks.stats().errors.items()
    assert (name.endswith("broken"), count, len(heard)) == (True, 3, 3)
    assert [entry.levelname for entry in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]
    assert caplog.records[0].exc_info is not None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_will_to_end_the_program_passes(error: type[BaseException]):
    hooks = Hooks()
    hooks.on("*", raising(error))
    for record in records(2):
        with pytest.raises(error):
            hooks.publish(record)


def test_a_record_published_by_a_sync_handler_comes_after_the_present_one_and_not_for_ever():
    hooks, heard = Hooks(), []
    first, second = records(2)
    stop = hooks.on("*", lambda record: hooks.publish(second) if record is first else None)
    hooks.on("*", heard.append)
    hooks.publish(first)
    assert heard == [first, second]
    stop()
    hooks.on("*", hooks.publish)
    hooks.publish(first)
    assert sum(hooks.stats().dropped.values()) == 1


async def test_async_handlers_keep_a_sessions_order_under_load():
    hooks, heard = Hooks(queue_limit=10_000), defaultdict(list)

    @hooks.on("*")
    async def slow(record: Record) -> None:
        await asyncio.sleep(0.002 if record.position % 7 == 0 else 0)
        heard[record.stream].append(record.position)

    for row in zip(*[records(200, f"s{n}") for n in range(20)], strict=True):
        for record in row:
            hooks.publish(record)
        await asyncio.sleep(0)
    assert await hooks.drain(10)
    assert heard == {f"s{n}": list(range(200)) for n in range(20)}


async def test_async_handlers_of_a_record_run_by_priority():
    hooks, heard = Hooks(), []

    def make(name: str, pauses: int):
        async def handler(record: Record) -> None:
            for _ in range(pauses):
                await asyncio.sleep(0)
            heard.append((record.position, name))

        return handler

    hooks.on("*", make("second", 0), priority=2)
    hooks.on("*", make("first", 9), priority=1)
    await published(hooks, 2)
    assert heard == [(0, "first"), (0, "second"), (1, "first"), (1, "second")]


async def test_a_hanging_handler_is_cancelled_and_stops_neither_its_session_nor_others():
    hooks, heard = Hooks(handler_timeout=LIMIT), []

    async def hanging(record: Record) -> None:
        if record.stream == "s1":
            await hang_past_the_limit()

    async def fine(record: Record) -> None:
        heard.append(record.stream)

    hooks.on("*", hanging)
    hooks.on("*", fine)
    hooks.publish(*records(1, "s1"))
    hooks.publish(*records(1, "s2"))
    assert await hooks.drain(10 * LIMIT)
    assert heard == ["s2", "s1"]
    assert list(hooks.stats().errors.values()) == [1]


def later(heard: list[int]) -> Callable[[Record], Awaitable[None]]:
    async def handler(record: Record) -> None:
        heard.append(record.position)

    return handler


@pytest.mark.parametrize("make", [later, lambda heard: lambda record: later(heard)(record)])
async def test_a_full_queue_drops_the_newest_also_of_what_a_sync_handler_returns(make: Any):
    hooks, heard = Hooks(queue_limit=3), []
    hooks.on("*", make(heard))
    await published(hooks, 10)
    stats = hooks.stats()
    assert heard == [0, 1, 2]
    assert (list(stats.dropped.values()), list(stats.delivered.values())) == ([7], [3])


async def test_drain_says_when_time_is_up_and_close_cancels_what_hangs_and_ignores_later_records():
    hooks, results = Hooks(), []

    @hooks.on("*")
    async def handler(record: Record) -> None:
        results.append(await hooks.drain())
        await hang_past_the_limit()

    hooks.publish(*records(1))
    assert not await hooks.drain(LIMIT)
    assert results == [False]
    await hooks.close(0)
    hooks, ended = Hooks(handler_timeout=None), []

    @hooks.on("*")
    async def hanging(record: Record) -> None:
        try:
            await hang_past_the_limit()
        finally:
            ended.append(record)

    first, second, third = records(3)
    hooks.publish(first)
    hooks.publish(second)
    await hooks.close(LIMIT)
    hooks.publish(third)
    await hooks.close()
    assert ended == [first]
    stats = hooks.stats()
    assert (sum(stats.errors.values()), sum(stats.dropped.values())) == (1, 1)
    assert len(asyncio.all_tasks()) == 1


async def test_handlers_run_without_the_publishers_context_variables():
    turn: ContextVar[str] = ContextVar("turn", default="none")
    hooks, heard = Hooks(), []

    @hooks.on("*")
    async def handler(record: Record) -> None:
        heard.append(turn.get())

    turn.set("t1")
    await published(hooks)
    assert heard == ["none"]


def test_what_a_loop_leaves_behind_is_counted_and_the_next_loop_goes_on():
    hooks, heard = Hooks(), []
    hooks.on("*", later(heard))
    first, second, third = records(3)

    async def publish(*some: Record, wait: bool) -> None:
        for record in some:
            hooks.publish(record)
        assert not wait or await hooks.drain(5)

    asyncio.run(publish(first, second, wait=False))
    asyncio.run(publish(third, wait=True))
    stats = hooks.stats()
    assert heard[-1] == 2
    assert sum(stats.delivered.values()) + sum(stats.dropped.values()) == 3
    gc.collect()


def test_threads_may_publish_at_once_and_without_a_loop_handlers_run_in_order_on_a_thread_of_ours():
    hooks, heard, names = Hooks(queue_limit=100_000), defaultdict(list), set()

    @hooks.on("*")
    async def handler(record: Record) -> None:
        await asyncio.sleep(0)
        heard[record.stream].append(record.position)
        names.add(threading.current_thread().name)

    def run(name: str) -> None:
        for record in records(300, name):
            hooks.publish(record)

    threads = [threading.Thread(target=run, args=(f"s{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(hooks.drain(10))
    asyncio.run(hooks.close())
    assert heard == {f"s{n}": list(range(300)) for n in range(6)}
    assert names == {"eventctx-hooks"}
    assert names.isdisjoint(one.name for one in threading.enumerate())


def test_hooks_alone_load_none_of_the_three_libraries():
    code = (
        "import sys, eventctx.hooks\n"
        "assert not {'structlog', 'opentelemetry', 'pyee'} & set(sys.modules)\n"
        "import eventctx.hooks.registry\n"
        "assert not {'structlog', 'opentelemetry'} & set(sys.modules)\n"
        "import eventctx.projections.trace.fold\n"
        "assert 'opentelemetry' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- interceptors of a compaction ------------------------------------------------------------------


PRE = "context:pre_compact"


async def pre_compacts(engine: Engine) -> list[Any]:
    return [decode_event(record) async for record in engine.records("s") if record.type == PRE]


async def test_an_interceptor_keeps_messages_through_one_compaction() -> None:
    async with eventctx.open() as engine:
        engine.intercept(PRE, lambda about: Verdict(pins=about.numbers[3:5]))
        ctx = await filled(engine, max_tokens=4_000, policy="simple")
        view = await ctx.get_messages_for_request()
        messages = await ctx.get_messages()
        assert [messages[at] in view for at in (3, 4, 7)] == [True, True, False]
        (began,) = await pre_compacts(engine)
        assert began.pins == (3, 4)


async def test_a_veto_holds_below_the_budget_and_is_not_asked_for_at_every_request() -> None:
    seen: list[CompactionAsked] = []

    async def object_(about: CompactionAsked) -> Verdict:
        seen.append(about)
        return Verdict(veto="a demo is running")

    async with eventctx.open() as engine:
        engine.intercept(PRE, object_)
        ctx = await filled(engine, 20)
        size = await ctx.get_token_count()
        for _ in range(5):
            assert len(await ctx.get_messages_for_request(round(size / 0.95))) == 41
        (row,) = (await engine.audit("s")).compactions
        told = ("skipped", "threshold", "a demo is running")
        assert (row.outcome, row.trigger, row.error) == told
        assert len(seen) == 1


async def test_a_veto_is_overruled_where_the_request_would_not_fit() -> None:
    async with eventctx.open() as engine:
        engine.intercept(PRE, lambda compaction: Verdict(veto="never"))
        ctx = await filled(engine, max_tokens=4_000)
        assert len(await ctx.get_messages_for_request()) < 61
        (row,) = (await engine.audit("s")).compactions
        assert (row.outcome, row.trigger) == ("applied", "budget")
        (began,) = await pre_compacts(engine)
        assert began.veto == "never"


async def test_a_veto_is_overruled_where_the_view_outgrew_the_budget_meanwhile() -> None:
    async with eventctx.open() as engine:
        ctx = await filled(engine, 20)
        budget = round(await ctx.get_token_count() / 0.95)

        async def slow(about: CompactionAsked) -> Verdict:
            await ctx.add_message({"role": "user", "content": "x" * 2_000})
            return Verdict(veto="not now")

        engine.intercept(PRE, slow)
        await ctx.get_messages_for_request(budget)
        (row,) = (await engine.audit("s")).requests
        assert row.tokens <= budget


async def test_interceptors_are_asked_by_priority_and_the_first_veto_counts() -> None:
    order: list[str] = []

    def says(name: str, veto: bool) -> Any:
        def answer(compaction: CompactionAsked) -> Verdict | None:
            order.append(name)
            return Verdict(veto=name) if veto else None

        return answer

    async with eventctx.open() as engine:
        engine.intercept(PRE, says("late", True), priority=5)

        @engine.intercept(PRE, priority=-1)
        async def early(compaction: CompactionAsked) -> Any:
            return says("early", True)(compaction)

        assert asyncio.iscoroutinefunction(early), "a decorator leaves the function as it is"
        stop = engine.intercept(PRE, says("gone", True))
        engine.intercept(PRE)(says("none", False))
        stop()
        result = await (await filled(engine)).compact()
        assert order == ["early", "none", "late"]
        assert (result, result.outcome, result.error) == (0, "skipped", "early")


NONSENSE: list[Any] = ["yes", Verdict(pins=(999,)), Verdict(pins=(True,)), ValueError("a bug")]


@pytest.mark.parametrize("answer", [*NONSENSE, Verdict(veto=5), "never"])  # type: ignore[arg-type]
async def test_an_interceptor_that_fails_or_never_answers_has_no_say(answer: Any) -> None:
    async def wrong(compaction: CompactionAsked) -> Any:
        if answer == "never":
            await hang_past_the_limit()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with eventctx.open() as engine:
        engine.interceptors = Interceptors(timeout=LIMIT)
        engine.interceptors.on(PRE, wrong)
        ctx = await filled(engine)
        assert (await ctx.compact()).outcome == "applied"
        assert sum(engine.interceptors.errors.values()) == 1


def test_only_events_that_can_be_intercepted_are_and_a_misspelt_name_is_refused() -> None:
    interceptors = Interceptors()
    with pytest.raises(UnknownEventName, match=f"did you mean '{PRE}'"):
        interceptors.on("context:pre_compct", lambda compaction: None)
    with pytest.raises(UnknownEventName, match="expected one of"):
        interceptors.on("tool:pre", lambda compaction: None)
    with pytest.raises(InvalidSetting, match="expected a function"):
        interceptors.on(PRE, "veto")  # type: ignore[arg-type]
