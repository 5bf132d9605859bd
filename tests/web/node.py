"""Node.js, which tests of the page need and nobody else: skipped where it is missing, but in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE_TESTS = Path(__file__).parent / "page"


def tool(name: str) -> str:
    """The path of ``node``, ``npm`` or ``npx``."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{name} is needed to test the page")
        pytest.skip(f"{name} is not installed")
    return found


def run_tests(file: str, *arguments: str) -> None:
    """Run one file of tests/web/page with Node's own test runner."""
    command = [tool("node"), "--test", str(PAGE_TESTS / file), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# tests 0" not in done.stdout, f"{file} holds no test"
