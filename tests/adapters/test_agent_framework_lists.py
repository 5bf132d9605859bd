"""Lists of Agent Framework that are not the conversation: cut, changed, new, on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from agent_framework import (
    AgentMiddleware,
    AgentSession,
    ChatMiddleware,
    Content,
    ContextProvider,
    InMemoryHistoryProvider,
    Message,
    MiddlewareTermination,
    SlidingWindowStrategy,
)

import eventctx
from eventctx.adapters.agent_framework import EventctxAgents
from eventctx.engine import Engine
from tests.adapters.drivers.agent_framework import Retries
from tests.adapters.drivers.agent_framework_runs import (
    HOW,
    agent_of,
    ask,
    count,
    read,
    reads,
    script,
    sent,
    texts,
)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


class Memory(ContextProvider):
    def __init__(self) -> None:
        super().__init__("memory")
        self.number = 0

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        self.number += 1
        context.extend_messages(self, [Message("user", [f"memory {self.number}"])])


async def test_what_a_context_provider_adds_is_in_the_request_alone(engine: Engine) -> None:
    client, session = script("One.", reads(1), "Two."), AgentSession(session_id="s")
    providers = [InMemoryHistoryProvider(), Memory()]
    agent = agent_of(client, EventctxAgents(engine), context_providers=providers, tools=[read])
    await agent.run("First?", session=session)
    await agent.run("Second?", session=session)
    assert sent(client) == [
        ["memory 1", "First?"],
        ["First?", "One.", "memory 2", "Second?"],
        ["First?", "One.", "memory 2", "Second?", "assistant", "tool"],
    ]
    assert (await texts(engine))[:3] == ["First?", "One.", "Second?"]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 1)] * 3


async def test_where_the_framework_compacts_nothing_else_does(engine: Engine) -> None:
    client, session = script(reads(1), reads(2), "Read."), AgentSession(session_id="s")
    ours = EventctxAgents(engine, max_tokens=500, reserve_tokens=0, on_overflow="send_floor")
    window = SlidingWindowStrategy(keep_last_groups=100)
    agent = agent_of(client, ours, tools=[read], compaction_strategy=window)
    await agent.run("Read both.", session=session)
    assert sent(client)[-1] == ["Read both.", "assistant", "tool", "assistant", "tool"]


async def test_a_list_that_was_cut_in_its_middle_is_no_conversation_that_went_back(
    engine: Engine,
) -> None:
    class KeepsEnds(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            context.messages = [*context.messages[:1], *context.messages[1:][-2:]]
            await call_next()

    client, session = script("One.", "Two.", "Three."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[KeepsEnds(), *ours.middleware])
    for text in ("First?", "Second?", "Third?"):
        await agent.run(text, session=session)
    assert sent(client)[-1] == ["First?", "Two.", "Third?"]
    assert await count(engine, "context:messages_set") == [0]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (0, 0), (2, 0)]


async def test_a_content_that_was_changed_in_its_place_is_read_again(engine: Engine) -> None:
    class Redacts(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            if len(context.messages) > 1:
                context.messages[0].contents[0].text = "[redacted]"
            await call_next()

    client, session = script("One.", "Two."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[Redacts(), *ours.middleware])
    await agent.run("Secret?", session=session)
    await agent.run("Second?", session=session)
    assert sent(client)[-1] == ["[redacted]", "One.", "Second?"]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (1, 1)]


@HOW
async def test_a_compaction_of_the_framework_is_recorded_not_fought(
    engine: Engine, stream: bool
) -> None:
    client, session = script("One.", "Two.", "Three."), AgentSession(session_id="s")
    window = SlidingWindowStrategy(keep_last_groups=1)
    agent = agent_of(client, EventctxAgents(engine), compaction_strategy=window)
    for number in range(3):
        await ask(agent, f"Question {number}?", session, stream)
    assert sent(client) == [["Question 0?"], ["Question 1?"], ["Question 2?"]]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0), (2, 0), (4, 0)]
    assert (await texts(engine))[-2:] == ["Question 2?", "Three."]
    assert await count(engine, "context:messages_set") == [0]


@HOW
async def test_a_conversation_on_a_server_is_observed_and_never_compacted(
    engine: Engine, stream: bool
) -> None:
    client, session = script(reads(1), "One.", "Two."), AgentSession(session_id="s")
    client.conversation = "conversation_1"
    agent = agent_of(
        client,
        EventctxAgents(engine, max_tokens=500, reserve_tokens=0),
        tools=[read],
        default_options={"store": True},
    )
    await ask(agent, "Again?", session, stream)
    await ask(agent, "Again?", session, stream)
    assert sent(client) == [["Again?"], ["tool"], ["Again?"]]
    assert await texts(engine) == ["Again?", "tool_use", "tool_result", "One.", "Again?", "Two."]
    assert await count(engine, "context:post_compact", "context:messages_set") == [0, 0]
    views = [
        await engine.request_view("s", position=one.position)
        for one in (await engine.audit("s")).requests
    ]
    assert [len(one.messages) for one in views] == [1, 1, 1]
    assert all(one.verified and one.known == "observed" for one in views)


async def test_a_call_that_is_repeated_to_a_server_adds_nothing_twice(engine: Engine) -> None:
    client, session = script("One.", OSError("unplugged"), "Two."), AgentSession(session_id="s")
    client.conversation = "conversation_1"
    agent = agent_of(client, EventctxAgents(engine), default_options={"store": True})
    await agent.run("First?", session=session)
    with pytest.raises(OSError, match="unplugged"):
        await agent.run("Second?", session=session)
    await agent.run("Second?", session=session)
    assert await texts(engine) == ["First?", "One.", "Second?", "Two."]


async def test_a_middleware_before_ours_keeps_the_list_that_it_gave(engine: Engine) -> None:
    class Sees(ChatMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            given = context.messages
            await call_next()
            kept.append(context.messages is given)

    kept: list[bool] = []
    ours = EventctxAgents(engine)
    agent = agent_of(script("Yes."), ours, middleware=[Sees(), *ours.middleware])
    await agent.run("There?")
    assert kept == [True]


async def test_a_call_that_is_repeated_begins_with_the_list_of_the_run(engine: Engine) -> None:
    rounds = [reads(page) for page in range(6)]
    client = script(*rounds, ConnectionError("unplugged"), "Read.")
    ours = EventctxAgents(engine, max_tokens=1_500, reserve_tokens=0)
    agent = agent_of(client, ours, middleware=[Retries(1), *ours.middleware], tools=[read])
    await agent.run("Read all.", session=AgentSession(session_id="s"))
    requests = sent(client)
    assert requests[-2] == requests[-1]
    assert len(requests[-1]) < 13
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 8


@HOW
async def test_our_history_for_each_call_is_the_view(engine: Engine, stream: bool) -> None:
    client, session = script(reads(1), "One.", reads(2), "Two."), AgentSession(session_id="s")
    ours = EventctxAgents(engine, max_tokens=1_400, reserve_tokens=0)
    agent = agent_of(
        client,
        ours,
        tools=[read],
        context_providers=[ours.history],
        require_per_service_call_history_persistence=True,
    )
    await ask(agent, "Again?", session, stream)
    await ask(agent, "Again?", session, stream)
    round_ = ["assistant", "tool"]
    assert sent(client) == [
        ["Again?"],
        ["Again?", *round_],
        ["Again?", *round_, "One.", "Again?"],
        ["Again?", "One.", "Again?", *round_],
    ]
    read_once = ["Again?", "tool_use", "tool_result"]
    assert await texts(engine) == [*read_once, "One.", *read_once, "Two."]
    assert len(await ours.history.get_messages("s")) == 8
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 4


@HOW
async def test_a_history_of_the_framework_for_each_call_is_recorded(
    engine: Engine, stream: bool
) -> None:
    client, session = script(reads(1), "One.", "Two."), AgentSession(session_id="s")
    agent = agent_of(
        client,
        EventctxAgents(engine),
        tools=[read],
        context_providers=[InMemoryHistoryProvider()],
        require_per_service_call_history_persistence=True,
    )
    await ask(agent, "Again?", session, stream)
    await ask(agent, "Again?", session, stream)
    round_ = ["assistant", "tool"]
    assert sent(client)[1:] == [["Again?", *round_], ["Again?", *round_, "One.", "Again?"]]
    read_once = ["Again?", "tool_use", "tool_result"]
    assert await texts(engine) == [*read_once, "One.", "Again?", "Two."]
    audit = await engine.audit("s")
    assert [(one.missing, one.additions) for one in audit.requests] == [(0, 0)] * 3


async def test_an_answer_that_a_middleware_changed_is_the_one_that_stays(engine: Engine) -> None:
    class Redacts(AgentMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result.messages[-1].contents = [Content.from_text("[redacted]")]

    client, session = script("Secret.", "Yes."), AgentSession(session_id="s")
    ours = EventctxAgents(engine)
    agent = agent_of(client, ours, middleware=[*ours.middleware, Redacts()])
    await agent.run("First?", session=session)
    assert await texts(engine) == ["First?", "[redacted]"]


async def test_a_run_that_a_middleware_ended_keeps_its_answer(engine: Engine) -> None:
    class Ends(AgentMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            await call_next()
            context.result = None
            raise MiddlewareTermination

    ours = EventctxAgents(engine)
    agent = agent_of(script("Yes."), ours, middleware=[*ours.middleware, Ends()])
    await agent.run("There?", session=AgentSession(session_id="s"))
    assert await texts(engine) == ["There?", "Yes."]
    assert await count(engine, "prompt:complete", "context:messages_set") == [1, 0]
