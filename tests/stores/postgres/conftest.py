"""What the tests of the PostgreSQL store share."""

from __future__ import annotations

from typing import Any

import pytest

from eventctx.stores.postgres.store import PostgresStore


@pytest.fixture
async def store(postgres_place: str, opened: Any) -> PostgresStore:
    return await opened(PostgresStore.open(postgres_place))
