"""The contract of ``EventStore`` as tests that a store inherits.

Give a fixture ``store`` that is a new, empty store, and inherit:

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path):
            opened = await MyStore.open(tmp_path / "s.db")
            yield opened
            await opened.close()

It needs pytest and pytest-asyncio. The tests check the promises of ``eventctx/log/store.py``; the
stores of eventctx pass the same tests.
"""

from __future__ import annotations

import pytest

_PARTS = ("drafts", "appending", "reading", "keeping", "ordering")
# pytest shows the values of a failed assertion only in modules registered before their import.
pytest.register_assert_rewrite(*[f"{__name__}.{part}" for part in _PARTS])

from eventctx.testing.store_contract.appending import AppendingContract  # noqa: E402
from eventctx.testing.store_contract.keeping import (  # noqa: E402
    DestroyingContract,
    KeepingContract,
)
from eventctx.testing.store_contract.ordering import (  # noqa: E402
    FollowingContract,
    OrderingContract,
)
from eventctx.testing.store_contract.reading import (  # noqa: E402
    ForkingContract,
    ReadingContract,
)


class StoreContract(
    AppendingContract,
    ReadingContract,
    ForkingContract,
    KeepingContract,
    OrderingContract,
    FollowingContract,
    DestroyingContract,
):
    """Every promise of ``EventStore``; the subclass gives the fixture ``store``."""
