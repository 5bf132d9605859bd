"""Programs that list their MCP servers connect to ours: opt-in, 650 MB.

``npm install @google/gemini-cli opencode-ai @github/copilot`` installs them; ``$EVENTCTX_GEMINI``,
``$EVENTCTX_OPENCODE`` and ``$EVENTCTX_COPILOT`` are the paths of ``gemini``, ``opencode`` and
``copilot``. The first two call no model for it; Copilot asks a scripted server.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import eventctx
from tests.scripted_http import serving
from tests.services.claude_code import Answer, Body, asked_of, scripted_api
from tests.services.programs import program_of, ran, set_up

SIZE = "650 MB"


def test_gemini_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_GEMINI", SIZE)
    set_up("gemini-cli", tmp_path)
    trusted = {str(tmp_path): "TRUST_FOLDER"}
    (tmp_path / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    listed = ran(program, tmp_path, tmp_path, "mcp", "list", NO_COLOR="1")
    (line,) = [one for one in listed.splitlines() if "eventctx:" in one]
    assert line.endswith("Connected")


def test_opencode_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_OPENCODE", SIZE)
    set_up("opencode", tmp_path)
    listed = ran(program, tmp_path, tmp_path, "mcp", "list", NO_COLOR="1")
    (line,) = [one for one in listed.splitlines() if "✓ eventctx" in one]
    assert "connected" in line


async def test_copilot_asks_right_after_a_compaction(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_COPILOT", SIZE)

    def script(body: Body) -> Answer:
        last = str(body["messages"][-1]["content"])
        if "detailed summary of the conversation" in last:
            return [{"type": "text", "text": "<summary>A parser.</summary>"}], "end_turn"
        if "What is lost?" in last and "tool_result" not in last:
            call = {"type": "tool_use", "id": "toolu_1", "name": "eventctx-lost", "input": {}}
            return [call], "tool_use"
        return [{"type": "text", "text": "Understood."}], "end_turn"

    store = tmp_path / "agent.db"
    with serving(scripted_api(script)) as api:
        set_up("copilot", tmp_path, "--store", str(store))
        variables = {
            "NO_COLOR": "1",
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": "claude-sonnet-4.6",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": api.url,
            "COPILOT_PROVIDER_API_KEY": "no-key",
        }
        ask = partial(ran, program, tmp_path, tmp_path, "--allow-all-tools", "-p", **variables)
        ask("Never touch legacy.py.")
        for words in ("Go on.", "/compact", "What is lost?"):
            ask(words, "--continue")
    assert '"compactions":1' in str(asked_of(api)[-1]["messages"][-1]["content"])
    async with eventctx.open(store, create=False) as engine:
        (session,) = await engine.sessions()
        first = (await engine.instructions(session.stream)).instructions[0]
    assert first.text == "Never touch legacy.py."
