"""LangGraph's checkpoints in our store are what another saver's are, whatever befalls a thread."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import END, START, StateGraph

import eventctx
import eventctx.sync
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph import EventctxSaver
from eventctx.adapters.langgraph.rows import row_of
from eventctx.errors import InvalidSetting
from eventctx.log.record import Record
from eventctx.stores.memory import MemoryStore
from tests.adapters import graphs
from tests.adapters.graphs import Work, agent_with, asks, run_of
from tests.how_much import some
from tests.programs import thread_to_kill


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A file, or a database of PostgreSQL where a test is parametrized with it."""
    kind = getattr(request, "param", "sqlite")
    if kind == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if kind == "memory" else str(tmp_path / "threads.db")


BOTH = pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def saver(store: str) -> Iterator[EventctxSaver]:
    made = EventctxSaver(store)
    yield made
    made.close()


def graph_of(saver: Any, state: Any = Work, **nodes: Callable[[Any], Any]) -> Any:
    """A graph of these nodes, one after the other."""
    graph: Any = StateGraph(state)
    for before, (name, node) in zip([START, *nodes], nodes.items(), strict=False):
        graph.add_node(name, node)
        graph.add_edge(before, name)
    return graph.compile(checkpointer=saver)


def values_of(agent: Any, thread: str = "t") -> Any:
    return agent.get_state(run_of(thread)).values


def records_of(store: str) -> list[Record]:
    async def read() -> list[Record]:
        async with eventctx.open(store, read_only=True) as engine:
            return [one async for one in engine.store.read_all()]

    return asyncio.run(read())


def transcript(store: str) -> list[Any]:
    with eventctx.sync.open(store, read_only=True) as engine:
        return [one.message for one in engine.transcript("t")]


def contents(store: str) -> list[bytes]:
    """All bytes of contents in a store, unpacked where they are packed."""
    bodies = [body.data or b"" for one in records_of(store) for body in one.bodies]
    return [zlib.decompress(one) if one[:1] == b"x" else one for one in bodies if one]


@contextmanager
def reopened(
    store: str, saver: EventctxSaver, change: Callable[[Any], Any] = lambda engine: None
) -> Iterator[EventctxSaver]:
    """Another saver, after an engine has made this change."""
    saver.close()
    with eventctx.sync.open(store) as engine:
        change(engine)
        assert engine.verify("t").ok
    again = EventctxSaver(store)
    yield again
    again.close()


@pytest.mark.parametrize("story", [graphs.agent_story, graphs.worker_story, graphs.nested_story])
def test_a_graph_does_the_same_as_with_langgraphs_own_saver(
    story: Callable[[Any], list[Any]], saver: EventctxSaver
) -> None:
    assert story(saver) == story(InMemorySaver())


def test_a_loop_that_ends_while_writes_wait_leaves_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def one_write() -> None:
        saver = EventctxSaver(eventctx.Engine(MemoryStore()))
        await saver.aput(run_of("t"), empty_checkpoint(), {}, {})
        config = run_of("t")["configurable"] | {"checkpoint_ns": "", "checkpoint_id": "1"}
        await saver.aput_writes({"configurable": config}, [("messages", HumanMessage("hi"))], "1")

    seconds = "eventctx.adapters.langgraph.saver.WAIT_SECONDS"
    for number in range(100):  # one of these waits ends between the loop's last steps
        monkeypatch.setattr(seconds, number / 100_000)
        asyncio.run(one_write())
    gc.collect()  # such work is told when it is freed, and fails the test


def test_what_only_langchain_knows_of_a_message_comes_back(saver: EventctxSaver) -> None:
    odd: list[BaseMessage] = [
        HumanMessage("a", id="1", additional_kwargs={"x": 1}, name="Ann"),
        AIMessage("b", id="2", response_metadata={"text": "é" * 90, "pair": (1, 2)}),
        ToolMessage("c", tool_call_id="k", id="3", artifact={1: b"\xff"}, status="error"),
        AIMessage("", id="4", tool_calls=[{"name": "f", "args": {"x": float("nan")}, "id": "k"}]),
        HumanMessage([{"type": "text", "text": "hello"}, "there"], id="5"),
    ]
    graph = graph_of(saver, say=lambda state: {"messages": odd})
    graph.invoke(asks("go"), run_of("t"))
    back = values_of(graph)["messages"][1:]
    assert [(type(one), repr(one)) for one in back] == [(type(one), repr(one)) for one in odd]


CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def put(saver: EventctxSaver, messages: list[BaseMessage]) -> Any:
    checkpoint: Any = {**empty_checkpoint(), "channel_values": {"messages": messages}}
    checkpoint["channel_versions"] = versions = {"messages": str(len(messages))}
    return saver.put(CONFIG, checkpoint, {}, versions)


def write_rows(store: str, *messages: BaseMessage) -> None:
    """Write messages into the log, as a middleware does while a step runs."""
    with eventctx.sync.open(store) as engine:
        context = engine.session("t")
        for one in messages:
            context.add_message(row_of(one))


def test_it_comes_back_of_a_message_that_the_log_had(store: str, saver: EventctxSaver) -> None:
    known: Any = {"response_metadata": {"model_name": "m"}}
    said, later = AIMessage("b", id="2", **known), AIMessage("b", id="3", **known)
    listed: list[BaseMessage] = [HumanMessage("a", id="1"), said]
    write_rows(store, HumanMessage("taken out", id="0"), *listed)
    saved = put(saver, listed)
    write_rows(store, later)
    saver.put_writes(saved, [("messages", [later])], "task")
    with reopened(store, saver) as again:
        back = again.get_tuple(CONFIG)
    assert back and back.checkpoint["channel_values"]["messages"] == listed
    assert back.pending_writes == [("task", "messages", [later])]


def test_each_message_is_one_event_and_is_stored_once(store: str, saver: EventctxSaver) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers, of which the second comes first."""
        time.sleep(0.1 * (1 - b))
        return a + b

    model = graphs.Counting(rounds=2, words="unmistakable words of a model")
    agent = graphs.create_agent(model, [add], checkpointer=saver)
    said = [agent.invoke(asks("hi"), run_of("t")) for _ in range(2)][-1]["messages"]
    assert [one.tool_call_id for one in said if one.type == "tool"][:2] == ["ai-0-0", "ai-0-1"]
    with reopened(store, saver) as again:
        assert values_of(agent_with(again))["messages"] == said
    results = [one for one in transcript(store) if one["role"] == "tool"]
    assert [one["tool_call_id"] for one in results[:2]] == ["ai-0-1", "ai-0-0"]
    types = [one.type for one in records_of(store)]
    assert types.count("context:message_added") == len(said)
    assert "context:messages_set" not in types
    assert sum(b"unmistakable words of a model 1" in one for one in contents(store)) == 1


@pytest.mark.parametrize("steps", [(1, 2, 4, 5), (2, 5), (5,)])
def test_a_step_that_is_saved_after_messages_of_later_steps_takes_none_of_them_out(
    steps: tuple[int, ...], store: str, saver: EventctxSaver
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
    assert back and back.checkpoint["channel_values"]["messages"] == listed
    types = [one.type for one in records_of(store)]
    assert types.count("context:message_added") == len(listed)
    assert "context:messages_set" not in types
    assert [one["id"] for one in transcript(store)] == ["0", "1", "3", "2", "4"]


def test_a_message_that_a_program_edits_in_place_is_another_event(saver: EventctxSaver) -> None:
    def edit(state: Any) -> Any:
        state["messages"][-1].content = "second"
        return {"messages": [state["messages"][-1]]}

    graph = graph_of(saver, say=lambda state: {"messages": [AIMessage("first", id="1")]}, edit=edit)
    graph.invoke(asks("go"), run_of("t"), durability="sync")
    states = [one.values.get("messages", []) for one in graph.get_state_history(run_of("t"))]
    assert [one[-1].content for one in states if len(one) > 1] == ["second", "first"]


def test_a_fork_of_a_session_is_a_thread(store: str, saver: EventctxSaver) -> None:
    said = agent_with(saver).invoke(asks("hi"), run_of("t"))["messages"]
    last = len(records_of(store)) - 1
    with reopened(store, saver, lambda engine: engine.fork("t", last, "tried")) as again:
        agent = agent_with(again)
        assert values_of(agent, "tried")["messages"] == said
        assert len(agent.invoke(asks("else?"), run_of("tried"))["messages"]) == 2 * len(said)
        assert values_of(agent)["messages"] == said


def test_what_grows_takes_what_is_added_to_it(store: str, saver: EventctxSaver) -> None:
    def work(state: Any) -> Any:
        number = state.get("rounds", 0)
        files = {**state.get("files", {}), f"f{number}": f"{number} " * 1_000}
        return {"rounds": number + 1, "log": [f"{number}, " * 300], "files": files}

    graph: Any = StateGraph(Work).add_node("work", work).add_edge(START, "work")
    graph.add_conditional_edges("work", lambda one: "work" if one["rounds"] < 40 else END)
    made = graph.compile(checkpointer=saver)
    said = made.invoke({"rounds": 0}, run_of("t"))
    assert values_of(made) == said
    history = [len(one.values.get("files", {})) for one in made.get_state_history(run_of("t"))]
    assert history == [*range(40, -1, -1), 0]
    whole = sum(map(len, said["files"].values())) + sum(map(len, said["log"]))
    payloads = [one.payload for one in records_of(store)]
    bodies = [body.data or b"" for one in records_of(store) for body in one.bodies]
    grown = sum(map(len, [*payloads, *bodies]))
    assert grown < 3 * whole, "each is in its task's writes, and in the state"


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"], indirect=True)
async def test_langgraphs_suite_passes_whole(store: str) -> None:
    suite = pytest.importorskip("langgraph.checkpoint.conformance", reason="a package of its own")

    @suite.checkpointer_test(name=f"EventctxSaver on {store}")
    async def saver() -> AsyncIterator[Any]:
        async with eventctx.open(store) as engine:
            yield EventctxSaver(engine)

    report = await suite.validate(saver)
    assert report.passed_all(), report.to_dict()
    passed = {name for name, one in report.results.items() if one.passed}
    threads = {"delete_thread", "delete_for_runs", "copy_thread", "prune"}
    assert passed == {"put", "put_writes", "get_tuple", "list", *threads}


# -- what befalls a thread: pruning, copying, deleting, erasing ------------------------------------


WORDS = "the violet elephants dance at midnight, and nobody may know of it"


@BOTH
def test_pruning_frees_what_older_checkpoints_took(store: str, saver: EventctxSaver) -> None:
    graph = graphs.worker(saver, file="x" * 20_000)
    graph.invoke(asks("go"), run_of("t"))
    for number in range(4):
        graph.invoke(graphs.Command(resume=f"{number}"), run_of("t"))
    said = values_of(graph)
    before = sum(map(len, contents(store)))
    saver.prune(["t"])
    assert values_of(graph) == said
    assert sum(map(len, contents(store))) < before / 2
    saver.prune(["t"], strategy="delete")
    assert saver.get_tuple(run_of("t")) is None
    with pytest.raises(InvalidSetting, match="expected 'keep_latest' or 'delete', found 'old'"):
        saver.prune(["t"], strategy="old")
    cipher: Any = object()
    with pytest.raises(InvalidSetting, match="expected a serializer that does not encrypt"):
        EventctxSaver(store, serde=EncryptedSerializer(cipher))


class Deltas(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *[x for y in new for x in y]])]


@BOTH
def test_pruning_keeps_what_a_delta_channel_is_made_of(saver: EventctxSaver) -> None:
    says: Any = {"say": lambda state: {"log": ["said"]}}
    ours, other = graph_of(saver, Deltas, **says), graph_of(InMemorySaver(), Deltas, **says)
    for at in range(3):
        given = {"log": [f"go {at}"]}
        theirs = other.invoke(given, run_of("t"))
        assert ours.invoke(given, run_of("t")) == theirs
    saver.prune(["t"])
    assert values_of(ours) == theirs


@BOTH
def test_a_deleted_thread_leaves_no_content(store: str, saver: EventctxSaver) -> None:
    agent = agent_with(saver, words=WORDS)
    for _ in range(2):
        agent.invoke(asks(WORDS), run_of("t"))
        saver.delete_thread("t")
        assert saver.get_tuple(run_of("t")) is None
        assert contents(store) == []
    said = agent.invoke(asks("anew"), run_of("t"))
    assert len(said["messages"]) == 11
    assert [one.config["configurable"]["thread_id"] for one in saver.list(None, limit=1)] == ["t"]
    with eventctx.sync.open(store, read_only=True) as engine:
        assert [one.stream for one in engine.each_session() if not one.deleted] == ["t~3"]


@BOTH
def test_an_erased_message_is_gone_from_every_checkpoint(store: str, saver: EventctxSaver) -> None:
    agent = agent_with(saver)
    agent.invoke(asks(WORDS, "the-secret"), run_of("t"))
    agent.invoke(asks("and now?"), run_of("t"))
    with reopened(store, saver, lambda engine: engine.erase("t", [0])) as again:
        assert not any(WORDS.encode() in one for one in contents(store))
        agent = agent_with(again)
        states = [one.values.get("messages", []) for one in agent.get_state_history(run_of("t"))]
        assert {one[0].content for one in states if one} == {"[erased]"}
        lengths = [len(one) for one in states]
        assert lengths == [22, 21, 19, 18, 16, 15, 13, 12, 11, 11, 10, 8, 7, 5, 4, 2, 1, 0]
        assert agent.invoke(asks("more"), run_of("t"))["messages"][0].content == "[erased]"


@BOTH
def test_what_else_tells_erased_words_goes_too(store: str, saver: EventctxSaver) -> None:
    tokens = [{"token": one} for one in ("hunt", "er2", "!")]
    said = AIMessage("hunter2!", id="a", response_metadata={"logprobs": tokens, "model": "m"})
    told = ToolMessage("short", id="b", tool_call_id="c", artifact={b"k": "one\ntwo\n" + WORDS})
    say: Any = {"say": lambda state: {"messages": [said, told], "log": ["hunter2!", "kept"]}}
    graph_of(saver, **say).invoke(asks(WORDS, "q"), run_of("t"))
    with reopened(store, saver, lambda engine: engine.erase("t", [0, 1])) as again:
        left = b"\n".join(contents(store))
        assert [one in left for one in (b"hunter2", b"er2", WORDS.encode())] == [False] * 3
        messages = values_of(graph_of(again, **say))["messages"]
        assert [one.content for one in messages] == ["[erased]", "[erased]", "short"]


@BOTH
def test_an_erased_round_has_a_call_for_each_result(store: str, saver: EventctxSaver) -> None:
    agent_with(saver, rounds=1, words=WORDS).invoke(asks("go"), run_of("t"))
    with reopened(store, saver, lambda engine: engine.erase("t", [1])) as again:
        _, call, *results, _ = values_of(agent_with(again))["messages"]
        assert isinstance(call, AIMessage)
        assert [one["id"] for one in call.tool_calls] == [one.tool_call_id for one in results]


@BOTH
def test_a_copy_lives_on_when_its_source_is_deleted(saver: EventctxSaver) -> None:
    agent = agent_with(saver)
    agent.invoke(asks("hi"), run_of("t"))
    history = [graphs.told(one) for one in agent.get_state_history(run_of("t"))]
    saver.copy_thread("t", "copy")
    assert [graphs.told(one) for one in agent.get_state_history(run_of("copy"))] == history
    saver.delete_thread("t")
    assert values_of(agent) == {}
    assert [graphs.told(one) for one in agent.get_state_history(run_of("copy"))] == history
    assert len(agent.invoke(asks("more"), run_of("copy"))["messages"]) == 22


# -- a thread whose process is killed goes on at the last step that was saved ---------------------


ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload([thread_to_kill.__name__])  # LangChain takes a second to import


def kill_after(store: Path, mode: str, steps: int, delay: float) -> tuple[str, int]:
    """Run a thread until that many checkpoints were saved, and kill it; the last one's id."""
    told, tells = FORKED.Pipe(duplex=False)
    child = FORKED.Process(target=thread_to_kill.main, args=(str(store), mode, tells))
    child.start()
    tells.close()
    try:
        saved = [told.recv() for _ in range(steps)]
        time.sleep(delay)
    finally:
        child.kill()
        child.join()
    with told, suppress(EOFError, OSError):  # the last may be told in part
        while True:
            saved.append(told.recv())
    return saved[-1]


def agent_of(store: Path, mode: str) -> tuple[Any, Any]:
    if mode == "ours":
        ours = EventctxMiddleware(store, max_tokens=100_000)
        return ours, agent_with(ours.saver(), rounds=2, middleware=[ours])
    saver = EventctxSaver(store)
    return saver, agent_with(saver, rounds=2)


def before_the_step_that_was_cut(messages: list[Any]) -> list[Any]:
    """The messages without results of parallel tools of which some had ended and some had not.

    LangGraph shows the ones that ended; the others come before them when the step goes on.
    """
    last = max([place for place, one in enumerate(messages) if one.type == "ai"], default=-1)
    calls = messages[last].tool_calls if last >= 0 else []
    results = [one for one in messages[last + 1 :] if one.type == "tool"]
    return messages[: last + 1] if 0 < len(results) < len(calls) else messages


@pytest.mark.parametrize("mode", ["alone", "ours"])
@pytest.mark.parametrize("seed", range(some(1, 2)))
def test_a_killed_thread_goes_on_at_its_last_step(mode: str, seed: int, tmp_path: Path) -> None:
    store, chance = tmp_path / "threads.db", random.Random(f"{mode}{seed}")  # noqa: S311
    for _ in range(some(2, 3)):  # the same thread is killed again and again
        last, count = kill_after(store, mode, chance.randint(1, 40), chance.uniform(0, 0.01))
        holder, agent = agent_of(store, mode)
        state = agent.get_state(run_of("t"))
        messages = state.values.get("messages", [])
        assert state.config["configurable"]["checkpoint_id"] >= last
        assert len(messages) >= count
        settled = before_the_step_that_was_cut(messages)
        calls = [one["id"] for m in settled if m.type == "ai" for one in m.tool_calls]
        results = [one.tool_call_id for one in settled if one.type == "tool"]
        assert results == calls[: len(results)], "no result is lost, or there twice"
        assert len({one.id for one in messages}) == len(messages)
        assert all(one.response_metadata for one in messages if one.type == "ai" and one.tool_calls)
        if state.tasks:  # also where all of a step's tasks have ended, and the step has not
            agent.invoke(None, run_of("t"))
        said = agent.invoke(asks("after the kill"), run_of("t"))["messages"]
        assert said[: len(settled)] == settled
        assert all(one in said for one in messages), "no tool that ended runs again"
        assert values_of(agent)["messages"] == said
        holder.close()
        with eventctx.sync.open(store) as engine:
            assert engine.verify("t").ok
            shown = [one.message for one in engine.transcript("t")]
        # Results of parallel tools are in the log in the order in which the tools ended.
        assert sorted([one["id"] for one in shown]) == sorted([one.id for one in said])
        assert [one["role"] for one in shown] == [ROLES[one.type] for one in said]
