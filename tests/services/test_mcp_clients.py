"""Programs that list their MCP servers connect to ours: opt-in, 650 MB.

``npm install @google/gemini-cli opencode-ai @github/copilot`` installs them; ``$EVENTCTX_GEMINI``,
``$EVENTCTX_OPENCODE`` and ``$EVENTCTX_COPILOT`` are the paths of ``gemini``, ``opencode`` and
``copilot``. The first two call no model for it; Copilot asks a scripted server.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

import eventctx
from tests.services.claude_code import Answer, Api, Body
from tests.services.setting_up import set_up


def run(program: str, home: Path, *arguments: str, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_COLOR": "1", **variables}
    done = subprocess.run(
        [program, *arguments],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def program_of(variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"opt-in (650 MB): ${variable} is the path of the program")
    return found


def test_gemini_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_GEMINI")
    set_up("gemini-cli", tmp_path)
    trusted = {str(tmp_path): "TRUST_FOLDER"}
    (tmp_path / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    listed = run(program, tmp_path, "mcp", "list")
    (line,) = [one for one in listed.splitlines() if "eventctx:" in one]
    assert line.endswith("Connected")


def test_opencode_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_OPENCODE")
    set_up("opencode", tmp_path)
    listed = run(program, tmp_path, "mcp", "list")
    (line,) = [one for one in listed.splitlines() if "✓ eventctx" in one]
    assert "connected" in line


async def test_copilot_asks_right_after_a_compaction(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_COPILOT")

    def script(body: Body) -> Answer:
        last = str(body["messages"][-1]["content"])
        if "detailed summary of the conversation" in last:
            return [{"type": "text", "text": "<summary>A parser.</summary>"}], "end_turn"
        if "What is lost?" in last and "tool_result" not in last:
            call = {"type": "tool_use", "id": "toolu_1", "name": "eventctx-lost", "input": {}}
            return [call], "tool_use"
        return [{"type": "text", "text": "Understood."}], "end_turn"

    api = Api(script)
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    store = tmp_path / "agent.db"
    try:
        set_up("copilot", tmp_path, "--store", str(store))
        variables = {
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": "claude-sonnet-4.6",
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{api.server_port}",
            "COPILOT_PROVIDER_API_KEY": "no-key",
        }
        run(program, tmp_path, "-p", "Never touch legacy.py.", "--allow-all-tools", **variables)
        for words in ("Go on.", "/compact", "What is lost?"):
            run(program, tmp_path, "--continue", "-p", words, "--allow-all-tools", **variables)
    finally:
        api.shutdown()
        thread.join()
        api.server_close()
    assert '"compactions":1' in str(api.received[-1]["messages"][-1]["content"])
    async with eventctx.open(store, create=False) as engine:
        (session,) = await engine.sessions()
        assert (await engine.instructions(session.stream)).instructions[
            0
        ].text == "Never touch legacy.py."
