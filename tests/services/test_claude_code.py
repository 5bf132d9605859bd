"""The real program's session, imported, against what its server received, request by request."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.queries.requests import request_at
from eventctx.stores.memory import MemoryStore
from tests.services.claude_code import OPT_IN, VARIABLE, Answer, Body, Program, Script, installed

MODEL = ("--model", "claude-sonnet-4-5")


@pytest.fixture
def binary() -> Path:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(OPT_IN)
    return Path(named)


def answered(body: Body) -> int:
    return sum(one["role"] == "assistant" for one in body["messages"])


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def scripted(*steps: list[dict[str, Any]]) -> Script:
    """Answers by how many answers a request holds already; behind the last step, the end."""

    def script(body: Body) -> Answer:
        done = answered(body)
        if not body.get("tools") or done >= len(steps):
            return [text(f"Done, {done}.")], "end_turn"
        return steps[done], "tool_use"

    return script


async def compared(program: Program) -> list[tuple[str, bool, bool]]:
    """For each imported request how it is known, whether it verifies and whether it was received.

    The requests of subagents are in sessions of their own.
    """
    store = MemoryStore()
    engine = eventctx.Engine(store)
    found = []
    for summary in await import_file(store, program.session):
        session = summary.session or ""
        for row in (await engine.audit(session)).requests:
            view = await request_at(store, session, row.position)
            rebuilt = {} if view.sent is None else view.sent.body()
            rebuilt.pop("betas", None)
            found.append((view.known, view.verified, rebuilt in program.received))
    return found


async def test_thinking_parallel_tools_and_a_resumed_session(binary: Path, tmp_path: Path) -> None:
    steps = (
        [
            {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmF0dXJl"},
            text("Two at once: ünïcode."),
            use("toolu_1", "Bash", command="echo one; echo ü", timeout=1000.5),
            use("toolu_2", "Read", file_path=str(tmp_path / "project" / "a.txt")),
        ],
        [use("toolu_3", "Bash", command="false")],
    )
    with installed(binary, tmp_path, scripted(*steps)) as program:
        (program.project / "a.txt").write_text("alpha\n")
        (program.project / "CLAUDE.md").write_text("# Rules\nBe nice.\n")
        program.run(*MODEL, "Go\nthere")
        program.run(*MODEL, "-c", "again")
        assert await compared(program) == [("observed", True, True)] * 4


async def test_a_subagent_beside_another_tool(binary: Path, tmp_path: Path) -> None:
    agent = {"description": "find", "prompt": "find it", "subagent_type": "general-purpose"}

    def script(body: Body) -> Answer:
        if "Ask an agent" in str(body["messages"]):
            steps = [use("toolu_1", "Agent", **agent), use("toolu_2", "Bash", command="echo main")]
            return scripted(steps)(body)
        return scripted([use("toolu_s", "Bash", command="echo sub")])(body)

    with installed(binary, tmp_path, script) as program:
        program.run(*MODEL, "Ask an agent")
        found = await compared(program)
        assert len(found) >= 4
        assert set(found) == {("observed", True, True)}


async def test_a_session_that_the_program_compacted(binary: Path, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        if "summary" in str(body["messages"][-1]["content"]).lower():
            return [text("<summary>We said things.</summary>")], "end_turn"
        return scripted([use(f"toolu_{answered(body)}", "Bash", command="echo")])(body)

    with installed(binary, tmp_path, script) as program:
        program.run(*MODEL, "first")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "third")
        found = await compared(program)
        assert len(found) >= 3
        assert set(found) == {("observed", True, True)}


async def test_hooks_commands_and_a_permission_that_was_denied(
    binary: Path, tmp_path: Path
) -> None:
    steps = (
        [use("toolu_1", "Bash", command="echo one")],
        [use("toolu_2", "Bash", command="rm -rf zzz")],
    )
    once = "test -f .stopped || { touch .stopped; echo again >&2; exit 2; }"
    hooks = {
        "UserPromptSubmit": "echo hook says hi",
        "PostToolUse": "echo nope >&2; exit 2",
        "Stop": once,
    }
    settings = {
        "permissions": {"deny": ["Bash(rm:*)"]},
        "hooks": {
            event: [{"hooks": [{"type": "command", "command": command}]}]
            for event, command in hooks.items()
        },
    }
    with installed(binary, tmp_path, scripted(*steps)) as program:
        folder = program.project / ".claude"
        (folder / "commands").mkdir(parents=True)
        (folder / "commands" / "greet.md").write_text("Greet $ARGUMENTS loudly.\n")
        (folder / "settings.json").write_text(json.dumps(settings))
        program.run(*MODEL, "first")
        program.run(*MODEL, "-c", "/greet world")
        found = await compared(program)
        assert len(found) >= 5
        assert set(found) == {("observed", True, True)}
