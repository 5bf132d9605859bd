"""The saver and the middleware of one agent write one session, by turns."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

import eventctx
import eventctx.sync
from eventctx.adapters.langchain import EventctxMiddleware
from tests.adapters import graphs
from tests.adapters.graphs import agent_with, asks, run_of

SMALL: dict[str, Any] = {"max_tokens": 3_000, "reserve_tokens": 0}


class Scripted(FakeMessagesListChatModel):
    def bind_tools(self, tools: Any, **more: Any) -> Any:
        return self


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agents.db"


@pytest.fixture
def ours(store: Path) -> Iterator[EventctxMiddleware]:
    made = EventctxMiddleware(store, **SMALL)
    yield made
    made.close()


def types_in(store: Path, session: str) -> Counter[str]:
    async def read() -> Counter[str]:
        async with eventctx.open(store, read_only=True) as engine:
            return Counter([one.type async for one in engine.store.read(session, bodies=False)])

    return asyncio.run(read())


def test_each_message_is_one_event_and_each_request_its_view(
    store: Path, ours: EventctxMiddleware
) -> None:
    calls = [
        {"name": "add", "args": {"a": number, "b": 1}, "id": f"call-{number}"}
        for number in range(9)
    ]
    script: list[AIMessage] = []
    for turn in range(3):
        script += [
            AIMessage("words " * 150, id=one["id"], tool_calls=[one])
            for one in calls[3 * turn : 3 * turn + 3]
        ]
        script.append(AIMessage("done", id=f"done-{turn}"))
    model = Scripted(responses=script)
    agent = create_agent(model, [graphs.add], middleware=[ours], checkpointer=ours.saver())
    said = [agent.invoke(asks("go on"), run_of("t")) for _ in range(3)][-1]["messages"]
    assert agent.get_state(run_of("t")).values["messages"] == said
    ours.close()
    types = types_in(store, "t")
    assert types["context:message_added"] == len(said)
    assert types["context:messages_set"] == 0
    assert types["context:post_compact"] > 0
    with eventctx.sync.open(store) as engine:
        assert engine.verify("t").ok
        audit = engine.audit("t")
        assert len(audit.requests) == 12
        positions = [one.position for one in audit.requests]
        assert all(engine.request_view("t", position=at).verified for at in positions)


def test_slow_parallel_tools_set_nothing(store: Path, ours: EventctxMiddleware) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        time.sleep(0.3 * (1 - b))
        return a + b

    model = graphs.Counting(rounds=3)
    agent = graphs.create_agent(model, [add], middleware=[ours], checkpointer=ours.saver())
    said = [agent.invoke(asks("go on"), run_of("t")) for _ in range(2)][-1]["messages"]
    ours.close()
    types = types_in(store, "t")
    assert types["context:message_added"] == len(said) == 22
    assert types["context:messages_set"] == 0


def test_a_deleted_thread_begins_anew(store: Path, ours: EventctxMiddleware) -> None:
    saver = ours.saver()
    agent = agent_with(saver, middleware=[ours])
    agent.invoke(asks("hi"), run_of("t"))
    saver.delete_thread("t")
    assert len(agent.invoke(asks("anew"), run_of("t"))["messages"]) == 11
    ours.close()
    assert types_in(store, "t~2")["prompt:complete"] == 1


async def test_both_in_the_loop_of_one_engine() -> None:
    async with eventctx.open("memory://") as engine:
        ours = EventctxMiddleware(engine, **SMALL)
        agent = agent_with(ours.saver(), middleware=[ours])
        threads = [f"t{number}" for number in range(4)]
        said = await asyncio.gather(*[agent.ainvoke(asks("hi"), run_of(one)) for one in threads])
        for one, state in zip(threads, said, strict=True):
            assert len(await engine.transcript(one)) == len(state["messages"]) == 11
