"""The tests of plugins whose frameworks need environments of their own, which variables name.

google-adk asks for an older OpenTelemetry than the newest of the others, strands-agents for an
older mcp than our server.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "google-adk": ("google_adk", "google_adk_interrupted", "google_adk_requests", "faults"),
    "strands": (
        *("strands", "strands_conversations", "strands_requests", "strands_rows", "strands_tools"),
        "faults",
    ),
}


@pytest.mark.parametrize("extra", FILES)
def test_a_plugin_passes_its_tests_where_its_framework_is_installed(extra: str) -> None:
    variable = f"EVENTCTX_{extra.upper().replace('-', '_')}"
    if variable not in os.environ:
        pytest.skip(
            f"opt-in: {variable}=<the Python of an environment with eventctx[{extra}]>, "
            f"docs/how-to/use-with-{extra}.md"
        )
    ran = subprocess.run(
        [
            *(os.environ[variable], "-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"),
            *[f"tests/adapters/test_{name}.py" for name in FILES[extra]],
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
