"""The orchestrators in Amplifier's own kernel; requests in which the model may call no tool."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.llm_errors import ContextLengthError, InvalidRequestError, RateLimitError
from amplifier_core.message_models import Message
from amplifier_core.testing import EventRecorder, MockContextManager, MockTool
from amplifier_core.validation import OrchestratorValidator

from eventctx import Context, Engine
from eventctx.errors import ProviderFailed
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestPrepared
from eventctx.orchestrators import BasicOrchestrator, EventsOrchestrator, StreamingOrchestrator
from eventctx.orchestrators.loops.mounting import MountedOrchestrator
from eventctx.orchestrators.providers.amplifier import as_messages
from eventctx.session.settings import UnknownSetting
from tests.amplifier.hosts import mounting, session
from tests.orchestrators.agents import (
    Scripted,
    Streaming,
    Waits,
    activity,
    calls,
    go,
    pieces,
    records,
    says,
    tool,
)
from tests.orchestrators.host import Module, Writes, hear, kernel, replies, uses

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
POINTS = PROJECT["entry-points"]["amplifier.modules"]


@pytest.mark.parametrize("loop", ["basic", "streaming", "events"])
async def test_the_kernel_runs_a_turn_of_each(ctx: Context, loop: str) -> None:
    module = Module(replies("hello"))
    config = {"tools": "ignore"} if loop == "basic" else {}
    async with kernel(ctx, module, loop=loop, **config) as session:
        submitted, completed = hear(session, "prompt:submit"), hear(session, "prompt:complete")
        blocks = hear(session, "content_block:end")
        assert await session.execute("hi") == "hello"
    found = await records(ctx)
    assert activity(found) == [
        *("prompt:submit", "provider:request", "provider:response", "prompt:complete")
    ]
    (began,), (ended,) = submitted, completed
    assert began["session_id"] == ended["session_id"] == "s"
    assert began["turn_id"] == ended["turn_id"]
    assert began["span_id"] == found[1].span_id
    assert [one["block"]["text"] for one in blocks] == ["hello"]
    asked = module.requests[0].metadata
    assert asked and asked["turn_id"] == began["turn_id"] and len(asked["span_id"]) == 16
    # Amplifier's input has what was read from the cache and not what was written to it.
    used = [decode_event(one) for one in await records(ctx, "usage:reported")]
    assert [one.prompt for one in used] == [120]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [name for name in sorted(POINTS) if "loop-" in name])
async def test_amplifiers_validator_accepts_each(name: str) -> None:
    result = await OrchestratorValidator().validate(POINTS[name].partition(":")[0])
    assert result.passed, [one.message for one in result.checks if not one.passed]


async def test_amplifier_tools_run_and_thinking_goes_back_as_it_came(ctx: Context) -> None:
    tool, module = Writes(), Module(uses("c1", "write", text="x"), replies("done"))
    async with kernel(ctx, module, tool) as session:
        pre, post = hear(session, "tool:pre"), hear(session, "tool:post")
        requested = hear(session, "provider:request")
        assert await session.execute("go") == "done"
    _, answer, result, _ = await ctx.get_messages()
    assert answer["content"][0]["signature"] == "sig=="
    assert answer["tool_calls"] == [{"id": "c1", "tool": "write", "arguments": {"text": "x"}}]
    named = {"role": "tool", "tool_call_id": "c1", "name": "write"}
    assert result == {**named, "content": '{"wrote": "x"}'}
    assert module.requests[1].messages[1].content[0].model_dump() == answer["content"][0]
    assert module.requests[0].tools[0].parameters == tool.input_schema
    assert pre[0]["tool_input"] == {"text": "x"}
    assert post[0]["result"]["output"] == {"wrote": "x"}
    assert pre[0]["parent_span_id"] == requested[0]["span_id"]
    assert pre[0]["tool_call_id"] == "c1"
    assert [one["iteration"] for one in requested] == [1, 2]


@pytest.mark.parametrize(("success", "end"), [(True, "tool:post"), (False, "tool:error")])
async def test_a_hook_of_the_kernel_may_change_a_tools_input_and_result(
    ctx: Context, success: bool, end: str
) -> None:
    def changing(field: str, value: Any) -> Any:
        return lambda data: HookResult(action="modify", data={**data, field: value})

    tool, module = Writes(), Module(uses("c1", "write", text="secret"), replies("ok"))
    tool.success = success
    async with kernel(ctx, module, tool) as session:
        hear(session, "tool:pre", changing("tool_input", {"text": "…"}))
        hear(session, end, changing("result", "hidden"))
        await session.execute("go")
    assert tool.inputs == [{"text": "…"}]
    assert (await ctx.get_messages())[2]["content"] == "hidden"


async def test_what_a_hook_of_the_kernel_injects_is_stored_or_sent_once(ctx: Context) -> None:
    module = Module(replies("ok"))
    stays = HookResult(action="inject_context", context_injection="stays")
    goes = HookResult(
        action="inject_context",
        context_injection="goes",
        ephemeral=True,
        context_injection_role="user",
    )
    async with kernel(ctx, module) as session:
        hear(session, "prompt:submit", stays)
        hear(session, "provider:request", goes)
        await session.execute("go")
    assert [one.content for one in module.requests[0].messages] == ["stays", "go", "goes"]
    assert [one["content"] for one in await ctx.get_messages()][:2] == ["stays", "go"]


async def test_what_hooks_inject_after_a_tool_is_sent_with_the_next_request_alone(
    engine: Engine, ctx: Context
) -> None:
    busy = RateLimitError("busy", retry_after=0.0)
    module = Module(uses("c1", "write"), busy, uses("c2", "write"), replies("ok"))
    once: Any = {"action": "inject_context", "ephemeral": True}
    first = HookResult(**once, context_injection="look")
    second = HookResult(**once, context_injection="mind the gap", append_to_last_tool_result=True)
    agent = MountedOrchestrator(EventsOrchestrator(sleep=Waits()))
    async with kernel(ctx, module) as session:
        await session.coordinator.mount("orchestrator", agent)
        nothing = HookResult(action="continue")
        answers = iter([first, second, nothing, nothing])
        hear(session, "tool:post", lambda _: next(answers))
        hear(session, "tool:post", lambda _: next(answers))
        assert await session.execute("go") == "ok"
    sent = [[str(one.content) for one in request.messages] for request in module.requests]
    for request in sent[1:3]:
        assert request[-1] == "look"
        assert request[-2].endswith("\n\nmind the gap")
    assert not any("look" in text or "gap" in text for text in sent[3])
    # What was sent besides is in the log, for each of the two attempts.
    found = [one async for one in engine.records("s", bodies=True) if "request_sent" in one.type]
    events: list[Any] = [decode_event(one) for one in found]
    assert [(one.messages, one.missing) for one in events] == [(4, 1)] * 2
    first_bodies, second_bodies = [[body.data for body in one.bodies] for one in found]
    assert b'"look"' in b"".join(first_bodies)
    assert second_bodies == []  # the same texts, by reference
    assert len(await ctx.get_messages()) == 6


async def test_a_request_that_amplifier_calls_too_long_is_compacted_once(ctx: Context) -> None:
    module = Module(ContextLengthError("too many tokens"), replies("ok"))
    for number in range(40):
        await ctx.add_message({"role": "user", "content": f"{number} " + "x" * 400})
        await ctx.add_message({"role": "assistant", "content": "y" * 400})
    recorder = EventRecorder()
    assert (await go(ctx, module, hooks=recorder)).text == "ok"
    first, second = [len(one.messages) for one in module.requests]
    assert second < first
    ((_, pre),) = recorder.get_events("context:pre_compact")
    ((_, post),) = recorder.get_events("context:post_compact")
    assert pre["span_id"] == post["span_id"]
    assert post["removed_tokens"] == post["before_tokens"] - post["after_tokens"] > 0
    assert pre["turn_id"] == recorder.get_events("prompt:submit")[0][1]["turn_id"]


@pytest.mark.parametrize("kind", [BasicOrchestrator, StreamingOrchestrator, EventsOrchestrator])
async def test_each_runs_without_the_kernel_on_a_context_that_records_nothing(kind: Any) -> None:
    context, recorder = MockContextManager(), EventRecorder()
    basic = kind is BasicOrchestrator
    steps = [] if basic else [uses("c1", "mock_tool")]
    module = Module(*steps, replies("ok"))
    settings = {"tools": "ignore"} if basic else {}
    response = await go(context, module, MockTool(), hooks=recorder, loop=kind, **settings)
    assert response.text == "ok"
    roles = [one["role"] for one in context.messages]
    assert roles == (["user", "assistant", "tool", "assistant"] if steps else ["user", "assistant"])
    spans = {data["span_id"] for _, data in recorder.get_events("provider:request")}
    assert len(spans) == len(module.requests)
    assert {data["turn_id"] for _, data in recorder.events} == {response.turn_id}


async def test_the_provider_of_the_lowest_priority_is_asked_or_the_one_that_is_named() -> None:
    first, second = (
        Module(replies("a"), replies("a"), priority=50),
        Module(replies("b"), priority=60),
    )
    providers = {"second": second, "first": first}
    for settings, text in (({}, "a"), ({"provider": "second"}, "b")):
        agent = BasicOrchestrator(**settings)
        assert (await agent.execute("go", MockContextManager(), providers)).text == text


async def test_settings_of_a_mount_plan_are_checked(ctx: Context) -> None:
    with pytest.raises(RuntimeError, match="max_iterations: expected an int from 1"):
        async with kernel(ctx, Module(), max_iterations="many"):
            pass
    with pytest.warns(UnknownSetting, match="extended_thinking"):
        async with kernel(
            ctx, Module(replies("ok")), max_iterations=-1, extended_thinking=True
        ) as session:
            assert await session.execute("go") == "ok"


# -- rows of any dialect become messages that Amplifier's providers accept -------------------------


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig==", "visibility": None}
OWN_CALL = {"type": "tool_call", "id": "c", "name": "n", "input": {}, "visibility": None}
OWN_CALLS = [{"id": "c", "tool": "n", "arguments": {}}]
AMPLIFIER: list[dict[str, Any]] = [
    {"role": "user", "content": "hi", "metadata": {"timestamp": "x"}},
    {"role": "assistant", "content": [THOUGHT, OWN_CALL], "tool_calls": OWN_CALLS},
    {"role": "tool", "tool_call_id": "c", "name": "n", "content": "done"},
]


def test_amplifiers_own_rows_pass_as_they_are() -> None:
    assert as_messages(AMPLIFIER) == [Message(**row) for row in AMPLIFIER]


CALL = {"type": "tool_call", "id": "c", "name": "n", "input": {"a": 1}}
CALLS = [{"id": "c", "tool": "n", "arguments": {"a": 1}}]
THEIRS = [{"id": "c", "function": {"name": "n", "arguments": '{"a": 1}'}}]
SO, TEXT = {"type": "text", "text": "so"}, {"type": "text", "text": "and?"}
VIDEO = {"type": "text", "text": '{"type":"video","id":3}'}
BYTES = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
IMAGE = [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "input_text", "text": "and?"},
]
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c", "content": "one"},
    {"type": "tool_result", "tool_use_id": "d", "content": [{"text": "two"}]},
]
ANSWERED = [
    {"role": "tool", "tool_call_id": call, "content": text}
    for call, text in (("c", "one"), ("d", "two"))
]


@pytest.mark.parametrize(
    ("role", "content", "calls", "expected"),
    [
        ("assistant", None, THEIRS, [{"content": [CALL], "tool_calls": CALLS}]),
        ("assistant", "so", THEIRS, [{"content": [SO, CALL], "tool_calls": CALLS}]),
        ("assistant", None, None, [{"content": ""}]),
        ("user", [*RESULTS, TEXT], None, [*ANSWERED, {"content": [TEXT]}]),
        ("user", IMAGE, None, [{"content": [{"type": "image", "source": BYTES}, TEXT]}]),
        ("user", [{"type": "video", "id": 3}], None, [{"content": [VIDEO]}]),
        ("critic", "no", None, [{"role": "user", "content": "no"}]),
    ],
    ids=range(7),
)
def test_other_dialects_are_put_into_amplifiers_words(
    role: str, content: Any, calls: Any, expected: list[dict[str, Any]]
) -> None:
    row = {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}
    made = [one.model_dump(exclude_none=True) for one in as_messages([row])]
    assert made == [{"role": role, **one} for one in expected]


# -- requests in which the model may call no tool --------------------------------------------------


LOOK = tool("look")


class Choosing(Scripted):
    takes_tool_choice = True


def sent(provider: Scripted) -> list[tuple[int, str | None]]:
    """Of each request the number of tools, and the choice."""
    return [(len(one.tools), one.tool_choice) for one in provider.requests]


async def digests(ctx: Context) -> list[str | None]:
    prepared = [decode_event(one) for one in await records(ctx)]
    return [one.tools_digest for one in prepared if isinstance(one, RequestPrepared)]


async def test_a_plan_and_the_answer_at_the_limit_are_asked_with_the_tools(ctx: Context) -> None:
    provider = Choosing(says("first"), calls(("c1", "look")), says("done"))
    await go(ctx, provider, LOOK, planning=True, max_iterations=2)
    assert sent(provider) == [(1, "none"), (1, None), (1, "none")]
    (digest,) = set(await digests(ctx))
    assert digest is not None


async def test_a_choice_needs_tools_and_a_provider_that_takes_it() -> None:
    provider: Scripted = Choosing(says("first"), says("done"))
    await go(MockContextManager(), provider, planning=True)
    assert sent(provider) == [(0, None), (0, None)]
    provider = Scripted(says("first"), says("done"))
    await go(MockContextManager(), provider, LOOK, planning=True)
    assert sent(provider) == [(0, None), (1, None)]


REFUSED = ProviderFailed("p", "Unknown parameter: 'tool_choice'.", status=400)


@pytest.mark.parametrize("retries", [0, 4])
@pytest.mark.parametrize(
    "first", [calls(("c1", "look")), REFUSED], ids=["it calls all the same", "the API refuses it"]
)
async def test_where_the_choice_does_not_work_the_tools_are_withheld_for_the_turn(
    ctx: Context, first: Any, retries: int
) -> None:
    provider = Choosing(first, says("plan"), calls(("c1", "look")), says("done"))
    limits = {"max_iterations": 2, "max_retries": retries}
    response = await go(ctx, provider, LOOK, planning=True, **limits)
    assert (response.text, response.finish) == ("done", "iteration_limit")
    assert sent(provider) == [(1, "none"), (0, None), (1, None), (0, None)]
    assert activity(await records(ctx))[:7] == [
        *("prompt:submit", "plan:start", "provider:request", "provider:error"),
        *("provider:request", "provider:response", "plan:end"),
    ]
    assert [one is not None for one in await digests(ctx)] == [True, False, True, False]


async def test_a_provider_of_amplifier_gets_the_choice() -> None:
    module = Module(InvalidRequestError("tool_choice is not supported"), replies("a"), replies("b"))
    await go(MockContextManager(), module, LOOK, planning=True)
    asked = [(one.tool_choice, len(one.tools or ())) for one in module.requests]
    assert asked == [("none", 1), (None, 0), (None, 1)]


async def test_the_streaming_one_asks_with_the_tools_at_its_limit() -> None:
    class ChoosingStream(Streaming):
        takes_tool_choice = True

    provider = ChoosingStream([calls(("c1", "look"))], pieces("done"))
    limit: Any = {"loop": StreamingOrchestrator, "max_iterations": 1}
    response = await go(MockContextManager(), provider, LOOK, **limit)
    assert (response.text, response.finish) == ("done", "iteration_limit")
    assert sent(provider) == [(1, None), (1, "none")]


# -- what the kernel shows of our loops when they are mounted --------------------------------------


async def test_basic_does_not_mount_in_a_plan_that_names_tools() -> None:
    words = r"Cannot initialize without orchestrator: .*found tool-write: .*tools: ignore"
    with pytest.raises(RuntimeError, match=words):
        async with kernel(MockContextManager(), Module(), loop="basic"):
            pass


async def test_basic_mounts_where_the_plan_says_to_ignore_them() -> None:
    module, tool = Module(replies("hello")), Writes()
    async with kernel(MockContextManager(), module, tool, loop="basic", tools="ignore") as host:
        assert await host.execute("hi") == "hello"
    assert tool.inputs == []
    assert [one.name for one in module.requests[0].tools or ()] == ["write"]
    assert module.requests[0].tool_choice == "none"


async def test_tools_that_the_plan_does_not_name_are_refused_by_execute(ctx: Context) -> None:
    brought = {
        "context-test": mounting("context", ctx),
        "hooks-test": mounting("tools", Writes(), "write"),
    }
    plan: Any = {"loop": "loop-eventctx-basic", "context": "context-test", "modules": brought}
    async with session(Module(), **plan) as host:
        with pytest.raises(RuntimeError, match=r"InvalidSetting.*found write: "):
            await host.execute("hi")
    assert activity(await records(ctx)) == []


async def test_an_id_that_the_app_leaves_names_the_next_turn_and_no_other(ctx: Context) -> None:
    module = Module(replies("a"), replies("b"))
    async with kernel(ctx, module) as host:
        submitted = hear(host, "prompt:submit")
        host.coordinator.session_state["turn_id"] = "order-17-1"
        await host.execute("first")
        await host.execute("second")
    first, second = [one["turn_id"] for one in submitted]
    assert first == "order-17-1" and second not in (None, "order-17-1")
    assert [one.turn_id for one in await records(ctx, "prompt:submit")] == [first, second]
    assert module.requests[0].metadata["turn_id"] == "order-17-1"  # type: ignore[index]


@pytest.mark.parametrize("wrong", ["", 7, "x" * 257, "a\nb"])
async def test_an_id_that_is_none_is_refused_and_forgotten(ctx: Context, wrong: Any) -> None:
    async with kernel(ctx, Module(replies("a"))) as host:
        host.coordinator.session_state["turn_id"] = wrong
        with pytest.raises(RuntimeError, match="turn_id: expected"):
            await host.execute("go")
        assert activity(await records(ctx)) == []
        assert await host.execute("go") == "a"
