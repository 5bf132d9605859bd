"""One transaction after the other, on the writing connections of two processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.stores.sqlite import SqliteStore
from eventctx.stores.sqlite_log import Log


async def test_a_transaction_tells_commits_of_others_from_its_own(
    path: Path, draft: Callable[..., Draft]
) -> None:
    store = await SqliteStore.open(path)
    await store.close()
    connections = [apsw.Connection(str(path)) for _ in range(2)]
    first, second = map(Log, connections)

    def writes(log: Log) -> bool:
        """Append in a transaction; whether another connection wrote since the log's last one."""
        foreign = log.begin()
        log.append("s", [draft()], ANY)
        log.commit()
        return foreign

    def writes_nothing(log: Log) -> bool:
        foreign = log.begin()
        log.commit()
        return foreign

    writes(first), writes(second)
    assert [writes(first), writes(first), writes_nothing(first), writes(first)] == [
        *(True, False, False, False)
    ]
    assert [writes(second), writes(second), writes(first)] == [True, False, True]
    for connection in connections:
        connection.close()
