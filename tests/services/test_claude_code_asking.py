"""The real program with our hooks and our MCP server, against a scripted server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import eventctx
from tests.services.claude_code import OPT_IN, VARIABLE, Answer, Body, installed
from tests.services.test_claude_code import MODEL, answered, scripted, text, use


@pytest.fixture
def binary() -> Path:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(OPT_IN)
    return Path(named)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "eventctx.cli", *arguments]


def write_hooks(project: Path, store: Path) -> None:
    """The settings of our documentation, with our program of this checkout."""
    line = " ".join(command("hook", "claude-code", "--store", str(store)))
    events = ("PreCompact", "PostCompact", "SessionStart", "Stop")
    hooks = {one: [{"hooks": [{"type": "command", "command": line}]}] for one in events}
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))


async def test_in_the_middle_of_a_tool_loop_the_next_request_has_the_demands(
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        last = str(body["messages"][-1]["content"])
        if "TEXT ONLY" in last:
            program.api.tokens = 50
            return [text("<summary>We talked about a parser.</summary>")], "end_turn"
        if "toolu_1" in str(body["messages"]):
            return [text("Done.")], "end_turn"
        if "Look" in last:
            program.api.tokens = 190_000
            return [use("toolu_1", "Bash", command="echo hi")], "tool_use"
        return [text("Understood.")], "end_turn"

    with installed(binary, tmp_path, script) as program:
        write_hooks(program.project, tmp_path / "agent.db")
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "Look.", CLAUDE_CODE_AUTO_COMPACT_WINDOW="100000")
        sent = str(program.received[-1]["messages"])
    assert "We talked about a parser." in sent
    assert "Never touch the file legacy.py, please." in sent
    assert "eventctx instructions" in sent


async def test_after_a_compaction_the_model_is_told_the_demands(
    binary: Path, tmp_path: Path
) -> None:
    store = tmp_path / "agent.db"

    def script(body: Body) -> Answer:
        if "summary" in str(body["messages"][-1]["content"]).lower():
            return [text("<summary>We talked about a parser.</summary>")], "end_turn"
        return [text(f"Understood, {answered(body)}.")], "end_turn"

    with installed(binary, tmp_path, script) as program:
        write_hooks(program.project, store)
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
    served = command("mcp", "--store", str(store))
    config = {"mcpServers": {"eventctx": {"command": served[0], "args": served[1:]}}}
    (tmp_path / "mcp.json").write_text(json.dumps(config))
    steps = (
        [use("toolu_1", "mcp__eventctx__recall", session="earlier", query="legacy")],
        [use("toolu_2", "mcp__eventctx__why", session="earlier", message=77)],
    )
    with installed(binary, tmp_path, scripted(*steps)) as program:
        program.run(*MODEL, "What was I to leave?", "--mcp-config", str(tmp_path / "mcp.json"))
        results = [
            block
            for message in program.received[-1]["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ]
    assert "Never touch the file legacy.py." in str(results[0]["content"])
    assert results[1]["is_error"] is True
    assert "InvalidSetting" in str(results[1]["content"])
