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


async def test_after_a_compaction_the_model_is_told_the_demands(
    binary: Path, tmp_path: Path
) -> None:
    store = tmp_path / "agent.db"

    def script(body: Body) -> Answer:
        if "summary" in str(body["messages"][-1]["content"]).lower():
            return [text("<summary>We talked about a parser.</summary>")], "end_turn"
        return [text(f"Understood, {answered(body)}.")], "end_turn"

    line = " ".join(command("hook", "claude-code", "--store", str(store)))
    events = ("PreCompact", "PostCompact", "SessionStart", "Stop")
    hooks = {one: [{"hooks": [{"type": "command", "command": line}]}] for one in events}
    with installed(binary, tmp_path, script) as program:
        (program.project / ".claude").mkdir()
        (program.project / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}))
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
