"""Faults under the adapters, with every framework that is installed: nothing doubled or lost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import open_engine
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterDriver, Reply, ScriptedAgent
from eventctx.testing.adapter_contract.running import (
    DriverRun,
    questions,
    read,
    reads,
    store_in,
)

DRIVERS = {
    "plain": ("plain", "PlainDriver", "json"),
    "openai-agents": ("openai_agents", "AgentsDriver", "agents"),
    "langchain": ("langchain", "LangChainDriver", "langchain"),
    "pydantic-ai": ("pydantic_ai", "PydanticDriver", "pydantic_ai"),
    "google-adk": ("google_adk", "GoogleAdkDriver", "google.genai"),
}

Make = Callable[..., Any]


@pytest.fixture(params=DRIVERS)
def make(request: pytest.FixtureRequest) -> Make:
    module, name, package = DRIVERS[request.param]
    try:
        found = find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"an extra: eventctx[{request.param}]")
    driver: Make = getattr(import_module(f"tests.adapters.drivers.{module}"), name)
    return driver


def share(one: Any, other: Any) -> None:
    """Give both drivers one storage of their host, as two servers have one database."""
    for holder, storage in (
        ("_agent", "checkpointer"),
        ("_runner", "session_service"),
        ("_host", "messages"),
    ):
        if hasattr(getattr(one, holder, None), storage):
            setattr(getattr(other, holder), storage, getattr(getattr(one, holder), storage))


@pytest.mark.parametrize("engines", [1, 2], ids=["one engine", "two engines"])
async def test_two_adapters_serve_the_turns_of_one_session_by_turns(
    make: Make, engines: int, tmp_path: Path
) -> None:
    talk = questions(5)
    scripts: list[list[Reply]] = [[], []]
    for turn, (_, answer) in enumerate(talk):
        scripts[turn % 2] += [reads(turn), Reply(answer)]
    store = store_in(tmp_path)
    async with open_engine(store) as first, open_engine(store) as second:
        chosen = [first, second if engines == 2 else first]
        drivers: list[AdapterDriver] = [
            make(engine, tmp_path, ScriptedAgent(script, [read]))
            for engine, script in zip(chosen, scripts, strict=True)
        ]
        share(*drivers)
        for turn, (question, answer) in enumerate(talk):
            assert await drivers[turn % 2].ask(question) == answer
        run = DriverRun(first, drivers[0])
        pages = [f"page-{turn}: " for turn in range(len(talk))]
        await run.check_transcript(
            *itertools.chain(*[(q, page, a) for (q, a), page in zip(talk, pages, strict=True)])
        )
        received = [iter(one.received()) for one in drivers]
        sent = [next(received[turn % 2]) for turn in range(len(talk)) for _ in range(2)]
        assert await run.views() == sent
        assert await run.count("context:messages_set") == [0]


async def test_a_run_that_was_interrupted_goes_on_with_another_adapter_and_then_with_the_first(
    make: Make, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    async def wait(reason: str) -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    script = [Reply(calls=[ToolRequest("call_w", "wait", {"reason": "told."})]), Reply("third.")]
    store = store_in(tmp_path)
    async with open_engine(store) as first, open_engine(store) as second:
        drivers = [
            make(first, tmp_path, ScriptedAgent(script, [wait])),
            make(second, tmp_path, ScriptedAgent([Reply("second.")], [wait])),
        ]
        share(*drivers)
        asking = asyncio.ensure_future(drivers[0].ask("wait."))
        beginning = asyncio.ensure_future(begun.wait())
        await asyncio.wait((asking, beginning), return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await drivers[1].ask("goes-on?") == "second."
        assert await drivers[0].ask("and-here?") == "third."
        run = DriverRun(first, drivers[0])
        await run.check_transcript("wait.", "goes-on?", "second.", "and-here?", "third.")
        (one, three), (two,) = [each.received() for each in drivers]
        assert await run.views() == [one, two, three]
