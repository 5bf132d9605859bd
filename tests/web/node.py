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
    found = shutil.which("node")
    if found is not None and _version(found) >= OLDEST:
        return found
    missing = f"node {OLDEST[0]}.{OLDEST[1]} or newer runs the page's modules: install it"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def _version(program: str) -> tuple[int, int]:
    written = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    major, minor, *_ = written.stdout.strip().lstrip("v").split(".")
    return int(major), int(minor)


def run_tests(*files: Path) -> None:
    """Run test files, each in a process of its own; fail with what node says of those that fail.

    Imported into one process a file may begin its tests before the next one is loaded.
    """
    command = [node(), "--test", "--test-reporter=spec", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
