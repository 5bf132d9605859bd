"""A small agent over eventctx's own source, in a process of its own that is meant to be killed.

``python -m eventctx.cli.demo.agent URL SESSION BUDGET`` runs its first turns. The process writes
each record that its engine's hooks receive to stdout as a line of JSON, and the question that its
tool puts to a person as a JSON string. Nobody answers the question, so the reader of these lines
knows that the process waits in this tool, and can kill it there.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.engine import Engine, open_engine
from eventctx.log.record import Record
from eventctx.orchestrators.loops.events import EventsOrchestrator
from eventctx.orchestrators.protocol import Response, ToolRequest
from eventctx.orchestrators.tools.functions import as_tools
from eventctx.session.context import Context
from eventctx.testing.providers import ScriptedProvider
from eventctx.testing.script import Reply, Step

SOURCE: Final = Path(__file__).parents[2]
BUDGET: Final = 16_000
"""Tokens of a request: less than the files that the agent reads in its second turn."""

QUESTION: Final = "Which of them do you mean?"
SYSTEM: Final = "You know the source of eventctx, and look before you answer."


class Task(NamedTuple):
    """A turn: the person's prompt, and the answers of the scripted model."""

    prompt: str
    steps: tuple[Step, ...]


def _reads(*paths: str) -> Reply:
    return Reply(calls=[("read_file", {"path": path}) for path in paths])


TASKS: Final = (
    Task(
        "Which policies are there?",
        (
            Reply(calls=[("list_files", {"folder": "policies"})]),
            "Each file of that folder is a policy, or what policies share.",
        ),
    ),
    Task(
        "Read how a plan is made and carried out.",
        (
            _reads("log/plan.py", "policies/ladder.py"),
            _reads("policies/fit.py", "policies/presets.py"),
            _reads("policies/planner.py", "messages/tokens.py"),
            "A policy makes a plan of runs, each with a reason; a view is made through it.",
        ),
    ),
    Task(
        "How long is that file?",
        (
            Reply(
                calls=[
                    ("count_lines", {"path": "log/plan.py"}),
                    ("count_lines", {"path": "policies/planner.py"}),
                    ("ask_person", {"question": QUESTION}),
                ]
            ),
        ),
    ),
)
"""The turns of the process. It is killed before its question is answered."""

GOING_ON: Final = Task(
    "You were cut off. I meant the policy.",
    (
        # An id of its own: a new process's script would count its calls from 1 again.
        Reply(calls=[ToolRequest("again_1", "count_lines", {"path": "policies/ladder.py"})]),
        "That is the length of the ladder.",
    ),
)
"""The turn of the agent after it was killed, in a new process."""


def list_files(folder: str) -> str:
    """Names and sizes of the Python files in a folder."""
    files = sorted((SOURCE / folder).glob("*.py"))
    return "\n".join(f"{file.stat().st_size:>7}  {file.name}" for file in files)


def read_file(path: str) -> str:
    """The text of a file."""
    return (SOURCE / path).read_text(encoding="utf-8")


def count_lines(path: str) -> int:
    """How many lines a file has."""
    return len(read_file(path).splitlines())


def ask_person(question: str) -> str:
    """Ask the person who uses the agent, and wait for an answer."""
    _write_line(question)
    return sys.stdin.readline()


async def open_session(engine: Engine, session: str, budget: int) -> Context:
    """The agent's session: a new one, or the one that an earlier process has left."""
    context = await engine.session(session, max_tokens=budget, on_overflow="send_floor")
    await context.set_system_prompt(SYSTEM)
    return context


async def run_task(context: Context, task: Task, provider: ScriptedProvider) -> Response:
    """A turn of the agent."""
    tools = as_tools([list_files, read_file, count_lines, ask_person])
    agent = EventsOrchestrator(agent="demo")
    return await agent.execute(task.prompt, context, {"demo": provider}, tools)


def model_for(*tasks: Task) -> ScriptedProvider:
    """A model that follows the script of these tasks, and refuses requests as an API would."""
    return ScriptedProvider(*[step for task in tasks for step in task.steps], model="scripted-1")


def _write_line(line: Record | str) -> None:
    # A single write for each line, because tools write from threads of their own.
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


async def _live(url: str, session: str, budget: int) -> None:
    async with open_engine(url, receipts=False) as engine:
        engine.on("*", _write_line)
        context = await open_session(engine, session, budget)
        provider = model_for(*TASKS)
        for task in TASKS:
            await run_task(context, task, provider)


if __name__ == "__main__":
    asyncio.run(_live(sys.argv[1], sys.argv[2], int(sys.argv[3])))
