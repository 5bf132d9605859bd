"""The PostgreSQL how-to: its files ask for what the store demands, and its SQL runs.

Its drills run in test_restoring.py, and what it says of TLS in test_tls.py.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
import yaml

from eventctx.stores.postgres.durability import standbys_needed
from eventctx.stores.postgres.store import PostgresStore
from tests.faults.servers import patroni_settings
from tests.pages import blocks_of
from tests.services.in_memory import memory_folder
from tests.services.postgres_server import Server
from tests.test_docs import DOCS

PAGE = DOCS / "how-to" / "keep-sessions-in-postgresql.md"
SAFE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


def compose(name: str) -> dict[str, Any]:
    assert f"(compose/{name})" in PAGE.read_text()
    return dict(yaml.safe_load((PAGE.parent / "compose" / name).read_text()))


def test_the_primary_of_the_compose_file_waits_for_one_of_two_standbys() -> None:
    file = compose("postgresql.yaml")
    services = file["services"]
    assert {one["image"] for one in services.values()} == {"postgres:18"}
    command = services["primary"]["command"]
    given = dict(re.findall(r"-c (\w+)=('[^']*'|\S+)", command))
    assert SAFE.items() <= given.items()
    names = given["synchronous_standby_names"].strip("'")
    assert standbys_needed(names) == 1
    standbys = [one for one in services if one != "primary"]
    assert [services[one]["environment"]["NAME"] for one in standbys] == standbys
    assert names == f"ANY 1 ({', '.join(standbys)})"
    assert "application_name='$$NAME'" in services["standby1"]["command"]
    assert set(file["volumes"]) == set(services)
    assert {one for service in services.values() for one in service["secrets"]} == set(
        file["secrets"]
    )


def test_the_cluster_of_the_compose_file_acknowledges_nothing_without_a_standby() -> None:
    file = compose("patroni.yaml")
    assert set(file["services"]) == {f"{kind}{n}" for kind in ("etcd", "db") for n in (1, 2, 3)}
    for name, service in file["services"].items():
        variable = "ETCD_NAME" if name.startswith("etcd") else "PATRONI_NAME"
        assert service["environment"][variable] == name
        if variable == "ETCD_NAME":
            assert re.fullmatch(r"quay\.io/coreos/etcd:v3\.5\.\d+", service["image"])
        else:
            assert "FROM postgres:18\n" in service["build"]["dockerfile_inline"]
    settings = yaml.safe_load(file["configs"]["patroni"]["content"])
    cluster = settings["bootstrap"]["dcs"]
    tried = patroni_settings.settings("m", "h", (1, 2), PAGE, "")["bootstrap"]["dcs"]
    for name in ("synchronous_mode", "synchronous_mode_strict"):
        assert cluster[name] is tried[name] is True  # what the faults are tried with
    assert cluster["postgresql"]["parameters"] == SAFE
    assert "data-checksums" in settings["bootstrap"]["initdb"]
    assert settings["etcd3"]["hosts"] == [f"etcd{n}:2379" for n in (1, 2, 3)]


@pytest.mark.slow
async def test_the_roles_of_the_page_are_made_by_its_statements() -> None:
    (statements,) = [one.text for one in blocks_of(PAGE) if "make_roles" in one.text]
    with Server(place=memory_folder()) as server:
        store = await PostgresStore.open(server.url())
        await store.close()
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute(statements.encode())
        ann = await PostgresStore.open(server.url(user="ann"))
        assert not ann.read_only
        await ann.close()
