"""A server that could lose an acknowledged append is refused, and acknowledges none too early."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from eventctx.errors import StoreUnsafe
from eventctx.stores.postgres.durability import Durability, standbys_needed
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        ("", 0),
        ("  ", 0),
        ("s1", 1),
        ("s1, s2", 1),
        ("*", 1),
        ("2 (s1, s2, s3)", 2),
        ("FIRST 2 (s1, s2, s3)", 2),
        ("first 1 (s1)", 1),
        ("ANY 1 (s1, s2)", 1),
        ("any 3 (*)", 3),
        ('ANY 2 ("any 1 (x)", s2)', 2),
        ('"ANY"', 1),
    ],
)
def test_the_number_of_standbys_is_read_as_the_server_reads_it(names: str, needed: int) -> None:
    assert standbys_needed(names) == needed


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose settings these tests change."""
    with Server(place=memory_folder()) as own:
        own.execute("CREATE ROLE plain LOGIN")
        yield own


@pytest.fixture
def changed(server: Server) -> Iterator[Any]:
    def change(**settings: str) -> None:
        for name, value in settings.items():
            server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.reload()

    yield change
    server.execute("ALTER SYSTEM RESET ALL")
    server.reload()


@pytest.mark.parametrize("wanted", ["local", "replicated"])
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_what_is_on_its_disk_is_refused(
    server: Server, changed: Any, setting: str, wanted: Any
) -> None:
    changed(**{setting: "off"})
    with (
        server.connection() as connection,
        pytest.raises(StoreUnsafe, match=rf"found {setting}=off; run ALTER SYSTEM SET {setting}"),
    ):
        Durability(wanted).prepare(connection)


@pytest.mark.parametrize("where", ["server", "database", "role"])
def test_synchronous_commit_off_is_overridden(server: Server, changed: Any, where: str) -> None:
    scope = {"database": "DATABASE postgres", "role": "ROLE plain"}.get(where)
    if scope is None:
        changed(synchronous_commit="off")
    else:
        server.execute(f"ALTER {scope} SET synchronous_commit = off")
    try:
        with server.connection(user="plain") as connection:
            assert shown(connection) == "off"
            durability = Durability("local")
            durability.prepare(connection)
            assert shown(connection) == "on"
            assert durability.facts(connection)["synchronous_commit"] == "on"
    finally:
        if scope is not None:
            server.execute(f"ALTER {scope} RESET synchronous_commit")


def shown(connection: Any) -> str:
    return str(connection.execute("SHOW synchronous_commit").fetchone()[0])


@pytest.mark.parametrize("kept", ["local", "remote_write", "on", "remote_apply"])
def test_a_level_that_waits_for_this_disk_stays(server: Server, changed: Any, kept: str) -> None:
    changed(synchronous_commit=kept)
    with server.connection() as connection:
        Durability("local").prepare(connection)
        assert shown(connection) == kept


def test_tables_that_a_crash_empties_are_refused(server: Server) -> None:
    server.execute("CREATE SCHEMA fragile")
    server.execute("CREATE UNLOGGED TABLE fragile.records(one int)")
    server.execute("CREATE UNLOGGED TABLE fragile.snapshots(one int)")  # may be lost
    with server.connection() as connection:
        with pytest.raises(StoreUnsafe, match="unlogged and empty after a crash: records"):
            Durability("local", schema="fragile").prepare(connection)
        server.execute("ALTER TABLE fragile.records SET LOGGED")
        Durability("local", schema="fragile").prepare(connection)


def test_replicated_without_a_synchronous_standby_is_refused(server: Server) -> None:
    with (
        server.connection() as connection,
        pytest.raises(StoreUnsafe, match="synchronous_standby_names is empty"),
    ):
        Durability("replicated").prepare(connection)


QUORUM = "ANY 1 (s1, s2)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Server, Server]]:
    with Server(place=memory_folder()) as primary:
        primary.execute("CREATE TABLE written(one int)")
        primary.execute("CREATE ROLE plain LOGIN")
        primary.execute("GRANT INSERT ON written TO plain")
        with primary.standby("s1") as standby:
            yield primary, standby


@pytest.fixture
def primary(cluster: tuple[Server, Server]) -> Iterator[Server]:
    """The primary, whose commits wait for a standby."""
    require(cluster[0], QUORUM)
    yield cluster[0]
    cluster[1].resume()
    require(cluster[0], QUORUM)


@pytest.fixture
def standby(primary: Server, cluster: tuple[Server, Server]) -> Server:
    return cluster[1]


@pytest.fixture
def prepared(primary: Server) -> Iterator[tuple[Any, Durability]]:
    """A connection, and the guarantee that it was prepared for."""
    durability = Durability("replicated", patience=0.3)
    with primary.connection() as connection:
        durability.prepare(connection)
        yield connection, durability


INSERT = "INSERT INTO written VALUES (1)"
Prepared = tuple[Any, Durability]


def require(primary: Server, names: str) -> None:
    with primary.connection() as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'".encode())
        connection.execute("SELECT pg_reload_conf()")
        until_it_shows(connection, names)


def until_it_shows(connection: Any, names: str) -> None:
    """A session reads the settings anew between two statements, some time after the signal."""
    until = time.monotonic() + 60
    while connection.execute("SHOW synchronous_standby_names").fetchone() != (names,):
        assert time.monotonic() < until


@pytest.mark.parametrize("level", ["off", "local", "remote_write", "on", "remote_apply"])
def test_commits_wait_for_the_disk_of_a_standby(primary: Server, level: str) -> None:
    with primary.connection() as connection:
        connection.execute(f"SET synchronous_commit = {level}")
        Durability("replicated").prepare(connection)
        assert shown(connection) == ("remote_apply" if level == "remote_apply" else "on")


def test_the_look_may_travel_with_the_commit(prepared: Prepared, standby: Server) -> None:
    connection, durability = prepared

    def looked() -> Any:
        with connection.pipeline():
            for statement in ("BEGIN", INSERT, "COMMIT"):
                connection.execute(statement)
            return durability.look(connection)

    durability.confirm(connection, looked())
    standby.pause()
    connection.execute("SET synchronous_commit = local")
    late = looked()
    with pytest.raises(StoreUnsafe, match=r"found 0 after 0\.3 s"):
        durability.confirm(connection, late)


def test_a_role_that_cannot_see_the_standbys_is_told_what_it_needs(primary: Server) -> None:
    with primary.connection(user="plain") as connection:
        with pytest.raises(StoreUnsafe, match="GRANT pg_read_all_stats"):
            Durability("replicated").prepare(connection)
        primary.execute("GRANT pg_read_all_stats TO plain")
        durability = Durability("replicated")
        durability.prepare(connection)
        connection.execute(INSERT)
        durability.confirm(connection)


def test_an_append_is_not_acknowledged_when_the_failover_manager_gave_up_its_standby(
    primary: Server, standby: Server
) -> None:
    durability = Durability("replicated")
    with primary.connection() as connection:
        durability.prepare(connection)
        standby.pause()
        waiting = threading.Thread(target=connection.execute, args=(INSERT,))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        require(primary, "")  # what Patroni does without synchronous_mode_strict
        waiting.join(60)
        assert not waiting.is_alive()
        for look in (durability.confirm, durability.check):
            with pytest.raises(StoreUnsafe, match="synchronous_mode_strict"):
                look(connection)
        standby.resume()
        require(primary, QUORUM)
        until_it_shows(connection, QUORUM)
        durability.check(connection)
        connection.execute(INSERT)
        durability.confirm(connection)


def test_a_commit_that_did_not_wait_is_sought_on_the_standby(
    prepared: Prepared, standby: Server
) -> None:
    """As just after the names were set, when the server does not wait yet."""
    connection, durability = prepared
    standby.pause()
    for level, said in (("local", "expected 1 standby to have"), ("off", "is there a pooler")):
        connection.execute(f"SET synchronous_commit = {level}")
        connection.execute(INSERT)
        with pytest.raises(StoreUnsafe, match=said):
            durability.confirm(connection)


def test_as_many_standbys_are_wanted_as_the_server_asks_for(
    primary: Server, prepared: Prepared
) -> None:
    connection, durability = prepared
    require(primary, "ANY 2 (s1, s2)")
    until_it_shows(connection, "ANY 2 (s1, s2)")
    connection.execute("SET synchronous_commit = local")
    connection.execute(INSERT)
    with pytest.raises(StoreUnsafe, match=r"expected 2 standbys .* found 1 after"):
        durability.confirm(connection)
