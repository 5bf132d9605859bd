"""What the store finds about itself as a whole, after somebody else has had a hand in it."""

from __future__ import annotations

import pytest

from eventctx.log.store import NO_STREAM
from eventctx.stores.postgres.connections import ServerConnection, in_schema, parse_url
from eventctx.stores.postgres.store import PostgresStore

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
