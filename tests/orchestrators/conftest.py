"""An engine in memory, and a session of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventctx
from eventctx import Context, Engine


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open() as opened:
        yield opened


@pytest.fixture
async def ctx(engine: Engine) -> Context:
    return await engine.session("s")
