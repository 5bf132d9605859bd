"""The contract of EventStore, run for every store: ``conftest`` gives them in turn."""

from __future__ import annotations

from eventctx.testing.store_contract import StoreContract


class TestEveryStore(StoreContract):
    """Each test with each store of the fixture ``store``."""
