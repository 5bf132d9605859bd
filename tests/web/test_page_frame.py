"""The page's frame does what its screens build on: signals, places, keys, texts, long lists."""

from __future__ import annotations

import pytest

from tests.web.node import run_tests


@pytest.mark.parametrize("file", ["frame.test.mjs", "parts.test.mjs"])
def test_the_frame_of_the_page(file: str) -> None:
    run_tests(file)
