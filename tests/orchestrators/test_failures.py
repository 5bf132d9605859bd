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
    pieces,
    records,
    says,
    tool,
    tools,
)


class Limited(Exception):
    """As an SDK raises them."""

    status_code = 429
    retry_after = 3.0


async def test_errors_that_may_pass_are_tried_again_each_in_a_span_of_its_own(
    engine: Engine, ctx: Context
) -> None:
    waits = Waits()
    steps = [
        ConnectionError("reset"),
        Limited("slow down"),
        ProviderFailed("p", "overloaded", status=529, retryable=True, retry_after=1_000),
        TimeoutError(),
        says("ok"),
    ]
    provider = Scripted(*steps)
    agent = EventsOrchestrator(sleep=waits, jitter=lambda: 0.5)
    assert (await agent.execute("go", ctx, {"p": provider})).text == "ok"
    found = await records(engine)
    assert activity(found).count("provider:error") == 4
    requested = [one for one in found if one.type == "provider:request"]
    assert len({one.span_id for one in requested}) == 5
    assert {one.parent_span_id for one in requested} == {found[1].span_id}
    assert all(one.messages == provider.requests[0].messages for one in provider.requests)
    await check_log(engine)
    # Half of 1, 2, 4 and 8 seconds, or what the provider asks for, if that is not too long.
    assert waits.seconds == [0.5, 3.0, 120.0, 4.0]


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
    engine: Engine, ctx: Context, error: Exception, attempts: int
) -> None:
    provider = Scripted(*[error] * attempts)
    agent = EventsOrchestrator(sleep=Waits(), max_retries=2)
    with pytest.raises(ProviderFailed) as raised:
        await agent.execute("go", ctx, {"p": provider})
    assert len(provider.requests) == attempts
    if not isinstance(error, ProviderFailed):
        assert raised.value.__cause__ is error
        assert type(error).__name__ in str(raised.value)
    last = (await records(engine))[-1]
    assert decode_event(last).status == "error"  # type: ignore[union-attr]
    await check_log(engine)
    response = await agent.execute("again", ctx, {"p": Scripted(says("works"))})
    assert response.text == "works"


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
async def test_garbage_is_asked_for_again_once_and_never_enters_the_context(
    engine: Engine, ctx: Context, garbage: Any
) -> None:
    agent = EventsOrchestrator(sleep=Waits())
    provider = Scripted(garbage, says("better"))
    assert (await agent.execute("go", ctx, {"p": provider}, tools(tool("look")))).text == ("better")
    with pytest.raises(ProviderFailed):
        await agent.execute("go", ctx, {"p": Scripted(garbage, garbage)}, tools(tool("look")))
    roles = [one["role"] for one in await ctx.get_messages()]
    assert roles == ["user", "assistant", "user"]
    await check_log(engine)


class Row(msgspec.Struct):
    at: int


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
        (Row(3), '{"at": 3}'),
        ("half \ud83d", "half \ufffd"),
        (b"\x00" * 1000, "(1,000 bytes that are no text)"),
        (Odd(), "(a Odd that cannot be shown)"),
        (Unspeakable(), "Unspeakable: (it cannot be shown)"),
    ],
    ids=range(8),
)
async def test_whatever_a_tool_returns_or_raises_the_model_is_told(
    engine: Engine, ctx: Context, result: Any, content: str
) -> None:
    provider = Scripted(calls(("1", "odd")), says("ok"))

    async def listen(_: str, __: dict[str, Any]) -> None: ...

    await EventsOrchestrator().execute(
        "go", ctx, {"p": provider}, tools(tool("odd", result)), [listen]
    )
    assert (await ctx.get_messages())[2]["content"] == content
    await check_log(engine)


def test_the_repr_of_what_json_cannot_hold_is_bounded() -> None:
    text = text_of({(1,): "x" * 1_000_000}).text
    assert len(text) < 20_100
    assert text.endswith("characters more)")


async def test_an_unknown_tool_and_unusable_arguments_are_told_to_the_model(
    engine: Engine, ctx: Context
) -> None:
    unusable = calls(("2", "look"))
    unusable = msgspec.structs.replace(
        unusable, calls=(ToolRequest("2", "look", {}, "it is no JSON"),)
    )
    provider = Scripted(calls(("1", "nope")), unusable, says("ok"))
    await EventsOrchestrator().execute("go", ctx, {"p": provider}, tools(tool("look")))
    transcript = await ctx.get_messages()
    assert "no such tool; the tools are: look" in transcript[2]["content"]
    assert "cannot be used: it is no JSON" in transcript[4]["content"]
    errors = [decode_event(one) for one in await records(engine) if one.type == "tool:error"]
    assert {one.error_type for one in errors} == {"ToolFailed"}  # type: ignore[union-attr]
    await check_log(engine)


async def test_a_tool_that_hangs_is_ended_and_the_model_is_told(
    engine: Engine, ctx: Context
) -> None:
    provider = Scripted(calls(("1", "hang"), ("2", "look")), says("ok"))
    agent = EventsOrchestrator(tool_timeout=LIMIT)
    given = tools(Doing("hang", hang_past_the_limit), tool("look", "seen"))
    assert (await agent.execute("go", ctx, {"p": provider}, given)).text == "ok"
    contents = {one["content"] for one in (await ctx.get_messages())[2:4]}
    assert contents == {"seen", "TimeoutError: it took longer than 30 s and was ended"}
    await check_log(engine)


async def test_an_answer_that_cannot_be_used_was_paid_for_all_the_same(
    engine: Engine, ctx: Context
) -> None:
    bad = msgspec.structs.replace(says("x", Usage(100, 5)), calls=(ToolRequest("1", "none", {}),))
    worse = msgspec.structs.replace(bad, usage=Usage(-1))
    agent = EventsOrchestrator(sleep=Waits())
    response = await agent.execute("go", ctx, {"p": Scripted(bad, says("ok", Usage(90, 1)))})
    with pytest.raises(ProviderFailed):
        await agent.execute("go", ctx, {"p": Scripted(worse, worse)})
    reported = [one for one in await records(engine) if one.type == "usage:reported"]
    requests = [one for one in await records(engine) if one.type == "provider:request"]
    assert (response.usage.prompt, response.usage.output) == (190, 6)
    assert [one.span_id for one in reported] == [one.span_id for one in requests[:2]]


async def test_a_stream_that_stands_still_is_ended(engine: Engine, ctx: Context) -> None:
    provider = Streaming([Chunk("text", "So "), hang_past_the_limit])
    agent = StreamingOrchestrator(provider_timeout=LIMIT, sleep=Waits())
    with pytest.raises(ProviderFailed, match="its next piece"):
        await agent.execute("go", ctx, {"p": provider})
    # What was shown is kept, and not asked for again: the person would read it twice.
    assert (await ctx.get_messages())[-1] == {"role": "assistant", "content": "So "}
    assert len(provider.requests) == 1
    await check_log(engine)


async def test_a_context_that_raises_ends_the_turn_with_its_own_error(engine: Engine) -> None:
    ctx = await engine.session("s", max_tokens=50)
    await ctx.add_message({"role": "system", "content": "x" * 2_000})
    with pytest.raises(eventctx.ContextOverflow):
        await EventsOrchestrator().execute("go", ctx, {"p": Scripted()})
    assert activity(await records(engine)) == ["prompt:submit", "prompt:complete"]
    with pytest.raises(eventctx.InvalidMessage):
        await EventsOrchestrator().execute("\ud800", ctx, {"p": Scripted()})
    found = await records(engine)
    assert activity(found)[-1] == "prompt:complete"


# -- any script ----------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(
    ["fine", "x" * 5_000, {"a": 1}, b"\x00", math.inf, ValueError("no"), Unspeakable(), Odd()]
)
ANSWERS = st.one_of(
    st.builds(says, st.text(st.characters(codec="utf-8"), max_size=20)),
    st.lists(st.sampled_from(["a", "b", "none", "hang"]), min_size=1, max_size=3),
    st.sampled_from(
        [ConnectionError("x"), Limited("y"), ProviderFailed("p", "no"), ValueError("bug"), None, 3]
    ),
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

    async def turn() -> None:
        async with eventctx.open() as engine:
            ctx = await engine.session("s", max_tokens=1_000 if small else 100_000)
            agent = EventsOrchestrator(
                planning=planning,
                sleep=Waits(),
                max_retries=2,
                max_iterations=3,
                tool_timeout=LIMIT,
            )
            given = tools(tool("a", first), tool("b", second), Doing("hang", hang_past_the_limit))
            task = asyncio.create_task(
                agent.execute("go", ctx, {"p": Scripted(*steps, ValueError("over"))}, given)
            )
            if cancel is not None:
                for _ in range(cancel):
                    await asyncio.sleep(0)
                task.cancel()
            with suppress(asyncio.CancelledError, ProviderFailed):
                await task
            await check_log(engine)
            again = await EventsOrchestrator().execute("go", ctx, {"p": Scripted(says("works"))})
            assert again.text == "works"
            await check_log(engine)

    asyncio.run(turn())


async def test_waits_are_capped(ctx: Context) -> None:
    waits = Waits()
    provider = Scripted(*[ConnectionError()] * 10, says("ok"))
    agent = EventsOrchestrator(sleep=waits, jitter=lambda: 1.0, max_retries=10)
    await agent.execute("go", ctx, {"p": provider})
    assert waits.seconds == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]


@pytest.mark.parametrize("kind", [BasicOrchestrator, StreamingOrchestrator])
async def test_calls_where_no_tools_were_offered_are_garbage(
    engine: Engine, ctx: Context, kind: Any
) -> None:
    answer = calls(("1", "look"))
    with pytest.raises(ProviderFailed, match="calls tools"):
        await kind(sleep=Waits()).execute("go", ctx, {"p": Scripted(answer, answer)})
    await check_log(engine)


def test_a_value_that_holds_itself_has_a_text() -> None:
    itself: list[Any] = []
    itself.append(itself)
    assert text_of(itself).text == "[[...]]"


async def test_a_tool_that_changes_its_input_changes_nobody_elses(ctx: Context) -> None:
    async def change(given: dict[str, Any]) -> str:
        given["path"].append("changed")
        return "ok"

    heard = Heard()
    provider = Scripted(calls(("1", "change"), arguments={"path": ["a"]}), says("ok"))
    await EventsOrchestrator().execute(
        "go", ctx, {"p": provider}, tools(Doing("change", change)), heard
    )
    assert heard.of("tool:post")[0]["tool_input"] == {"path": ["a"]}


async def test_a_provider_that_hangs_is_asked_again(engine: Engine, ctx: Context) -> None:
    provider = Scripted(hang_past_the_limit, says("ok"))
    agent = EventsOrchestrator(provider_timeout=LIMIT, sleep=Waits())
    assert (await agent.execute("go", ctx, {"p": provider})).text == "ok"
    await check_log(engine)


async def test_a_stream_that_fails_before_its_first_piece_is_tried_again(
    engine: Engine, ctx: Context
) -> None:
    provider = Streaming([ConnectionError("reset")], pieces("all ", "well"))
    agent = StreamingOrchestrator(sleep=Waits())
    assert (await agent.execute("go", ctx, {"p": provider})).text == "all well"
    assert [one["content"] for one in await ctx.get_messages()] == ["go", "all well"]
    await check_log(engine)
