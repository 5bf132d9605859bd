"""The page's modules are typed by JSDoc, and the types hold.

The compiler comes from npm when the test runs; nothing of it is in the project but its version.
"""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.web.node import PAGE_TESTS, tool

TYPESCRIPT = "typescript@7.0.2"


def test_the_types_of_the_page_hold() -> None:
    compiler = [tool("npx"), "--yes", "--package", TYPESCRIPT, "tsc"]
    offline = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    if offline.returncode != 0 and not os.environ.get("CI"):
        pytest.skip(f"npm has no {TYPESCRIPT}: {offline.stderr.strip()[-200:]}")
    command = [*compiler, "--project", str(PAGE_TESTS / "tsconfig.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
