"""The table of all faults of servers, printed behind the last test of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.servers import trials


@pytest.fixture(scope="session", autouse=True)
def _table_of_servers() -> Iterator[None]:
    yield
    if trials.ROWS:
        print("\n" + trials.table())
