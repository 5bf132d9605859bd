"""Providers and tools that misbehave: a clear error or a recorded outcome, and the turn after."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx import Context, Engine
from eventctx.errors import ProviderFailed
from eventctx.log.codec import decode_event
from eventctx.orchestrators import (
    Answer,
    BasicOrchestrator,
    Chunk,
    EventsOrchestrator,
    StreamingOrchestrator,
    ToolRequest,
    Usage,
)
from eventctx.orchestrators.tools.results import text_of
from tests.how_much import some
from tests.loop_time import LIMIT, hang_past_the_limit
from tests.orchestrators.agents import (
    Doing,
    Heard,
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    check_log,
    contents,
    go,
    pieces,
    records,
    says,
    tool,
)


class Limited(Exception):
    """As an SDK raises them."""

    status_code = 429
    retry_after = 3.0


async def test_errors_that_may_pass_are_tried_again_each_in_a_span_of_its_own(ctx: Context) -> None:
    waits = Waits()
    overloaded = ProviderFailed("p", "overloaded", status=529, retryable=True, retry_after=1_000)
    steps = [ConnectionError("reset"), Limited("slow down"), overloaded, TimeoutError(), says("ok")]
    provider = Scripted(*steps)
    assert (await go(ctx, provider, sleep=waits, jitter=lambda: 0.5)).text == "ok"
    assert len(await records(ctx, "provider:error")) == 4
    requested = await records(ctx, "provider:request")
    assert len({one.span_id for one in requested}) == 5
    assert {one.parent_span_id for one in requested} == {(await records(ctx))[1].span_id}
    assert all(one.messages == provider.requests[0].messages for one in provider.requests)
    # Half of 1, 2, 4 and 8 seconds, or what the provider asks for, if that is not too long.
    assert waits.seconds == [0.5, 3.0, 120.0, 4.0]


async def test_waits_are_capped(ctx: Context) -> None:
    waits = Waits()
    provider = Scripted(*[ConnectionError()] * 10, says("ok"))
    await go(ctx, provider, sleep=waits, jitter=lambda: 1.0, max_retries=10)
    assert waits.seconds == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ConnectionError("down"), 3),
        (ProviderFailed("p", "bad request", status=400), 1),
        (ValueError("a bug"), 1),
        (type("Auth", (Exception,), {"status_code": 401})("who?"), 1),
        (type("Down", (Exception,), {"status_code": 503})("later"), 3),
        (type("Quota", (Exception,), {"status_code": 429, "retryable": False})("paid?"), 1),
    ],
)
async def test_an_error_that_stays_ends_the_turn_as_provider_failed(
    ctx: Context, error: Exception, attempts: int
) -> None:
    provider = Scripted(*[error] * attempts)
    with pytest.raises(ProviderFailed) as raised:
        await go(ctx, provider, max_retries=2)
    assert len(provider.requests) == attempts
    if not isinstance(error, ProviderFailed):
        assert raised.value.__cause__ is error
        assert type(error).__name__ in str(raised.value)
    assert decode_event((await records(ctx))[-1]).status == "error"  # type: ignore[union-attr]
    await check_log(ctx)
    assert (await go(ctx, Scripted(says("works")))).text == "works"


MESSAGE = {"role": "assistant", "content": "x"}
CALLING = calls(("1", "look"))


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        "text",
        Answer({"role": "assistant", "content": math.nan}),
        Answer({"role": "user", "content": "x"}),
        Answer({"role": "assistant", "content": "\ud800"}),
        Answer(MESSAGE, text=3),  # type: ignore[arg-type]
        Answer(MESSAGE, usage=Usage(-1)),
        Answer(MESSAGE, model=3),  # type: ignore[arg-type]
        Answer(MESSAGE, more=[MESSAGE]),  # type: ignore[arg-type]
        Answer(MESSAGE, more=({"role": "user", "content": "x"},)),
        Answer(MESSAGE, calls=(ToolRequest("1", "look", {}),)),
        Answer(CALLING.message, calls=(ToolRequest("", "look", {}),)),
        Answer(CALLING.message, calls=(ToolRequest("1", "look", []),)),  # type: ignore[arg-type]
        Answer(CALLING.message, calls=CALLING.calls * 2),
    ],
    ids=range(14),
)
async def test_garbage_is_asked_for_again_and_never_gets_in(ctx: Context, garbage: Any) -> None:
    assert (await go(ctx, Scripted(garbage, says("better")), tool("look"))).text == "better"
    with pytest.raises(ProviderFailed):
        await go(ctx, Scripted(garbage, garbage), tool("look"))
    assert [one["role"] for one in await ctx.get_messages()] == ["user", "assistant", "user"]


@pytest.mark.parametrize("kind", [BasicOrchestrator, StreamingOrchestrator])
async def test_calls_where_no_tools_were_offered_are_garbage(ctx: Context, kind: Any) -> None:
    with pytest.raises(ProviderFailed, match="calls tools"):
        await go(ctx, Scripted(CALLING, CALLING), loop=kind)


class Odd:
    def __repr__(self) -> str:
        raise ValueError("not even that")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("not even that")


@pytest.mark.parametrize(
    ("result", "content"),
    [
        ("text", "text"),
        (None, "(no output)"),
        ({"a": [1, None]}, '{"a": [1, null]}'),
        (msgspec.defstruct("Row", ["at"])(3), '{"at": 3}'),
        ("half \ud83d", "half \ufffd"),
        (b"\x00" * 1000, "(1,000 bytes that are no text)"),
        (Odd(), "(a Odd that cannot be shown)"),
        (Unspeakable(), "Unspeakable: (it cannot be shown)"),
    ],
    ids=range(8),
)
async def test_what_a_tool_gives_the_model_is_told(ctx: Context, result: Any, content: str) -> None:
    await go(ctx, Scripted(calls(("1", "odd")), says("ok")), tool("odd", result), hooks=Heard())
    assert (await contents(ctx))[2] == content


def test_what_json_cannot_hold_has_a_bounded_text() -> None:
    text = text_of({(1,): "x" * 1_000_000}).text
    assert len(text) < 20_100 and text.endswith("characters more)")
    itself: list[Any] = []
    itself.append(itself)
    assert text_of(itself).text == "[[...]]"


async def test_an_unknown_tool_and_unusable_arguments_are_told_to_the_model(ctx: Context) -> None:
    broken = (ToolRequest("2", "look", {}, "it is no JSON"),)
    unusable = msgspec.structs.replace(calls(("2", "look")), calls=broken)
    await go(ctx, Scripted(calls(("1", "nope")), unusable, says("ok")), tool("look"))
    told = await contents(ctx)
    assert "no such tool; the tools are: look" in told[2]
    assert "cannot be used: it is no JSON" in told[4]
    errors = [decode_event(one) for one in await records(ctx, "tool:error")]
    assert [one.error_type for one in errors] == ["ToolFailed"] * 2  # type: ignore[union-attr]


async def test_a_tool_and_a_provider_that_hang_are_ended_and_the_turn_goes_on(ctx: Context) -> None:
    given = Doing("hang", hang_past_the_limit), tool("look", "seen")
    script = Scripted(calls(("1", "hang"), ("2", "look")), hang_past_the_limit, says("ok"))
    response = await go(ctx, script, *given, tool_timeout=LIMIT, provider_timeout=LIMIT)
    assert response.text == "ok" and len(await records(ctx, "provider:error")) == 1
    ended = "TimeoutError: it took longer than 30 s and was ended"
    assert set((await contents(ctx))[2:4]) == {"seen", ended}


async def test_an_answer_that_cannot_be_used_was_paid_for_all_the_same(ctx: Context) -> None:
    bad = msgspec.structs.replace(says("x", Usage(100, 5)), calls=(ToolRequest("1", "none", {}),))
    worse = msgspec.structs.replace(bad, usage=Usage(-1))
    response = await go(ctx, Scripted(bad, says("ok", Usage(90, 1))))
    with pytest.raises(ProviderFailed):
        await go(ctx, Scripted(worse, worse))
    reported, requests = [await records(ctx, n) for n in ("usage:reported", "provider:request")]
    assert (response.usage.prompt, response.usage.output) == (190, 6)
    assert [one.span_id for one in reported] == [one.span_id for one in requests[:2]]


async def test_a_stream_that_fails_is_tried_again_if_nothing_was_shown(ctx: Context) -> None:
    failing = Streaming([ConnectionError("reset")], pieces("all ", "well"))
    assert (await go(ctx, failing, loop=StreamingOrchestrator)).text == "all well"
    assert await contents(ctx) == ["go", "all well"]
    # What was shown is kept, and not asked for again: the person would read it twice.
    provider = Streaming([Chunk("text", "So "), hang_past_the_limit])
    with pytest.raises(ProviderFailed, match="its next piece"):
        await go(ctx, provider, loop=StreamingOrchestrator, provider_timeout=LIMIT)
    assert (await ctx.get_messages())[-1] == {"role": "assistant", "content": "So "}
    assert len(provider.requests) == 1


async def test_a_context_that_raises_ends_the_turn_with_its_own_error(engine: Engine) -> None:
    ctx = await engine.session("s", max_tokens=50)
    await ctx.add_message({"role": "system", "content": "x" * 2_000})
    with pytest.raises(eventctx.ContextOverflow):
        await go(ctx, Scripted())
    with pytest.raises(eventctx.InvalidMessage):
        await EventsOrchestrator().execute("\ud800", ctx, {"p": Scripted()})
    assert activity(await records(ctx)) == ["prompt:submit", "prompt:complete"] * 2


async def test_a_tool_that_changes_its_input_changes_nobody_elses(ctx: Context) -> None:
    async def change(given: dict[str, Any]) -> None:
        given["path"].append("changed")

    heard = Heard()
    provider = Scripted(calls(("1", "change"), arguments={"path": ["a"]}), says("ok"))
    await go(ctx, provider, Doing("change", change), hooks=heard)
    assert heard.of("tool:post")[0]["tool_input"] == {"path": ["a"]}


# -- any script ----------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(
    ["fine", "x" * 5_000, {"a": 1}, b"\x00", math.inf, ValueError("no"), Unspeakable(), Odd()]
)
PROBLEMS = ConnectionError("x"), Limited("y"), ProviderFailed("p", "no"), ValueError("bug"), None, 3
ANSWERS = st.one_of(
    st.builds(says, st.text(st.characters(codec="utf-8"), max_size=20)),
    st.lists(st.sampled_from(["a", "b", "none", "hang"]), min_size=1, max_size=3),
    st.sampled_from(PROBLEMS),
)


@settings(max_examples=some(40, 150), deadline=None)
@given(
    script=st.lists(ANSWERS, max_size=6),
    first=OUTCOMES,
    second=OUTCOMES,
    planning=st.booleans(),
    cancel=st.none() | st.integers(0, 120),
    small=st.booleans(),
)
def test_whatever_happens_the_log_is_whole_and_the_next_turn_works(
    script: list[Any], first: Any, second: Any, planning: bool, cancel: int | None, small: bool
) -> None:
    steps = [
        calls(*[(f"{number}.{place}", name) for place, name in enumerate(one)])
        if isinstance(one, list)
        else one
        for number, one in enumerate(script)
    ]
    given = tool("a", first), tool("b", second), Doing("hang", hang_past_the_limit)
    limits: Any = {"max_retries": 2, "max_iterations": 3, "tool_timeout": LIMIT}

    async def turn() -> None:
        async with eventctx.open() as engine:
            ctx = await engine.session("s", max_tokens=1_000 if small else 100_000)
            provider = Scripted(*steps, ValueError("over"))
            task = asyncio.create_task(go(ctx, provider, *given, planning=planning, **limits))
            if cancel is not None:
                for _ in range(cancel):
                    await asyncio.sleep(0)
                task.cancel()
            with suppress(asyncio.CancelledError, ProviderFailed):
                await task
            await check_log(await engine.session("s"))
            assert (await go(ctx, Scripted(says("works")))).text == "works"
            await check_log(await engine.session("s"))

    asyncio.run(turn())
