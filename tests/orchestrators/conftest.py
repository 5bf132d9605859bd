"""An engine in memory, and a session of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventctx
from eventctx import Context, Engine
from tests.orchestrators.agents import check_log


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open() as opened:
        yield opened


@pytest.fixture
async def ctx(engine: Engine) -> AsyncIterator[Context]:
    """A session whose log is whole when the test ends."""
    made = await engine.session("s")
    yield made
    await check_log(made)
