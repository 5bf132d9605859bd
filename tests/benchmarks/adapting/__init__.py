"""A model call of an agent framework with our adapter, beside the same call without it.

One run is a loop of rounds: the model calls a tool, the tool answers a kilobyte, at the end the
model says a text. Runs with and without the adapter and one durable append are timed in turns; the
model is the framework's own fake. The difference of two runs, by its model calls, is what the
adapter takes: it adds the answer and the result, prepares the request, and records the turn, the
call and the tool. Of that, a part is the framework's own: what it takes for seams that do nothing.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import partial

import msgspec

import eventctx
from eventctx.log.store import NO_STREAM
from tests.benchmarks.adapting import clients, frameworks
from tests.benchmarks.adapting.runs import CALLS, Pair
from tests.benchmarks.place import Place
from tests.benchmarks.rows import Row, missing
from tests.benchmarks.timing import Samples
from tests.benchmarks.workload import draft, message

FIGURE = "a model call of an adapter"
GOOGLE_ADK = "Google ADK"
VARIABLE = "EVENTCTX_GOOGLE_ADK_PYTHON"
ALLOWED = 1_000.0
"""Microseconds that an adapter may take for a model call, beyond one durable append."""
HERE: dict[str, Callable[[], Pair]] = {
    "OpenAI Agents": frameworks.openai_agents,
    "LangChain": frameworks.langchain,
    "Pydantic AI": frameworks.pydantic_ai,
    "Agent Framework": frameworks.agent_framework,
    "Anthropic's client": clients.observed,
    "Anthropic's client, compact=True": clients.prepared,
}


async def measure(place: Place) -> list[Row]:
    here = [row for name, made in HERE.items() for row in await measured(place, name, made)]
    return [*here, *elsewhere(place)]


def elsewhere(place: Place) -> list[Row]:
    """The rows of Google ADK, which asks for an environment of its own."""
    python = os.environ.get(VARIABLE)
    if python is None:
        return [
            missing(FIGURE, GOOGLE_ADK, f"{VARIABLE} names no Python with eventctx[google-adk]")
        ]
    command = [python, "-m", "tests.benchmarks.adapting.google_adk", str(place.path("elsewhere"))]
    ran = subprocess.run(
        [*command, "quick" if place.quick else "full"], stdout=subprocess.PIPE, check=False
    )
    if ran.returncode:
        return [missing(FIGURE, GOOGLE_ADK, f"{python} failed; has it eventctx and google-adk?")]
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=list[Row])


async def measured(place: Place, name: str, made: Callable[[], Pair]) -> list[Row]:
    """The rows of one framework; one that says what is missing where that is not installed."""
    try:
        pair = made()
    except ImportError as error:
        return [missing(FIGURE, name, str(error))]
    samples, head = Samples(), -1
    async with eventctx.open(place.path("adapter.db")) as engine:
        await (await pair.ours(engine, "warm"))()
        await pair.bare()()
        await pair.empty()()
        for number in range(place.count(30, 4)):
            run, bare, empty = await pair.ours(engine, f"s{number}"), pair.bare(), pair.empty()
            await samples.time("bare", bare)
            await samples.time("empty", empty)
            await samples.time("ours", run)
            for _ in range(10):
                prepared = draft(message(head + 1))
                expected = NO_STREAM if head < 0 else head
                await samples.time(
                    "append", partial(engine.store.append, "beside", [prepared], expected)
                )
                head += 1
    return [_adapter(name, samples), _own_seams(name, samples)]


def _adapter(name: str, samples: Samples) -> Row:
    append = samples.micro("append")
    return Row(
        figure=FIGURE,
        name=name,
        value=_more(samples, "ours"),
        unit="µs",
        against=f"a durable append {append:,.0f} + {ALLOWED:,.0f}",
        floor=append + ALLOWED,
        limit=1.0,
        cpu=_more_processor(samples, "ours"),
        floor_cpu=samples.cpu("append"),
        note=_alone(samples),
    )


def _alone(samples: Samples) -> str:
    cpu = samples.cpu("bare", CALLS)
    processor = "" if cpu is None else f", {cpu:,.0f} µs of processor time"
    return f"the framework alone {samples.micro('bare') / CALLS:,.0f} µs{processor}"


def _own_seams(name: str, samples: Samples) -> Row:
    return Row(
        figure=FIGURE,
        name=f"{name}: of that, seams that do nothing",
        value=_more(samples, "empty"),
        unit="µs",
        cpu=_more_processor(samples, "empty"),
    )


def _more(samples: Samples, name: str) -> float:
    """Microseconds of a model call beyond the framework's own."""
    return (samples.micro(name) - samples.micro("bare")) / CALLS


def _more_processor(samples: Samples, name: str) -> float | None:
    whole, bare = samples.cpu(name, CALLS), samples.cpu("bare", CALLS)
    return None if whole is None or bare is None else whole - bare
