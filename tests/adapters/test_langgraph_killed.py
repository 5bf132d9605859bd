"""A thread whose process is killed at any step goes on at the last checkpoint that was saved."""

from __future__ import annotations

import multiprocessing
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain", reason="an extra: eventctx[langchain]")

import eventctx.sync
from eventctx.adapters.langchain import EventctxMiddleware
from eventctx.adapters.langgraph import EventctxSaver
from tests.adapters.graphs import agent_with, asks, run_of
from tests.how_much import some
from tests.programs import thread_to_kill

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
