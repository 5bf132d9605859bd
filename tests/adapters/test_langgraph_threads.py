"""What befalls a thread: pruning, copying, deleting, erasing on SQLite and PostgreSQL; a kill."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

import eventctx.sync
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph import EventctxSaver
from eventctx.errors import InvalidSetting
from tests.adapters import graphs
from tests.adapters.graphs import agent_with, asks, run_of
from tests.how_much import some
from tests.programs import thread_to_kill

WORDS = "the violet elephants dance at midnight, and nobody may know of it"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "threads.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def saver(url: str) -> Iterator[EventctxSaver]:
    made = EventctxSaver(url)
    yield made
    made.close()


def contents(url: str) -> list[bytes]:
    """All bytes of contents in a store, unpacked where they are packed."""

    async def read() -> list[bytes]:
        async with eventctx.open(url, read_only=True) as engine:
            records = [one async for one in engine.store.read_all()]
        bodies = [body.data or b"" for one in records for body in one.bodies]
        return [zlib.decompress(one) if one[:1] == b"x" else one for one in bodies if one]

    return asyncio.run(read())


def test_pruning_frees_what_older_checkpoints_took(url: str, saver: EventctxSaver) -> None:
    graph = graphs.worker(saver, file="x" * 20_000)
    graph.invoke(asks("go"), run_of("t"))
    for number in range(4):
        graph.invoke(graphs.Command(resume=f"{number}"), run_of("t"))
    said = graph.get_state(run_of("t")).values
    before = sum(map(len, contents(url)))
    saver.prune(["t"])
    assert graph.get_state(run_of("t")).values == said
    assert sum(map(len, contents(url))) < before / 2
    saver.prune(["t"], strategy="delete")
    assert saver.get_tuple(run_of("t")) is None
    with pytest.raises(InvalidSetting, match="expected 'keep_latest' or 'delete', found 'old'"):
        saver.prune(["t"], strategy="old")


class Deltas(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *[x for y in new for x in y]])]


def test_pruning_keeps_what_a_delta_channel_is_made_of(saver: EventctxSaver) -> None:
    def with_saver(one: Any) -> list[Any]:
        graph: Any = StateGraph(Deltas)
        graph.add_node("say", lambda state: {"log": ["said"]})
        graph.add_edge(START, "say")
        made = graph.compile(checkpointer=one)
        return [made.invoke({"log": [f"go {at}"]}, run_of("t")) for at in range(3)] + [made]

    *ours, graph = with_saver(saver)
    *theirs, _ = with_saver(InMemorySaver())
    assert ours == theirs
    saver.prune(["t"])
    assert graph.get_state(run_of("t")).values == theirs[-1]


def test_a_deleted_thread_leaves_no_content_and_its_name_is_free(
    url: str, saver: EventctxSaver
) -> None:
    agent = agent_with(saver, words=WORDS)
    for _ in range(2):
        agent.invoke(asks(WORDS), run_of("t"))
        saver.delete_thread("t")
        assert saver.get_tuple(run_of("t")) is None
        assert contents(url) == []
    said = agent.invoke(asks("anew"), run_of("t"))
    assert len(said["messages"]) == 11
    assert [one.config["configurable"]["thread_id"] for one in saver.list(None, limit=1)] == ["t"]
    with eventctx.sync.open(url, read_only=True) as engine:
        assert [one.stream for one in engine.each_session() if not one.deleted] == ["t~3"]


def test_an_erased_message_is_gone_from_every_checkpoint(url: str, saver: EventctxSaver) -> None:
    agent = agent_with(saver)
    agent.invoke(asks(WORDS, "the-secret"), run_of("t"))
    agent.invoke(asks("and now?"), run_of("t"))
    saver.close()
    with eventctx.sync.open(url) as engine:
        engine.erase("t", [0])
        assert engine.verify("t").ok
    assert not any(WORDS.encode() in one for one in contents(url))
    again = EventctxSaver(url)
    agent = agent_with(again)
    states = [one.values.get("messages", []) for one in agent.get_state_history(run_of("t"))]
    assert {one[0].content for one in states if one} == {"[erased]"}
    assert [len(one) for one in states] == [
        22,
        21,
        19,
        18,
        16,
        15,
        13,
        12,
        11,
        *[11, 10, 8, 7, 5, 4, 2, 1, 0],
    ]
    assert agent.invoke(asks("more"), run_of("t"))["messages"][0].content == "[erased]"
    again.close()


def test_what_else_tells_the_words_of_an_erased_message_goes_too(
    url: str, saver: EventctxSaver
) -> None:
    tokens = [{"token": one} for one in ("hunt", "er2", "!")]
    said = AIMessage("hunter2!", id="a", response_metadata={"logprobs": tokens, "model": "m"})
    told = ToolMessage("short", id="b", tool_call_id="c", artifact={b"k": "one\ntwo\n" + WORDS})

    graph: Any = StateGraph(graphs.Work)
    graph.add_node("say", lambda state: {"messages": [said, told], "log": ["hunter2!", "kept"]})
    graph.add_edge(START, "say")
    made = graph.compile(checkpointer=saver)
    made.invoke(asks(WORDS, "q"), run_of("t"))
    saver.close()
    with eventctx.sync.open(url) as engine:
        engine.erase("t", [0, 1])
    left = b"\n".join(contents(url))
    assert b"hunter2" not in left
    assert b"er2" not in left
    assert WORDS.encode() not in left
    again = EventctxSaver(url)
    values = graph.compile(checkpointer=again).get_state(run_of("t")).values
    assert [one.content for one in values["messages"]] == ["[erased]", "[erased]", "short"]
    again.close()


def test_an_erased_tool_round_still_has_a_call_for_each_result(
    url: str, saver: EventctxSaver
) -> None:
    agent_with(saver, rounds=1, words=WORDS).invoke(asks("go"), run_of("t"))
    saver.close()
    with eventctx.sync.open(url) as engine:
        engine.erase("t", [1])
    again = EventctxSaver(url)
    _, call, *results, _ = agent_with(again).get_state(run_of("t")).values["messages"]
    assert isinstance(call, AIMessage)
    assert [one["id"] for one in call.tool_calls] == [one.tool_call_id for one in results]
    again.close()


def test_a_copy_lives_on_when_its_source_is_deleted(saver: EventctxSaver) -> None:
    agent = agent_with(saver)
    agent.invoke(asks("hi"), run_of("t"))
    history = [graphs.told(one) for one in agent.get_state_history(run_of("t"))]
    saver.copy_thread("t", "copy")
    assert [graphs.told(one) for one in agent.get_state_history(run_of("copy"))] == history
    saver.delete_thread("t")
    assert agent.get_state(run_of("t")).values == {}
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
def test_a_killed_thread_goes_on_at_its_last_saved_step(
    mode: str, seed: int, tmp_path: Path
) -> None:
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
        assert agent.get_state(run_of("t")).values["messages"] == said
        holder.close()
        with eventctx.sync.open(store) as engine:
            assert engine.verify("t").ok
            shown = [one.message for one in engine.transcript("t")]
        # Results of parallel tools are in the log in the order in which the tools ended.
        assert sorted([one["id"] for one in shown]) == sorted([one.id for one in said])
        assert [one["role"] for one in shown] == [ROLES[one.type] for one in said]
