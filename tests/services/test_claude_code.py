"""The real program against a scripted server: its session, imported, our hooks and MCP server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.importers.load import import_file
from eventctx.queries.requests import request_at
from eventctx.stores.memory import MemoryStore
from tests.services.claude_code import Answer, Body, Program, Script, installed
from tests.services.programs import program_of, set_up

MODEL = ("--model", "claude-sonnet-4-5")


@pytest.fixture
def binary() -> Path:
    return program_of("EVENTCTX_CLAUDE_CODE", "360 MB")


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


SUMMARY = [text("<summary>We talked about a parser.</summary>")], "end_turn"


def understanding(body: Body) -> Answer:
    if "TEXT ONLY" in str(body["messages"][-1]["content"]):
        return SUMMARY
    return [text(f"Understood, {answered(body)}.")], "end_turn"


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
            return SUMMARY
        return scripted([use(f"toolu_{answered(body)}", "Bash", command="echo")])(body)

    with installed(binary, tmp_path, script) as program:
        program.run(*MODEL, "first")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "third")
        found = await compared(program)
        assert len(found) >= 3
        assert set(found) == {("observed", True, True)}


async def test_hooks_commands_and_a_denied_permission(binary: Path, tmp_path: Path) -> None:
    steps = (
        [use("toolu_1", "Bash", command="echo one")],
        [use("toolu_2", "Bash", command="rm -rf zzz")],
    )
    once = "test -f .stopped || { touch .stopped; echo again >&2; exit 2; }"
    commands = {
        "UserPromptSubmit": "echo hook says hi",
        "PostToolUse": "echo nope >&2; exit 2",
        "Stop": once,
    }
    hooks = {
        event: [{"hooks": [{"type": "command", "command": command}]}]
        for event, command in commands.items()
    }
    settings = {"permissions": {"deny": ["Bash(rm:*)"]}, "hooks": hooks}
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


SERVER = "mcp__plugin_eventctx_eventctx__"
"""What Claude Code calls the tools of our plugin's server."""


async def test_in_a_tool_loop_the_next_request_has_the_demands(
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        first = "toolu_1" not in str(body["messages"])
        if "Look" in str(body["messages"][-1]["content"]) and first:
            return [use("toolu_1", "Bash", command="echo hi")], "tool_use", 190_000
        return understanding(body)

    with installed(binary, tmp_path, script) as program:
        set_up("claude-code", program.home, "--store", str(tmp_path / "agent.db"))
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "Look.", CLAUDE_CODE_AUTO_COMPACT_WINDOW="100000")
        sent = str(program.received[-1]["messages"])
    assert "We talked about a parser." in sent
    assert "Never touch the file legacy.py, please." in sent
    assert "eventctx instructions" in sent


async def test_after_a_compaction_the_model_hears_the_demands(binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"

    with installed(binary, tmp_path, understanding) as program:
        set_up("claude-code", program.home, "--store", str(store))
        program.run(*MODEL, "Write a parser.")
        program.run(*MODEL, "-c", "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "Go on.")
        sent = str(program.received[-1]["messages"])
        session = program.session.stem
    assert "We talked about a parser." in sent
    assert "Never touch the file legacy.py, please." in sent
    assert f"eventctx instructions {session}" in sent
    async with eventctx.open(store, create=False) as engine:
        found = await engine.lost(session, compaction=1)
    assert "Never touch the file legacy.py, please." in [one.text for one in found.items]


async def test_the_model_asks_for_what_was_said(binary: Path, tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    async with eventctx.open(store) as engine:
        ctx = await engine.session("earlier")
        await ctx.add_message({"role": "user", "content": "Never touch the file legacy.py."})
    steps = (
        [use("toolu_1", f"{SERVER}recall", session="earlier", query="legacy")],
        [use("toolu_2", f"{SERVER}why", session="earlier", message=77)],
    )
    with installed(binary, tmp_path, scripted(*steps)) as program:
        set_up("claude-code", program.home, "--store", str(store))
        program.run(*MODEL, "What was I to leave?")
        skills = str(program.received[0]["messages"])
        blocks = [block for one in program.received[-1]["messages"] for block in one["content"]]
        results = [one for one in blocks if isinstance(one, dict) and one["type"] == "tool_result"]
    assert "eventctx: Get back what left the context" in skills
    assert "Never touch the file legacy.py." in str(results[0]["content"])
    assert results[1]["is_error"] is True
    assert "InvalidSetting" in str(results[1]["content"])


async def test_after_a_compaction_the_model_asks_what_it_lost(binary: Path, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        last = str(body["messages"][-1]["content"])
        if "Go on" in last and "TEXT ONLY" not in last:
            return [use("toolu_1", f"{SERVER}lost")], "tool_use"
        return understanding(body)

    with installed(binary, tmp_path, script) as program:
        set_up("claude-code", program.home, "--store", str(tmp_path / "agent.db"))
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "Go on.")
        sent = str(program.received[-1]["messages"][-1]["content"])
    # The program wrote its summary after its hooks: the one before the call read it.
    assert '"compactions":1' in sent
    assert '"state":"gone","text":"Never touch the file legacy.py, please."' in sent
