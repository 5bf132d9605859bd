"""A model writes a summary while requests go on: what is published, dropped and waited for."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import (
    CompactionRefused,
    InvalidSetting,
    StoreUnavailable,
    WrongExpectedVersion,
)
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact, PreCompact
from eventctx.policies.policy import AskScores, Budget, PolicyState, Proposal, Visible
from eventctx.policies.presets import Importance
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.advisers import Paused, Scripted, mute, talk
from tests.policies.given import model, user
from tests.sessions import names
from tests.transcripts import refusal

LIMIT = 12_000


@asynccontextmanager
async def near(
    adviser: Any, store: MemoryStore | None = None, **settings: Any
) -> AsyncIterator[tuple[Engine, eventctx.Context]]:
    """A session that has come near its threshold, and not to it."""
    async with Engine(store or MemoryStore()) as engine:
        options = {"policy": "summarize", "max_tokens": LIMIT, **settings}
        ctx = await engine.session("s", summarizer=adviser, **options)
        await ctx.add_messages(talk(16, 900))
        yield engine, ctx


async def until_asked(ctx: eventctx.Context, adviser: Paused) -> None:
    """The request that begins a compaction, which goes on as it is."""
    before = await ctx.get_messages()
    assert await ctx.get_messages_for_request() == before
    await asyncio.wait_for(adviser.called.wait(), 60)


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[Engine, eventctx.Context, Paused]]:
    """Such a session whose model was asked and has not answered."""
    adviser = Paused()
    async with near(adviser) as (engine, ctx):
        await until_asked(ctx, adviser)
        yield engine, ctx, adviser


async def until_answered(adviser: Paused) -> None:
    """Let the model answer, if it is still asked."""
    adviser.may_answer.set()
    for _ in range(100):
        await asyncio.sleep(0)


async def behind_the_answer(ctx: eventctx.Context, adviser: Paused) -> list[dict[str, Any]]:
    """The next request."""
    await until_answered(adviser)
    await ctx.add_message(user("go on"))
    return await ctx.get_messages_for_request()


async def compactions(engine: Engine) -> list[tuple[PreCompact, Any]]:
    """The beginning and the end of each compaction, which have one span."""
    found: dict[str | None, list[Any]] = {}
    async for record in engine.records("s"):
        if record.type == "context:pre_compact":
            assert record.span_id not in found
            found[record.span_id] = [decode_known(record), None]
        elif record.type == "context:post_compact":
            assert found[record.span_id][1] is None
            found[record.span_id][1] = decode_known(record)
    return [(pre, post) for pre, post in found.values()]


async def test_requests_go_on_while_a_model_writes_and_the_next_one_uses_what_it_wrote() -> None:
    async with asked() as (engine, ctx, adviser):
        await ctx.add_message(user("And part 15?"))
        assert (await ctx.get_messages_for_request())[-1] == user("And part 15?")
        await until_answered(adviser)
        await ctx.add_message(model("It is not there."))
        view = await ctx.get_messages_for_request()
        assert "Summary 1." in str(view)
        assert view[-2:] == [user("And part 15?"), model("It is not there.")]
        ((pre, post),) = await compactions(engine)
        assert pre.background and pre.tokens < (pre.threshold or 0)
        assert (post.outcome, post.fallback, post.error) == ("applied", None, None)
        assert len(adviser.requests) == 1
        assert (await engine.verify("s")).ok


@pytest.mark.parametrize(
    ("options", "begun"),
    [
        *[({"prepare_at": 1.0}, None), ({"policy": "truncate"}, None)],
        ({"prepare_at": None, "compact_threshold": 0.6}, "while the request waits"),
    ],
)
async def test_nothing_is_begun_below_or_without_a_line_or_where_nobody_is_asked(
    options: dict[str, Any], begun: str | None
) -> None:
    async with near(Scripted() if begun else mute(), **options) as (engine, ctx):
        view = await ctx.get_messages_for_request()
        assert ("Summary 1." in str(view)) == bool(begun)
        assert [pre.background for pre, _ in await compactions(engine)] == [False] * bool(begun)


CHANGES: list[Callable[[eventctx.Context], Awaitable[Any]]] = [
    lambda ctx: ctx.pin(1),
    lambda ctx: ctx.clear(),
    lambda ctx: ctx.set_messages(talk(16, 900)[4:]),
    lambda ctx: ctx.compact(policy="truncate", budget=LIMIT // 2),
]


@pytest.mark.parametrize("change", CHANGES, ids=["pin", "clear", "set", "compact"])
async def test_what_changed_meanwhile_makes_the_plan_stale(change: Any) -> None:
    async with asked() as (engine, ctx, adviser):
        await change(ctx)
        assert "Summary 1." not in str(await behind_the_answer(ctx, adviser))
        (_, first), *_ = await compactions(engine)
        assert (first.outcome, first.plan) == ("stale", None)
        assert "changed meanwhile" in str(first.error)
        assert (await engine.verify("s")).ok


@pytest.mark.parametrize("prepare_at", [0.75, None])
async def test_what_is_erased_meanwhile_is_in_no_summary(prepare_at: float | None) -> None:
    adviser = Paused("It says 0 aaaa.")
    async with near(adviser, prepare_at=prepare_at, compact_threshold=0.7) as (engine, ctx):
        request = asyncio.ensure_future(ctx.get_messages_for_request())
        await asyncio.wait_for(adviser.called.wait(), 60)
        await engine.erase("s", [1])
        assert "It says" not in str(await behind_the_answer(ctx, adviser))
        await request
        async for record in engine.records("s"):
            assert not any(b"It says" in (body.data or b"") for body in record.bodies)


async def test_an_instruction_that_is_taken_back_meanwhile_is_not_in_the_summary() -> None:
    adviser = Paused()
    async with Engine(MemoryStore()) as engine:
        ctx = await engine.session("s", policy="summarize", summarizer=adviser)
        for n in range(80):
            asks = user(f"Keep the name step_{n}, {'as it is, ' * 12}in any case.")
            await ctx.add_messages([asks, model("so " * 30)])
        limit = round(await ctx.get_token_count() / 0.8)
        assert len(await ctx.get_messages_for_request(limit)) == 160
        await asyncio.wait_for(adviser.called.wait(), 60)
        await ctx.withdraw_instruction(40, 1)
        await until_answered(adviser)
        await ctx.add_message(user("go on"))
        view = await ctx.get_messages_for_request(limit)
        assert {40, 42} <= set(adviser.requests[0].numbers)
        (summary,) = [row["content"] for row in view if "Summary 1." in str(row)]
        assert ("step_20," in summary, "step_21," in summary) == (False, True)


async def test_a_request_at_the_budget_waits_for_the_answer_though_one_was_cancelled() -> None:
    async with asked() as (engine, ctx, adviser):
        await ctx.add_messages(talk(8, 900))
        for cancelled in (True, False):
            request = asyncio.ensure_future(ctx.get_messages_for_request())
            await asyncio.sleep(0.01)
            assert not request.done()
            if cancelled:
                request.cancel()
                await asyncio.gather(request, return_exceptions=True)
        adviser.may_answer.set()
        assert "Summary 1." in str(await asyncio.wait_for(request, 60))
        ((_, post),) = await compactions(engine)
        assert (post.outcome, post.fallback) == ("applied", None)


async def test_after_the_wait_the_ladder_decides() -> None:
    adviser = Paused()
    async with near(adviser, wait=0.01) as (engine, ctx):
        await until_asked(ctx, adviser)
        await ctx.add_messages(talk(8, 900))
        assert "Summary" not in str(await ctx.get_messages_for_request())
        ((_, post),) = await compactions(engine)
        assert (post.outcome, post.fallback) == ("applied", "ladder")
        assert "no answer in the 0.01 s" in str(post.error)
        adviser.may_answer.set()
        await ctx.add_message(user("go on"))
        await ctx.get_messages_for_request()
        assert len(await compactions(engine)) == 1
        # The call is at its end, too.
        found = await names(engine)
        assert found.count("provider:request") == found.count("provider:error") == 1


async def test_a_model_that_fails_below_the_threshold_costs_no_message() -> None:
    adviser = Scripted(RuntimeError("overloaded"), RuntimeError("overloaded"))
    async with near(adviser) as (engine, ctx):
        for number in range(4):
            await ctx.add_message(user(f"go on {number}"))
            assert await ctx.get_messages_for_request() == await ctx.get_messages()
            await asyncio.sleep(0.01)
        ((_, post),) = await compactions(engine)
        assert (post.outcome, post.plan, post.fallback) == ("failed", None, None)
        assert "overloaded" in str(post.error)
        assert len(adviser.requests) == 1
        await ctx.add_messages(talk(5, 900))
        await ctx.get_messages_for_request()  # asks once more
        await asyncio.sleep(0.01)
        await ctx.get_messages_for_request()
        _, (_, post) = await compactions(engine)
        assert (post.outcome, post.fallback) == ("applied", "ladder")


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("answered", [False, True])
async def test_one_of_requests_at_once_begins_and_closing_ends_it_as_cancelled(
    answered: bool, requests: int
) -> None:
    adviser = Paused()
    async with near(adviser) as (engine, ctx):

        async def slow(asked: eventctx.CompactionAsked) -> eventctx.Verdict:
            await asyncio.sleep(0)
            return eventctx.Verdict()

        engine.intercept("context:pre_compact", slow)
        await asyncio.gather(*[ctx.get_messages_for_request() for _ in range(requests)])
        await asyncio.wait_for(adviser.called.wait(), 60)
        if answered:
            await until_answered(adviser)
        await engine.close_session("s")
        ((_, post),) = await compactions(engine)
        assert post.outcome == "cancelled"
        assert (await engine.verify("s")).ok


async def test_another_process_ends_it_and_the_answer_is_used_all_the_same() -> None:
    async with asked() as (engine, ctx, adviser):
        other = Engine(engine.store)
        await (await other.session("s", summarizer=mute())).add_message(user("from elsewhere"))
        view = await behind_the_answer(ctx, adviser)
        assert "Summary 1." in str(view)
        assert view[-2:] == [user("from elsewhere"), user("go on")]
        ended = [post.outcome for _, post in await compactions(engine)]
        assert ended == ["failed", "applied"]
        assert len(adviser.requests) == 1


async def test_a_plan_that_the_grown_view_would_have_to_be_cut_besides_is_made_anew() -> None:
    async with asked() as (engine, ctx, adviser):
        await ctx.add_messages(talk(16, 900))
        await until_answered(adviser)
        assert "Summary 2." in str(await ctx.get_messages_for_request())
        (_, first), (_, second) = await compactions(engine)
        assert (first.outcome, first.error) == ("stale", "the view has grown too much meanwhile")
        assert (second.outcome, second.fallback) == ("applied", None)


async def test_a_plan_waits_for_the_end_of_a_tool_loop_whose_thinking_it_would_cost() -> None:
    adviser = Paused()
    think = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "it says 4"}
    async with near(adviser) as (_, ctx):
        await until_asked(ctx, adviser)
        answer = {"role": "assistant", "content": [think, call]}
        await ctx.add_messages([answer, {"role": "user", "content": [result]}])
        await until_answered(adviser)
        model_of_the_loop = "claude-opus-5-5"
        assert "Summary" not in str(await ctx.get_messages_for_request(model=model_of_the_loop))
        await ctx.add_message(model("It says 4."))
        await ctx.add_message(user("go on"))
        assert "Summary 1." in str(await ctx.get_messages_for_request(model=model_of_the_loop))


class _LeavesOne(msgspec.Struct, frozen=True):
    """Asks for scores, and takes one message out whatever they are."""

    name: str = "leaves-one"
    version: int = 1
    max_messages: int | None = None
    needs_scorer: bool = True

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskScores:
        numbers = tuple([ref.number for ref in visible.messages])
        if not state.answers:
            return AskScores("scores", numbers)
        return Proposal(
            {n: ("dropped", "older") if n == numbers[1] else ("kept", "fits") for n in numbers},
            kept_insertions=tuple(visible.insertions),
        )


@pytest.mark.parametrize("policy", [_LeavesOne(), Importance(scorer="model")])
async def test_a_view_near_the_threshold_is_not_asked_about_at_every_request(policy: Any) -> None:
    scorer = Scripted()
    async with Engine(MemoryStore()) as engine:
        ctx = await engine.session("s", policy=policy, scorer=scorer, max_tokens=LIMIT)
        await ctx.add_messages(talk(17, 900))
        for number in range(6):
            await ctx.add_message(user(f"go on {number}"))
            await ctx.get_messages_for_request()
            await asyncio.sleep(0.01)
        assert len(scorer.requests) == 1
        ((pre, post),) = await compactions(engine)
        assert pre.background and post.outcome == "applied"
        assert (post.scores is not None) == isinstance(policy, Importance)


class _Refuses(MemoryStore):
    """Cannot write the first beginning of a compaction."""

    refused = 0

    def append(self, stream: str, drafts: Any, expected: Any) -> Any:
        if not self.refused and any(one.type == "context:pre_compact" for one in drafts):
            self.refused += 1
            raise StoreUnavailable("the disk was away")
        return super().append(stream, drafts, expected)


async def test_a_beginning_that_cannot_be_written_costs_no_request_and_is_tried_again() -> None:
    adviser = Scripted()
    async with near(adviser, _Refuses()) as (engine, ctx):
        for number in range(4):
            await ctx.add_message(user(f"go on {number}"))
            view = await ctx.get_messages_for_request()
            await asyncio.sleep(0.01)
        assert "Summary 1." in str(view)
        ((_, post),) = await compactions(engine)
        assert post.outcome == "applied"


async def test_an_interceptor_is_asked_once_and_its_veto_waits_for_the_threshold() -> None:
    heard: list[str] = []
    async with near(mute()) as (engine, ctx):

        def veto(asked: eventctx.CompactionAsked) -> eventctx.Verdict:
            heard.append(str(asked.event.background))
            return eventctx.Verdict(veto="not now")

        engine.intercept("context:pre_compact", veto)
        for number in range(3):
            await ctx.add_message(user(f"go on {number}"))
            await ctx.get_messages_for_request()
        assert heard == ["True"]
        assert await compactions(engine) == []


class _Jumping(selectors.DefaultSelector):
    """Puts its loop's clock forward instead of waiting: nothing here waits for a file or socket."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


def in_virtual_time(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine; its waits take no time."""
    selector = _Jumping()
    loop: Any = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main)


STEPS = ["add"] * 9 + ["request"] * 6 + ["pass"] * 5
RARE = ["pin", "unpin", "elsewhere", "clear", "set", "compact", "erase", "close"]


class _Play:
    """A session whose summarizer takes its time, and a second process on the same store."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - drawn one by one they would seldom meet
        self.store = MemoryStore()
        self.engine, self.other = Engine(self.store), Engine(self.store)

    async def summarizer(self, request: eventctx.SummaryRequest) -> str:
        await asyncio.sleep(self.chance.uniform(0, 30))
        if self.chance.random() < 0.2:
            raise RuntimeError("overloaded")
        return "They looked at parts."

    async def open(self, engine: Engine) -> eventctx.Context:
        return await engine.session(
            "s", policy="summarize", summarizer=self.summarizer, max_tokens=6_000,
            on_overflow="send_floor", wait=20.0,
        )  # fmt: skip

    async def do(self, step: str, value: int) -> None:
        ctx = await self.open(self.engine)
        match step:
            case "add":
                answer = model(f"{value} " + "a" * 25 * value)
                await ctx.add_messages([user(f"part {value}?"), answer])
            case "request":
                await asyncio.gather(*[self._request(ctx) for _ in range(1 + value % 2)])
            case "pass":
                await asyncio.sleep(value / 4)
            case "pin" | "unpin":
                await getattr(ctx, step)(value)
            case "erase":
                await self.engine.erase("s", [value])
            case "elsewhere":
                await (await self.open(self.other)).add_message(user(f"from elsewhere {value}"))
            case "clear":
                await ctx.clear()
            case "set":
                await ctx.set_messages((await ctx.get_messages())[2:])
            case "compact":
                await ctx.compact(policy="truncate")
            case "close":
                await self.engine.close_session("s")

    async def _request(self, ctx: eventctx.Context) -> None:
        assert refusal(await ctx.get_messages_for_request()) is None

    async def run(self) -> None:
        ctx = await self.open(self.engine)
        await ctx.add_messages(talk(6, 900))
        for _ in range(self.chance.randrange(20, 80)):
            step = self.chance.choice(STEPS * 4 + RARE)
            value = self.chance.randrange(60)
            # Not every number is in the transcript, and the other process may be first.
            with suppress(InvalidSetting, WrongExpectedVersion, CompactionRefused):
                await self.do(step, value)
        await self.engine.close_session("s")
        for pre, post in await compactions(self.engine):
            assert post and (pre.background or post.outcome != "stale")
            assert (post.plan is not None) == (post.outcome == "applied")
        assert (await self.engine.verify("s")).ok
        await self._check_plans()
        await self._check_views()

    async def _check_plans(self) -> None:
        """What was added while a model was asked is whole in the plan that it helped to make."""
        numbers, begun = 0, dict[str | None, int]()
        async for record in self.engine.records("s"):
            if record.type == "context:pre_compact":
                begun[record.span_id] = numbers
            elif record.type == "context:post_compact":
                post: PostCompact = decode_known(record)
                added = range(begun[record.span_id], numbers)
                if post.plan is not None and post.fallback is None and post.trigger != "manual":
                    runs = [one for one in post.plan.runs if one.last >= added.start]
                    assert {one.disposition for one in runs} <= {"kept"}, post.plan
            if record.type in ("context:message_added", "context:messages_set"):
                numbers += len(record.bodies)

    async def _check_views(self) -> None:
        """Every request that was prepared follows from the log, unless something was erased."""
        for row in (await self.engine.audit("s")).requests:
            view = await self.engine.request_view("s", position=row.position)
            assert view.verified or any(one for one in view.messages if "[erased]" in str(one))


@settings(max_examples=some(15, 10_000))
@example(416_118)  # another process ends it before a request at the budget finds it stale
@given(st.integers(0, 2**32))
def test_in_any_order_each_compaction_ends_once_and_views_are_of_their_log(seed: int) -> None:
    in_virtual_time(_Play(seed).run())
