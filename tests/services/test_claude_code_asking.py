"""The real program with our hooks and our MCP server, against a scripted server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import eventctx
from tests.services.claude_code import OPT_IN, VARIABLE, Answer, Body, installed
from tests.services.setting_up import set_up
from tests.services.test_claude_code import MODEL, answered, scripted, text, use

SERVER = "mcp__plugin_eventctx_eventctx__"
"""What Claude Code calls the tools of our plugin's server."""


@pytest.fixture
def binary() -> Path:
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(OPT_IN)
    return Path(named)


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
        set_up("claude-code", program.folder / "home", "--store", str(tmp_path / "agent.db"))
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
        set_up("claude-code", program.folder / "home", "--store", str(store))
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
        [
            use(
                "toolu_1",
                f"{SERVER}recall",
                session="earlier",
                query="legacy",
            )
        ],
        [use("toolu_2", f"{SERVER}why", session="earlier", message=77)],
    )
    with installed(binary, tmp_path, scripted(*steps)) as program:
        set_up("claude-code", program.folder / "home", "--store", str(store))
        program.run(*MODEL, "What was I to leave?")
        skills = str(program.received[0]["messages"])
        results = [
            block
            for message in program.received[-1]["messages"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ]
    assert "eventctx: Get back what left the context" in skills
    assert "Never touch the file legacy.py." in str(results[0]["content"])
    assert results[1]["is_error"] is True
    assert "InvalidSetting" in str(results[1]["content"])


async def test_right_after_a_compaction_the_model_asks_what_it_lost(
    binary: Path, tmp_path: Path
) -> None:
    def script(body: Body) -> Answer:
        last = str(body["messages"][-1]["content"])
        if "TEXT ONLY" in last:
            return [text("<summary>We talked about a parser.</summary>")], "end_turn"
        if "Go on" in last:
            return [use("toolu_1", f"{SERVER}lost")], "tool_use"
        return [text("Understood.")], "end_turn"

    with installed(binary, tmp_path, script) as program:
        set_up("claude-code", program.folder / "home", "--store", str(tmp_path / "agent.db"))
        program.run(*MODEL, "Never touch the file legacy.py, please.")
        program.run(*MODEL, "-c", "/compact")
        program.run(*MODEL, "-c", "Go on.")
        sent = str(program.received[-1]["messages"][-1]["content"])
    # The program wrote its summary after its hooks: the one before the call read it.
    assert '"compactions":1' in sent
    assert '"state":"gone","text":"Never touch the file legacy.py, please."' in sent
