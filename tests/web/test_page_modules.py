"""The page's own tests, each a file that node runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.node import PAGE_TESTS, run_tests

FILES = sorted(PAGE_TESTS.glob("*.test.mjs"))


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_the_pages_modules_do_what_their_tests_say(file: Path) -> None:
    run_tests(file)
