"""An engine in memory. The tests of ``make elsewhere`` have one of their own: they run without."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.engine import Engine, open_engine


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with open_engine("memory://") as opened:
        yield opened
