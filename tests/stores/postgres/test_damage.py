"""Damage that the server finds in its own files is the damage of a session, by its name."""

from __future__ import annotations

import pytest

from eventctx.errors import LogCorrupted
from eventctx.log.store import ANY, NO_STREAM, Address
from eventctx.stores.postgres.connections import ServerConnection, in_schema, parse_url
from eventctx.stores.postgres.store import PostgresStore
from tests.services.postgres_server import Server


def ruin(path) -> None:
    whole = bytearray(path.read_bytes())
    whole[200:8000] = bytes(byte ^ 0x55 for byte in whole[200:8000])
    path.write_bytes(whole)


@pytest.mark.parametrize("damage", ["a page", "a file"])
async def test_damage_in_the_servers_files_names_the_session_that_was_asked_for(
    damage, draft, collect
) -> None:
    with Server() as server:
        store = await PostgresStore.open(server.url())
        await store.append("agent 7", [draft("a"), draft("b")], NO_STREAM)
        ((file,),) = server.execute("SELECT pg_relation_filepath('eventctx.records')")
        server.stop()
        ruin(server.data / file) if damage == "a page" else (server.data / file).unlink()
        server.start()
        for use in (
            lambda: collect(store.read("agent 7")),
            lambda: store.bodies("agent 7", [Address(0)]),
            lambda: wait(store.append("agent 7", [draft()], ANY)),
        ):
            with pytest.raises(
                LogCorrupted, match=r"^stream 'agent 7': the server finds"
            ) as raised:
                await use()
            assert raised.value.stream == "agent 7"
            assert str(raised.value).endswith("`eventctx verify agent 7` lists all damage")
        with pytest.raises(LogCorrupted, match=r"^the log: the server finds .* `eventctx verify`"):
            await collect(store.read_all())
        await store.close()


async def wait(ack):
    return await ack


FOREIGN = """
CREATE FUNCTION eventctx.meddle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER meddling BEFORE INSERT ON eventctx.records
  FOR EACH ROW EXECUTE FUNCTION eventctx.meddle()
"""


@pytest.mark.parametrize(
    ("sql", "finding", "missing"),
    [
        ("DELETE FROM eventctx.records WHERE position = 1", None, 1),
        ("DELETE FROM eventctx.records", "1 sessions have lost all their records", 0),
        ("DELETE FROM eventctx.streams", "3 records belong to no session", 0),
        ("DELETE FROM eventctx.types", "3 records have a type whose name was removed", 0),
        ("UPDATE eventctx.bodies SET pos = 5", "1 contents belong to no record", 0),
        ("ALTER TABLE eventctx.records DROP CONSTRAINT records_place", "'records_place' was", 0),
        (FOREIGN, "the trigger 'meddling' to the table 'records'", 0),
        ("CREATE RULE quiet AS ON INSERT TO eventctx.types DO INSTEAD NOTHING", "'quiet'", 0),
    ],
)
async def test_a_foreign_hand_is_noticed(postgres_place, draft, sql, finding, missing):
    store = await PostgresStore.open(postgres_place)
    await store.append("s", [draft("a"), draft("b", "c"), draft()], NO_STREAM)
    connection = ServerConnection(parse_url(postgres_place))
    connection.script(in_schema(sql, connection.schema))
    connection.close()
    found = await store.inspect()
    assert found.missing == missing
    if finding is not None:
        assert any(finding in one for one in found.findings), found.findings
    await store.close()
