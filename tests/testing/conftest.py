"""Fixtures of these tests: modules and what they keep are tried, and not the disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.in_memory import memory_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="eventctx-testing-", dir=memory_folder()) as folder:
        yield Path(folder)
