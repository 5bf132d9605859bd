"""The messages of all recorded sessions, imported once for the tests that read them."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.test_recorded_sessions import SESSIONS, imported

of_all_messages: Final = pytest.mark.xdist_group("recorded messages")
"""Mark of a test that reads them, so that one process imports them."""


@cache
def all_messages(folder: Path) -> list[dict[str, Any]]:
    """Every message of every recorded session in the folder."""
    return asyncio.run(_read(folder))


async def _read(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in SESSIONS:
        engine, sessions = await imported(folder / name)
        assert sessions, name
        for session in sessions:
            lines = await engine.transcript(session)
            found += [line.message for line in lines if line.message is not None]
    return found
