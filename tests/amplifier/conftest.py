"""A home of its own for each test, to which ``context-eventctx-persistent`` writes; a store."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any session."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's sessions are kept."""
    return tmp_path / "contexts.db"
