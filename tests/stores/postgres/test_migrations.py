"""A store of every earlier version opens with all it holds, and takes more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eventctx.errors import StoreTooNew
from eventctx.log.store import ANY
from eventctx.search.postgres_index import PostgresTextIndex
from eventctx.stores.postgres.schema import SCHEMA_VERSION
from eventctx.stores.postgres.store import PostgresStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
from tests.services.postgres_server import Server

FROZEN = Path(__file__).parents[2] / "golden" / "postgres"


@pytest.fixture
def restored(postgres: Server) -> object:
    """Restores the frozen store of a version into a database of its own; returns its URL."""
    made: list[str] = []

    def restore(version: int) -> str:
        name = postgres.new_database()
        made.append(name)
        with postgres.connection(name) as connection:
            connection.execute((FROZEN / f"version-{version}.sql").read_bytes())
        return postgres.url(name)

    yield restore
    for name in made:
        postgres.drop_database(name)


def test_every_version_is_frozen() -> None:
    expected = {f"version-{number}.sql" for number in range(1, SCHEMA_VERSION + 1)}
    assert {one.name for one in FROZEN.glob("*.sql")} == expected


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_a_store_of_an_earlier_version_opens_with_its_records_and_takes_more(
    restored, version: int
) -> None:
    url = restored(version)
    # Two processes of a new release may start at once.
    store, other = await asyncio.gather(PostgresStore.open(url), PostgresStore.open(url))
    parent, child = await gather(store.read("parent")), await gather(store.read("child"))
    assert [len(one.bodies) for one in parent] == [0, 1, 2]
    assert [bytes(body.data) for body in parent[2].bodies] == [b"two", b"three"]
    assert [one.position for one in child] == [0, 1, 2, 3]
    await other.append("child", [make_draft("five")], ANY)
    for stream in ("parent", "child"):
        check_chain(await gather(store.read(stream)))
    everything = [one async for one in store.read_all()]
    assert [one.stream for one in everything] == ["parent"] * 3 + ["child"] * 3
    assert [one.global_position for one in everything] == sorted(
        one.global_position for one in everything
    )
    await store.save_checkpoint("sink", 7)
    assert await other.load_checkpoint("sink") == 7
    index = PostgresTextIndex(store)
    assert index.mark() is None
    index.close()
    assert (await store.inspect()).findings == ()
    await store.close()
    await other.close()


async def test_a_store_of_a_later_release_is_refused(postgres_place: str, postgres: Server) -> None:
    store = await PostgresStore.open(postgres_place)
    await store.close()
    schema = store.destination.schema
    postgres.execute(f"UPDATE {schema}.meta SET value = '999' WHERE key = 'schema_version'")  # noqa: S608
    with pytest.raises(StoreTooNew, match="found 999"):
        await PostgresStore.open(postgres_place)
