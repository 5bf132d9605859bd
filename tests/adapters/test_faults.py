"""Faults under the adapters, with every framework that is installed: nothing doubled or lost."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import open_engine
from eventctx.messages.facts_reader import read_facts
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import AdapterDriver, Reply, ScriptedAgent
from eventctx.testing.adapter_contract.failing import asked_until, interrupt
from eventctx.testing.adapter_contract.running import (
    DriverRun,
    questions,
    read,
    reads,
    running,
    store_in,
)
from eventctx.testing.driving import SESSION
from tests.how_much import some

DRIVERS = {
    "plain": ("plain", "PlainDriver", "json"),
    "openai-agents": ("openai_agents", "AgentsDriver", "agents"),
    "langchain": ("langchain", "LangChainDriver", "langchain"),
    "pydantic-ai": ("pydantic_ai", "PydanticDriver", "pydantic_ai"),
    "anthropic": ("clients", "MessagesDriver", "anthropic"),
    "openai": ("clients", "ChatDriver", "openai"),
    "agent-framework": ("agent_framework", "AgentFrameworkDriver", "agent_framework"),
    "strands": ("strands", "StrandsDriver", "strands"),
    "google-adk": ("google_adk", "GoogleAdkDriver", "google.genai"),
}

STRIDE = some(12, 6)
"""Steps of the event loop between two that are cancelled; an await of an adapter takes more."""

Make = Callable[..., Any]


@pytest.fixture(params=DRIVERS)
def make(request: pytest.FixtureRequest) -> Make:
    module, name, package = DRIVERS[request.param]
    pytest.importorskip(package, reason=f"an extra: eventctx[{request.param}]")
    driver: Make = getattr(import_module(f"tests.adapters.drivers.{module}"), name)
    return driver


def share(one: Any, other: Any) -> None:
    """Give both drivers one storage of their host, as two servers have one database."""
    agents = [("_agent", "checkpointer"), ("_agent", "messages")]
    for holder, storage in (*agents, ("_runner", "session_service"), ("_host", "messages")):
        if hasattr(getattr(one, holder, None), storage):
            setattr(getattr(other, holder), storage, getattr(getattr(one, holder), storage))
    if hasattr(one, "_rows"):
        other._rows = one._rows


@pytest.mark.parametrize("engines", [1, 2], ids=["one engine", "two engines"])
async def test_two_adapters_serve_one_session(make: Make, engines: int, tmp_path: Path) -> None:
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
        turns = [(asked, f"page-{turn}: ", said) for turn, (asked, said) in enumerate(talk)]
        await run.check_transcript(*itertools.chain(*turns))
        received = [iter(one.received()) for one in drivers]
        sent = [next(received[turn % 2]) for turn in range(len(talk)) for _ in range(2)]
        assert await run.views() == sent
        assert await run.count("context:messages_set") == [0]
        rows = [one.message for one in await first.transcript(SESSION)]
        calls = [call for row in rows for call in read_facts(row).calls]
        assert len(set(calls)) == len(calls) == len(talk)


async def test_an_interrupted_run_goes_on_with_another_adapter(make: Make, tmp_path: Path) -> None:
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
        run = DriverRun(first, drivers[0])
        await interrupt(await asked_until(begun, run, "wait."))
        assert await drivers[1].ask("goes-on?") == "second."
        assert await drivers[0].ask("and-here?") == "third."
        await run.check_transcript("wait.", "goes-on?", "second.", "and-here?", "third.")
        (one, three), (two,) = [each.received() for each in drivers]
        assert await run.views() == [one, two, three]


async def test_a_run_cancelled_anywhere_leaves_the_next_sound(make: Make, tmp_path: Path) -> None:
    for steps in itertools.count(0, STRIDE):
        folder = tmp_path / str(steps)
        folder.mkdir()
        if await cancelled_after(make, folder, steps):
            assert steps, "no step of the run was cancelled"
            return


async def cancelled_after(make: Make, folder: Path, steps: int) -> bool:
    """Cancel a run after so many steps of the loop, and go on; whether it had ended before."""
    replies = [Reply("zero."), reads(1, 2), *[Reply(f"done-{place}.") for place in range(4)]]
    async with running(make, folder, ScriptedAgent(replies, [read])) as run:
        await run.driver.ask("question-z.")
        asking = asyncio.ensure_future(run.driver.ask("question-0."))
        for _ in range(steps):
            await asyncio.sleep(0)
        ended = asking.done()
        asking.cancel()
        await asyncio.wait((asking,))
        assert asking.cancelled() is not ended
        for question in ("question-1.", "question-2."):
            await run.driver.ask(question)
        # A server may hear of the cancelled request after the later ones.
        received = [one for one in run.driver.received() if "question-1." in str(one)]
        assert (await run.views())[-2:] == received[-2:], f"after {steps} steps"
        await run.check_transcript("question-z.", "zero.", "question-1.", "question-2.")
        said = str([one.message for one in await run.engine.transcript(SESSION)])
        assert all(said.count(f"page-{page}: ") <= 1 for page in (1, 2)), f"after {steps} steps"
        begun, over, pre, post, failed = await run.count(
            *("prompt:submit", "prompt:complete", "tool:pre", "tool:post", "tool:error")
        )
        assert (begun, pre) == (over, post + failed), f"after {steps} steps"
        return ended


async def test_a_conversation_goes_on_behind_calls_of_no_json(make: Make, tmp_path: Path) -> None:
    call = ToolRequest("call_n", "read", {"page": float("nan")})
    replies = [Reply(calls=[call]), *[Reply(f"done-{place}.") for place in range(3)]]
    async with running(make, tmp_path, ScriptedAgent(replies, [read])) as run:
        with suppress(Exception):  # some hosts refuse such an answer
            await run.driver.ask("question-0.")
        await run.driver.ask("question-1.")
        await run.check_received()
        await run.check_transcript("question-0.", "question-1.")


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [
        ("pydantic_ai", "pydantic_ai", "Eventctx"),
        ("langchain", "langchain", "EventctxMiddleware"),
        ("google.adk", "google_adk", "EventctxPlugin"),
        ("agents", "openai_agents", "AgentsSession"),
    ],
)
async def test_a_copied_agent_has_the_same_adapter(package: str, module: str, name: str) -> None:
    pytest.importorskip(package, reason="an extra")
    adapter = getattr(import_module(f"eventctx.adapters.{module}"), name)
    async with open_engine("memory://") as engine:
        ours = adapter(await engine.session("s") if name == "AgentsSession" else engine)
        assert copy.deepcopy([ours])[0] is ours
