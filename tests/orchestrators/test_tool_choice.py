"""Requests in which the model may call no tool, and our loops mounted in the kernel."""

from __future__ import annotations

from typing import Any

import pytest
from amplifier_core.llm_errors import InvalidRequestError
from amplifier_core.testing import MockContextManager

from eventctx import Context
from eventctx.errors import ProviderFailed
from eventctx.log.codec import decode_event
from eventctx.log.events import RequestPrepared
from eventctx.orchestrators import StreamingOrchestrator
from tests.amplifier.hosts import mounting, session
from tests.orchestrators.agents import (
    Scripted,
    Streaming,
    activity,
    calls,
    go,
    pieces,
    records,
    says,
    tool,
)
from tests.orchestrators.host import Module, Writes, hear, kernel
from tests.orchestrators.host import says as answers

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
    module = Module(InvalidRequestError("tool_choice is not supported"), answers("a"), answers("b"))
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
    module, tool = Module(answers("hello")), Writes()
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
    module = Module(answers("a"), answers("b"))
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
    async with kernel(ctx, Module(answers("a"))) as host:
        host.coordinator.session_state["turn_id"] = wrong
        with pytest.raises(RuntimeError, match="turn_id: expected"):
            await host.execute("go")
        assert activity(await records(ctx)) == []
        assert await host.execute("go") == "a"
