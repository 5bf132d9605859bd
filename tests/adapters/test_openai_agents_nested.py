"""Agents that are tools of another agent: their runs are sessions that are linked to its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import agents
import pytest
from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from eventctx.adapters.openai_agents import AgentsSession
from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.adapters.nested_runs import links, names

agents.set_tracing_disabled(True)

ANSWER = [assistant_message("It is 4.")]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine(MemoryStore())
    yield engine
    await engine.close()


@function_tool
def look() -> str:
    """Look it up."""
    return "word " * 400


def helper(*script: list[Any]) -> tuple[ScriptedModel, Agent[Any]]:
    model = ScriptedModel([*script])
    return model, Agent(name="sub", instructions="Help.", model=model, tools=[look])


def asking(sub: Agent[Any], *calls: list[Any]) -> tuple[ScriptedModel, Agent[Any]]:
    model = ScriptedModel([*calls, ANSWER])
    tool = sub.as_tool("ask", "Ask the helper.")
    return model, Agent(name="main", instructions="Be brief.", model=model, tools=[tool])


def ask(call_id: str, text: str = "2+2?") -> Any:
    return function_call("ask", {"input": text}, call_id=call_id)


async def check_views(engine: Engine, session: str, model: ScriptedModel) -> None:
    """Check that this model received the verified views of a session, and nothing else."""
    views = []
    for row in (await engine.audit(session)).requests:
        view = await engine.request_view(session, position=row.position)
        assert view.verified
        views.append([one for one in view.messages if one.get("role") != "system"])
    assert views == [call.input for call in model.calls]


async def test_a_run_inside_a_tool_is_a_session_that_the_tools_call_is_linked_to(
    engine: Engine,
) -> None:
    inner, sub = helper([function_call("look", {}, call_id="k")], [assistant_message("four")])
    outer, main = asking(sub, [ask("c1")])
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s", "s.c1"]
    await check_views(engine, "s", outer)
    await check_views(engine, "s.c1", inner)
    assert await links(engine, "s") == [("s.c1", "c1")]
    types = [one.type async for one in engine.records("s")]
    assert "tool:error" not in types
    assert "context:request_sent" not in types
    ended = [one.type async for one in engine.records("s.c1")]
    assert ended[-1] == "prompt:complete"


async def test_runs_that_two_calls_of_one_answer_begin_are_told_apart(engine: Engine) -> None:
    looks = [[function_call("look", {}, call_id=f"k{n}")] for n in range(2)]
    _, sub = helper(*looks, [assistant_message("one")], [assistant_message("two")])
    outer, main = asking(sub, [ask("c1", "first?"), ask("c2", "second?")])
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s", "s.c1", "s.c2"]
    await check_views(engine, "s", outer)
    for child, asked in (("s.c1", "first?"), ("s.c2", "second?")):
        audit = await engine.audit(child)
        assert len(audit.requests) == 2
        first = (await engine.transcript(child))[0].message
        assert first == {"role": "user", "content": asked}


async def test_what_a_run_inside_a_tool_is_sent_fits_the_budget(engine: Engine) -> None:
    steps = [[function_call("look", {}, call_id=f"k{n}")] for n in range(8)]
    inner, sub = helper(*steps, [assistant_message("four")])
    _, main = asking(sub, [ask("c1")])
    session = await AgentsSession.open(engine, "s", max_tokens=2_000, reserve_tokens=0)
    await Runner.run(main, "Sum it up.", **session.options(main))
    await check_views(engine, "s.c1", inner)
    assert len(inner.calls[-1].input) < len(await engine.transcript("s.c1"))


async def test_a_session_made_of_a_context_leaves_such_runs_alone(engine: Engine) -> None:
    inner, sub = helper([assistant_message("four")])
    outer, main = asking(sub, [ask("c1")])
    session = AgentsSession(await engine.session("s"))
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert await names(engine) == ["s"]
    await check_views(engine, "s", outer)
    assert inner.calls[0].input == [{"role": "user", "content": "2+2?"}]


async def test_a_run_that_failed_in_its_tool_leaves_the_next_one_sound(engine: Engine) -> None:
    @function_tool(failure_error_function=None)
    def broken() -> str:
        raise ValueError("no")

    model = ScriptedModel([[function_call("broken", {}, call_id="b")], ANSWER])
    main = Agent(name="main", model=model, tools=[broken])
    session = await AgentsSession.open(engine, "s")
    with pytest.raises(agents.exceptions.UserError):
        await Runner.run(main, "Try.", **session.options(main))
    result = Runner.run_streamed(main, "Go on.", **session.options(main))
    async for _ in result.stream_events():
        pass
    assert result.final_output == "It is 4."
    assert await names(engine) == ["s"]
    await check_views(engine, "s", model)


async def test_the_same_agent_inside_itself_is_told_from_the_one_outside(engine: Engine) -> None:
    model = ScriptedModel([[ask("c1", "Sum it up.")], [assistant_message("four")], ANSWER])
    main = Agent(name="main", instructions="Be brief.", model=model)
    main.tools.append(main.as_tool("ask", "Ask yourself."))
    session = await AgentsSession.open(engine, "s")
    await Runner.run(main, "Sum it up.", **session.options(main))
    assert [len((await engine.audit(name)).requests) for name in ("s", "s.c1")] == [2, 1]


async def test_a_call_of_a_later_turn_with_the_same_id_is_linked_once(engine: Engine) -> None:
    _, sub = helper([assistant_message("four")], [assistant_message("five")])
    outer, main = asking(sub, [ask("c1")], ANSWER, [ask("c1")])
    session = await AgentsSession.open(engine, "s")
    for _ in range(2):
        await Runner.run(main, "Sum it up.", **session.options(main))
    assert [len((await engine.audit(name)).requests) for name in ("s", "s.c1")] == [4, 2]
    types = [one.type async for one in engine.records("s.c1")]
    assert (types.count("session:linked"), types.count("prompt:submit")) == (1, 2)
    assert len(outer.calls) == 4


async def test_a_run_that_a_person_lets_go_on_inside_its_tool_is_still_the_sessions_own(
    engine: Engine,
) -> None:
    @function_tool(needs_approval=True)
    def erase() -> str:
        """Erase it."""
        return "erased"

    inner = ScriptedModel([[function_call("erase", {}, call_id="e")], [assistant_message("Done.")]])
    sub = Agent(name="sub", instructions="Help.", model=inner, tools=[erase])
    outer, main = asking(sub, [ask("c1")])
    session = await AgentsSession.open(engine, "s")
    stopped = await Runner.run(main, "Erase it.", **session.options(main))
    state = stopped.to_state()
    for one in stopped.interruptions:
        state.approve(one)
    result = await Runner.run(main, state, **session.options(main))
    assert result.final_output == "It is 4."
    await check_views(engine, "s", outer)
