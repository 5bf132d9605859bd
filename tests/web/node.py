"""Node, which runs the page's modules in tests. Nobody needs it to use or build the page."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE_TESTS = Path(__file__).parent / "page"
OLDEST = (20, 19)
"""Reads ``.js`` files as modules without being told to."""


def node() -> str:
    """The program; the test is skipped without one, but fails where all must run."""
    if found := shutil.which("node"):
        told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
        if tuple(map(int, told.stdout.strip().lstrip("v").split(".")[:2])) >= OLDEST:
            return found
    missing = f"node {OLDEST[0]}.{OLDEST[1]} or newer runs the page's modules: install it"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def run_tests(*files: Path) -> None:
    """Run test files, each in a process of its own; fail with what node says of those that fail.

    Imported into one process a file may begin its tests before the next one is loaded.
    """
    command = [node(), "--test", "--test-reporter=spec", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
