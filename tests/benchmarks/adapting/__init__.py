"""A model call of an agent framework with our adapter, beside the same call without it.

One run is a loop of rounds: the model calls a tool, the tool answers a kilobyte, at the end the
model says a text. Runs with and without the adapter and one durable append are timed in turns; the
model is the framework's own fake. The difference of two runs, by its model calls, is what the
adapter takes: it adds the answer and the result, prepares the request, and records the turn, the
call and the tool. Of that, a part is the framework's own: what it takes for seams that do nothing.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

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


class Elsewhere(NamedTuple):
    """A framework in an environment of its own, whose Python a variable names."""

    variable: str
    extra: str
    module: str


ELSEWHERE = {
    "Google ADK": Elsewhere("EVENTCTX_GOOGLE_ADK_PYTHON", "google-adk", "google_adk"),
    "Strands": Elsewhere("EVENTCTX_STRANDS_PYTHON", "strands", "strands"),
}


async def measure(place: Place) -> list[Row]:
    here = [row for name, made in HERE.items() for row in await measured(place, name, made)]
    return [*here, *[row for name in ELSEWHERE for row in elsewhere(place, name)]]


def elsewhere(place: Place, name: str) -> list[Row]:
    """The rows of a framework that asks for an environment of its own."""
    variable, extra, module = ELSEWHERE[name]
    python = os.environ.get(variable)
    if python is None:
        return [missing(FIGURE, name, f"{variable} names no Python with eventctx[{extra}]")]
    command = [python, "-m", f"{__name__}.{module}", str(place.path(module))]
    ran = subprocess.run(
        [*command, "quick" if place.quick else "full"], stdout=subprocess.PIPE, check=False
    )
    if ran.returncode:
        return [missing(FIGURE, name, f"{python} failed; has it eventctx[{extra}]?")]
    return msgspec.json.decode(ran.stdout.splitlines()[-1], type=list[Row])


def print_rows(folder: Path, how: str, name: str, made: Callable[[], Pair]) -> None:
    """Print the rows of a framework, for the process that started this one."""
    folder.mkdir()
    with Place(folder, how == "quick") as place:
        rows = asyncio.run(measured(place, name, made))
    print(msgspec.json.encode(rows).decode())


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
