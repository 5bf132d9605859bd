"""Freezes a store of the present schema: ``python -m tests.golden.postgres.make`` writes its dump.

One file a version, which is never changed once it is there. ``… make 1`` made those of versions
before the first release, by the steps up to that version.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres import schema
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.services.postgres_server import Server

FOLDER = Path(__file__).parent


async def fill(url: str) -> None:
    """Two sessions, one of them a fork, with records of no, one and two bodies."""
    store = await PostgresStore.open(url)
    await store.append(
        "parent", [make_draft(), make_draft("one"), make_draft("two", "three")], NO_STREAM
    )
    await store.fork("parent", 1, "child", make_draft())
    await store.append("child", [make_draft("four")], 2)
    await store.close()


def main(version: int) -> None:
    """Write the dump of a store of this version."""
    target = FOLDER / f"version-{version}.sql"
    assert not target.exists(), f"{target} is frozen"
    schema.MIGRATIONS = schema.MIGRATIONS[:version]  # type: ignore[misc]
    schema.SCHEMA_VERSION = version  # type: ignore[misc]
    with Server() as server:
        asyncio.run(fill(server.url()))
        dumped = server.binaries.run(
            "pg_dump", "--dbname=" + server.url(), "--schema=eventctx", "--no-owner", "--inserts"
        )
    kept = [one for one in dumped.splitlines() if one and not one.startswith(("--", "\\", "SET t"))]
    target.write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else schema.SCHEMA_VERSION)
