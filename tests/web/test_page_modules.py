"""The page's own tests, which node runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.web.node import PAGE_TESTS, node, run_tests

FILES = sorted(PAGE_TESTS.glob("*.test.mjs"))


def test_the_pages_modules_do_what_their_tests_say() -> None:
    assert FILES
    run_tests(*FILES)


TYPESCRIPT = "typescript@7.0.2"


def test_the_types_of_the_page_hold() -> None:
    npx = Path(node()).with_name("npx")
    compiler = [str(npx), "--yes", "--package", TYPESCRIPT, "tsc"]
    command = [*compiler, "--project", str(PAGE_TESTS / "tsconfig.json")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        # A laptop may be without npm or without a network; where all must run, it has both.
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"npm cannot bring {TYPESCRIPT}: {error}")
    assert done.returncode == 0, done.stdout + done.stderr
