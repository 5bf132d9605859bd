"""Agents that tools of a Pydantic AI agent run: each run is a session linked to the call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="an extra: eventctx[pydantic-ai]")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from eventctx.adapters.pydantic_ai import Eventctx
from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.adapters.nested_runs import links, names


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(MemoryStore())
    yield engine
    await engine.close()


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def asks(*call_ids: str) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart("ask", {}, one) for one in call_ids])


def agent_of(capability: Eventctx, *script: ModelResponse) -> Agent[Any, str]:
    answers = iter(script)

    async def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        return next(answers)

    return Agent(FunctionModel(answer), capabilities=[capability])


async def check_sound(engine: Engine, session: str, requests: int) -> None:
    """Check that a session holds one run: each request verifies, and nothing was replaced."""
    rows = (await engine.audit(session)).requests
    assert len(rows) == requests
    for row in rows:
        assert (await engine.request_view(session, position=row.position)).verified
    types = [one.type async for one in engine.records(session)]
    assert {"context:messages_set", "tool:error"}.isdisjoint(types)


async def delegate(engine: Engine, outer: Eventctx, inner: Eventctx) -> None:
    sub = agent_of(inner, says("one"), says("two"))
    main = agent_of(outer, asks("a", "b"), says("done"))

    @main.tool_plain
    async def ask() -> str:
        """Ask."""
        return (await sub.run("2+2?")).output

    assert (await main.run("Hi.")).output == "done"


async def test_runs_inside_tools_that_have_the_session_around_them_are_linked_sessions(
    engine: Engine,
) -> None:
    ours = Eventctx(engine, "s", recall=False)
    await delegate(engine, ours, ours)
    assert await names(engine) == ["s", "s.a", "s.b"]
    assert sorted(await links(engine, "s")) == [("s.a", "a"), ("s.b", "b")]
    for session, requests in (("s", 2), ("s.a", 1), ("s.b", 1)):
        await check_sound(engine, session, requests)


async def test_of_runs_beside_each_other_in_one_session_one_has_it(engine: Engine) -> None:
    outer, inner = Eventctx(engine, "s", recall=False), Eventctx(engine, "helper", recall=False)
    await delegate(engine, outer, inner)
    assert await names(engine) == ["helper", "helper.b", "s"]
    assert sorted(await links(engine, "s")) == [("helper", "a"), ("helper.b", "b")]
    for session, requests in (("s", 2), ("helper", 1), ("helper.b", 1)):
        await check_sound(engine, session, requests)


async def test_runs_inside_tools_with_conversations_of_their_own_are_linked(
    engine: Engine,
) -> None:
    ours = Eventctx(engine, recall=False)
    await delegate(engine, ours, ours)
    (main,) = [one for one in await names(engine) if len(await links(engine, one)) == 2]
    children = [child for child, _ in await links(engine, main)]
    assert sorted([main, *children]) == await names(engine)
    for child in children:
        await check_sound(engine, child, 1)
