"""A model call of an agent framework or a client with our adapter, and the same call without it.

The agents are those of the adapters' own tests: the model of a script calls a tool that answers a
kilobyte, and says a text at the end of each turn. Turns with the adapter, with a stand-in that does
nothing, and durable appends are timed in turns. The difference by model calls is what the adapter
takes: it adds the answer and the result, prepares the request, and records the turn, the call and
the tool.

``python -m tests.benchmarks.adapting NAME FOLDER RUNS`` measures one, and prints JSON: a framework
that does not install with the others is measured by its own interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from eventctx.orchestrators.protocol import ToolRequest
from eventctx.testing import Reply, ScriptedAgent
from tests.benchmarks.rows import Row, target, unmeasured
from tests.benchmarks.timing import Place, Samples
from tests.benchmarks.workload import draft, message

ALLOWED: Final = 1_000.0
"""Microseconds that an adapter may take for a model call, beyond two durable appends."""

TURNS, ROUNDS = 3, 8
CALLS: Final = TURNS * (ROUNDS + 1)


class _Host(NamedTuple):
    """A driver of ``tests.adapters.drivers``, the name in it of the adapter, and its stand-in."""

    driver: str
    adapter: str
    stand_in: Callable[[], Any]
    interpreter: str = ""


class _NoSession:
    """A session of the OpenAI Agents SDK that is none."""

    @classmethod
    async def open(cls, *_: Any, **__: Any) -> _NoSession:
        return cls()

    def options(self, **_: Any) -> dict[str, Any]:
        return {}


def _pydantic_ai() -> Any:
    from pydantic_ai.capabilities import AbstractCapability

    class Nothing(AbstractCapability[Any]):
        async def history(self, session: str) -> list[Any]:
            return []

    return lambda *_, **__: Nothing()


def _agent_framework() -> Any:
    made = import_module("agent_framework").ContextProvider("nothing")
    return lambda *_, **__: SimpleNamespace(middleware=[], history=made)


def _made_of(module: str, kind: str, **given: Any) -> Callable[[], Any]:
    """A stand-in that is the framework's own base class."""
    return lambda: lambda *_, **__: getattr(import_module(module), kind)(**given)


def _client() -> Any:
    return SimpleNamespace(wrap=lambda client, *_, **__: client)


_LANGCHAIN: Final = _made_of("langchain.agents.middleware", "AgentMiddleware")
_ADK: Final = _made_of("google.adk.plugins.base_plugin", "BasePlugin", name="nothing")
_FRAMEWORK: Final = "agent_framework.AgentFrameworkDriver"
_ADK_PYTHON: Final = "EVENTCTX_GOOGLE_ADK_PYTHON"
_HOSTS: Final = {
    "OpenAI Agents": _Host("openai_agents.AgentsDriver", "AgentsSession", lambda: _NoSession),
    "LangChain": _Host("langchain.LangChainDriver", "EventctxMiddleware", _LANGCHAIN),
    "Pydantic AI": _Host("pydantic_ai.PydanticDriver", "Eventctx", _pydantic_ai),
    "Agent Framework": _Host(_FRAMEWORK, "EventctxAgents", _agent_framework),
    "Google ADK": _Host("google_adk.GoogleAdkDriver", "EventctxPlugin", _ADK, _ADK_PYTHON),
    "Anthropic's client": _Host("clients.MessagesDriver", "eventctx", _client),
    "OpenAI's client": _Host("clients.ChatDriver", "eventctx", _client),
}


class Taken(msgspec.Struct):
    """Microseconds of a model call beyond the framework's own, of it alone, and of one append."""

    beyond: float = 0
    cpu: float = 0
    alone: float = 0
    append: float = 0
    missing: str = ""

    @property
    def allowed(self) -> float:
        return 2 * self.append + ALLOWED

    def __str__(self) -> str:
        taken = f"{self.beyond:,.0f} (processor {self.cpu:,.0f}, framework {self.alone:,.0f})"
        return self.missing or taken


async def measure(place: Place) -> list[Row]:
    found = {name: _measured(place, name) for name in _HOSTS}
    there = [one for one in found.values() if not one.missing]
    note = "; ".join([f"{name}: {one}" for name, one in found.items()])
    if not there:
        return [unmeasured("model call", note)]
    slowest = max(there, key=lambda one: one.beyond / one.allowed)
    return [target("model call", slowest.beyond, slowest.allowed, note)]


def _measured(place: Place, name: str) -> Taken:
    python = os.environ.get(_HOSTS[name].interpreter, sys.executable)
    folder, runs = place.path("adapter"), str(place.count(12, 2))
    folder.mkdir()
    words = [python, "-m", __name__, name, str(folder), runs]
    ran = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    if ran.returncode:
        return Taken(missing="failed")
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=Taken)


async def _taken(host: _Host, folder: Path, runs: int) -> Taken:
    module, _, kind = host.driver.partition(".")
    try:
        drivers = import_module(f"tests.adapters.drivers.{module}")
    except ImportError as error:
        return Taken(missing=str(error))
    nothing = patch.object(drivers, host.adapter, host.stand_in())
    samples = Samples()
    async with eventctx.open(folder / "adapter.db") as engine:

        async def run(name: str, number: int) -> None:
            place = folder / f"{name}-{number}"
            place.mkdir()
            driver = getattr(drivers, kind)(engine, place, _agent(f"{name}-{number}"))
            with samples.step(name if number else "warm"):
                for turn in range(TURNS):
                    await driver.ask(f"Read chapter {turn}.")
            await driver.close()

        for number in range(runs + 1):
            await run("ours", number)
            with nothing:
                await run("bare", number)
            made = [draft(message(one)) for one in range(number * CALLS, (number + 1) * CALLS)]
            with samples.step("append"):
                for head, one in enumerate(made, number * CALLS - 1):
                    await engine.store.append("other", [one], head if head >= 0 else NO_STREAM)
    ours, alone, append = (samples.micro(name) / CALLS for name in ("ours", "bare", "append"))
    cpu = (samples.seconds("ours") - samples.seconds("bare")) * 1e6 / CALLS
    return Taken(ours - alone, cpu, alone, append)


def _agent(session: str) -> ScriptedAgent:
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "x" * 1_000

    script: list[Any] = []
    for turn in range(TURNS):
        calls = [ToolRequest(f"call_{turn}_{n}", "read", {"page": n}) for n in range(ROUNDS)]
        script += [*[Reply(calls=[call]) for call in calls], Reply("All read.")]
    return ScriptedAgent(script, [read], settings={"max_tokens": 10**7}, session=session)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    made = asyncio.run(_taken(_HOSTS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])))
    print(msgspec.json.encode(made).decode())
