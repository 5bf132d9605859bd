"""The tests of the plugin for Strands in an environment of its own, which $EVENTCTX_STRANDS names.

strands-agents asks for an older mcp than our server.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "EVENTCTX_STRANDS"
FILES = (
    *("strands", "strands_conversations", "strands_requests", "strands_rows", "strands_tools"),
    "faults",
)


@pytest.mark.skipif(
    VARIABLE not in os.environ,
    reason=f"opt-in: {VARIABLE}=<the Python of an environment with eventctx[strands]>, "
    "docs/how-to/use-with-strands.md",
)
def test_the_plugin_passes_its_tests_where_strands_is_installed() -> None:
    ran = subprocess.run(
        [
            *(os.environ[VARIABLE], "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"),
            *[f"tests/adapters/test_{name}.py" for name in FILES],
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
