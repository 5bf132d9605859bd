"""The tests of Google ADK's plugin in an environment of its own, which $EVENTCTX_GOOGLE_ADK names.

google-adk asks for an older OpenTelemetry than the newest of the others.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "EVENTCTX_GOOGLE_ADK"
FILES = ("google_adk", "google_adk_interrupted", "google_adk_requests", "faults")


@pytest.mark.skipif(
    VARIABLE not in os.environ,
    reason=f"opt-in: {VARIABLE}=<the Python of an environment with eventctx[google-adk]>, "
    "docs/how-to/use-with-google-adk.md",
)
def test_the_plugin_passes_its_tests_where_adk_is_installed() -> None:
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
