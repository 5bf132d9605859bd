"""The page's own tests, which node runs."""

from __future__ import annotations

from tests.web.node import PAGE_TESTS, run_tests

FILES = sorted(PAGE_TESTS.glob("*.test.mjs"))


def test_the_pages_modules_do_what_their_tests_say() -> None:
    assert FILES
    run_tests(*FILES)
