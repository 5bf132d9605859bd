"""What the tests of the PostgreSQL store share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventctx.stores.postgres.store import PostgresStore


@pytest.fixture
async def store(postgres_place: str) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(postgres_place)
    yield opened
    await opened.close()
