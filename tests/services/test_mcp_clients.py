"""Programs that list their MCP servers connect to ours: opt-in, 450 MB.

``npm install @google/gemini-cli opencode-ai`` installs them; ``$EVENTCTX_GEMINI`` and
``$EVENTCTX_OPENCODE`` are the paths of ``gemini`` and ``opencode``. They call no model for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = [sys.executable, "-m", "eventctx.cli", "mcp"]


def listed(program: str, folder: Path) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_COLOR": "1"}
    done = subprocess.run(
        [program, "mcp", "list"],
        cwd=folder,
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
        pytest.skip(f"opt-in (450 MB): ${variable} is the path of the program")
    return found


def test_gemini_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_GEMINI")
    settings = {"mcpServers": {"eventctx": {"command": SERVER[0], "args": SERVER[1:]}}}
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(json.dumps(settings))
    trusted = {str(tmp_path): "TRUST_FOLDER"}
    (tmp_path / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    (line,) = [one for one in listed(program, tmp_path).splitlines() if "eventctx:" in one]
    assert line.endswith("Connected")


def test_opencode_connects(tmp_path: Path) -> None:
    program = program_of("EVENTCTX_OPENCODE")
    settings = {"mcp": {"eventctx": {"type": "local", "command": SERVER}}}
    (tmp_path / "opencode.json").write_text(json.dumps(settings))
    (line,) = [one for one in listed(program, tmp_path).splitlines() if "✓ eventctx" in one]
    assert "connected" in line
