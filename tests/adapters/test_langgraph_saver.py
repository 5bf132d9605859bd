"""LangGraph's checkpoints in our store: what another saver gives back, ours gives back, too."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, StateGraph

import eventctx
import eventctx.sync
from eventctx.adapters.langgraph import EventctxSaver
from eventctx.adapters.langgraph.rows import row_of
from eventctx.errors import InvalidSetting
from eventctx.log.record import Record
from eventctx.stores.memory import MemoryStore
from tests.adapters import graphs
from tests.adapters.graphs import agent_with, asks, run_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def saver(store: Path) -> Iterator[EventctxSaver]:
    made = EventctxSaver(store)
    yield made
    made.close()


def records_of(store: Path, thread: str) -> list[Record]:
    async def read() -> list[Record]:
        async with eventctx.open(store, read_only=True) as engine:
            return [one async for one in engine.store.read(thread)]

    return asyncio.run(read())


def transcript(store: Path, thread: str) -> list[Any]:
    with eventctx.sync.open(store, read_only=True) as engine:
        return [one.message for one in engine.transcript(thread)]


# -- as other savers -----------------------------------------------------------------------------


@pytest.mark.parametrize("story", [graphs.agent_story, graphs.worker_story, graphs.nested_story])
def test_a_graph_does_the_same_as_with_langgraphs_own_saver(
    story: Callable[[Any], list[Any]], saver: EventctxSaver
) -> None:
    assert story(saver) == story(InMemorySaver())


async def test_it_serves_asynchronous_runs_in_the_loop_of_an_engine() -> None:
    async with eventctx.open("memory://") as engine:
        agent = agent_with(EventctxSaver(engine))
        said = await agent.ainvoke(asks("hi"), run_of("t"))
        assert (await agent.aget_state(run_of("t"))).values == said
        assert len([one async for one in agent.aget_state_history(run_of("t"))]) == 9
        assert len(await engine.transcript("t")) == 11


def test_a_loop_that_ends_while_writes_wait_leaves_no_work_that_never_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def one_write() -> None:
        saver = EventctxSaver(eventctx.Engine(MemoryStore()))
        await saver.aput(run_of("t"), empty_checkpoint(), {}, {})
        config = run_of("t")["configurable"] | {"checkpoint_ns": "", "checkpoint_id": "1"}
        await saver.aput_writes({"configurable": config}, [("messages", HumanMessage("hi"))], "1")

    for number in range(100):  # one of these waits ends between the loop's last steps
        wait = number / 100_000
        monkeypatch.setattr("eventctx.adapters.langgraph.saver.WAIT_SECONDS", wait)
        asyncio.run(one_write())
    gc.collect()  # such work is told when it is freed, and fails the test


def test_what_only_langchain_knows_of_a_message_comes_back(saver: EventctxSaver) -> None:
    odd: list[BaseMessage] = [
        HumanMessage("a", id="1", additional_kwargs={"x": 1}, name="Ann"),
        AIMessage("b", id="2", response_metadata={"text": "é" * 90, "pair": (1, 2)}),
        ToolMessage("c", tool_call_id="k", id="3", artifact={1: b"\xff"}, status="error"),
        AIMessage(
            "",
            id="4",
            tool_calls=[{"name": "f", "args": {"x": float("nan")}, "id": "k"}],
        ),
        HumanMessage([{"type": "text", "text": "hello"}, "there"], id="5"),
    ]
    graph: Any = StateGraph(graphs.Work)
    graph.add_node("say", lambda state: {"messages": odd})
    graph.add_edge(START, "say")
    made = graph.compile(checkpointer=saver)
    made.invoke(asks("go"), run_of("t"))
    back = made.get_state(run_of("t")).values["messages"][1:]
    assert [type(one).__name__ for one in back] == [type(one).__name__ for one in odd]
    assert [repr(one) for one in back] == [repr(one) for one in odd]


CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def put(saver: EventctxSaver, messages: list[BaseMessage]) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"messages": messages}}
    version = str(len(messages))
    checkpoint["channel_versions"] = {"messages": version}
    return saver.put(CONFIG, checkpoint, {}, {"messages": version})


def write_rows(store: Path, *messages: BaseMessage) -> None:
    """Write messages into the log, as a middleware does while a step runs."""
    with eventctx.sync.open(store) as engine:
        context = engine.session("t")
        for one in messages:
            context.add_message(row_of(one))


def test_what_only_langchain_knows_comes_back_of_a_message_that_the_log_had(
    store: Path, saver: EventctxSaver
) -> None:
    said, later = [
        AIMessage("b", id=one, response_metadata={"model_name": "m"}) for one in ("2", "3")
    ]
    listed: list[BaseMessage] = [HumanMessage("a", id="1"), said]
    write_rows(store, HumanMessage("taken out", id="0"), *listed)
    saved = put(saver, listed)
    write_rows(store, later)
    saver.put_writes(saved, [("messages", [later])], "task")
    saver.close()
    again = EventctxSaver(store)
    back = again.get_tuple(CONFIG)
    again.close()
    assert back is not None
    assert back.checkpoint["channel_values"]["messages"] == listed
    assert back.pending_writes == [("task", "messages", [later])]


# -- in the log ----------------------------------------------------------------------------------


def test_each_message_is_one_event_and_its_words_are_stored_once(
    store: Path, saver: EventctxSaver
) -> None:
    agent = agent_with(saver, words="unmistakable words of a model")
    said = [agent.invoke(asks("hi"), run_of("t")) for _ in range(4)][-1]["messages"]
    saver.close()
    records = records_of(store, "t")
    added = [one for one in records if one.type == "context:message_added"]
    assert len(added) == len(said)
    assert not any(one.type == "context:messages_set" for one in records)
    data = [body.data or b"" for one in records for body in one.bodies]
    assert sum(b"unmistakable words of a model 2" in one for one in data) == 1
    with eventctx.sync.open(store) as engine:
        assert engine.verify("t").ok


@pytest.mark.parametrize("steps", [(1, 2, 4, 5), (2, 5), (5,)])
def test_a_step_that_is_saved_after_messages_of_later_steps_takes_none_of_them_out(
    steps: tuple[int, ...], store: Path, saver: EventctxSaver
) -> None:
    calls = [{"name": "add", "args": {}, "id": one} for one in ("c", "d")]
    listed: list[BaseMessage] = [
        HumanMessage("a", id="0"),
        AIMessage("", id="1", tool_calls=calls),
        ToolMessage("slow", tool_call_id="c", id="2"),
        ToolMessage("fast", tool_call_id="d", id="3"),
        AIMessage("done", id="4"),
    ]
    write_rows(store, *[listed[place] for place in (0, 1, 3, 2, 4)])
    for count in steps:
        put(saver, listed[:count])
    back = saver.get_tuple(CONFIG)
    assert back is not None
    assert back.checkpoint["channel_values"]["messages"] == listed
    saver.close()
    types = [one.type for one in records_of(store, "t")]
    assert types.count("context:message_added") == len(listed)
    assert "context:messages_set" not in types
    assert [one["id"] for one in transcript(store, "t")] == ["0", "1", "3", "2", "4"]


def test_results_of_slow_parallel_tools_are_events_in_the_order_in_which_they_end(
    store: Path, saver: EventctxSaver
) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        time.sleep(0.3 * (1 - b))
        return a + b

    agent = graphs.create_agent(graphs.Counting(rounds=2), [add], checkpointer=saver)
    said = agent.invoke(asks("hi"), run_of("t"))["messages"]
    assert [one.tool_call_id for one in said if one.type == "tool"][:2] == ["ai-0-0", "ai-0-1"]
    assert agent.get_state(run_of("t")).values["messages"] == said
    results = [one for one in transcript(store, "t") if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results[:2]] == ["ai-0-1", "ai-0-0"]
    assert not any(one.type == "context:messages_set" for one in records_of(store, "t"))


def test_a_message_that_a_program_edits_in_place_is_another_event(saver: EventctxSaver) -> None:
    graph: Any = StateGraph(graphs.Work)

    def say(state: Any) -> Any:
        return {"messages": [AIMessage("first", id="1")]}

    def edit(state: Any) -> Any:
        state["messages"][-1].content = "second"
        return {"messages": [state["messages"][-1]]}

    graph.add_node("say", say)
    graph.add_node("edit", edit)
    graph.add_edge(START, "say")
    graph.add_edge("say", "edit")
    made = graph.compile(checkpointer=saver)
    made.invoke(asks("go"), run_of("t"), durability="sync")
    states = [one.values.get("messages", []) for one in made.get_state_history(run_of("t"))]
    assert [one[-1].content for one in states if len(one) > 1] == ["second", "first"]


def test_a_fork_of_a_session_is_a_thread(store: Path, saver: EventctxSaver) -> None:
    said = agent_with(saver).invoke(asks("hi"), run_of("t"))["messages"]
    saver.close()
    with eventctx.sync.open(store) as engine:
        last = len(records_of(store, "t")) - 1
        engine.fork("t", last, "tried")
    again = EventctxSaver(store)
    agent = agent_with(again)
    assert agent.get_state(run_of("tried")).values["messages"] == said
    assert len(agent.invoke(asks("else?"), run_of("tried"))["messages"]) == 2 * len(said)
    assert agent.get_state(run_of("t")).values["messages"] == said
    again.close()


# -- growth --------------------------------------------------------------------------------------


def grown(store: Path, thread: str) -> int:
    """Bytes of a session's payloads and bodies."""
    return sum(
        len(one.payload) + sum(len(body.data or b"") for body in one.bodies)
        for one in records_of(store, thread)
    )


def test_a_list_and_a_dict_that_grow_take_what_is_added_to_them(
    store: Path, saver: EventctxSaver
) -> None:
    graph: Any = StateGraph(graphs.Work)

    def work(state: Any) -> Any:
        number = state.get("rounds", 0)
        files = {**state.get("files", {}), f"f{number}": f"{number} " * 1_000}
        return {"rounds": number + 1, "log": [f"{number}, " * 300], "files": files}

    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda one: "work" if one["rounds"] < 40 else END)
    made = graph.compile(checkpointer=saver)
    said = made.invoke({"rounds": 0}, run_of("t"))
    assert made.get_state(run_of("t")).values == said
    history = [len(one.values.get("files", {})) for one in made.get_state_history(run_of("t"))]
    assert history == [*range(40, -1, -1), 0]
    whole = sum(map(len, said["files"].values())) + sum(map(len, said["log"]))
    assert grown(store, "t") < 3 * whole, "each is in its task's writes, and in the state"


def test_a_serializer_that_encrypts_is_refused(store: Path) -> None:
    class Cipher:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "none", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext

    with pytest.raises(InvalidSetting, match="expected a serializer that does not encrypt"):
        EventctxSaver(store, serde=EncryptedSerializer(Cipher()))


# -- LangGraph's own suite for checkpoint savers ---------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_langgraphs_suite_passes_whole(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    suite = pytest.importorskip("langgraph.checkpoint.conformance", reason="a package of its own")
    url = "memory://" if kind == "memory" else str(tmp_path / "threads.db")
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")

    @suite.checkpointer_test(name=f"EventctxSaver on {kind}")
    async def saver() -> AsyncIterator[Any]:
        async with eventctx.open(url) as engine:
            yield EventctxSaver(engine)

    report = await suite.validate(saver)
    assert report.passed_all(), report.to_dict()
    assert {name for name, one in report.results.items() if one.passed} == {
        *("put", "put_writes", "get_tuple", "list", "delete_thread"),
        *("delete_for_runs", "copy_thread", "prune"),
    }
