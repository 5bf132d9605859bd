"""Fixtures for the receivers; tests/conftest.py imports them for every test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import jaeger as jaeger_process
from tests.services import nats_server, postgres_server
from tests.services import phoenix as phoenix_process
from tests.services.in_memory import memory_folder
from tests.services.jaeger_binary import JaegerMissing, build, find
from tests.services.postgres_binaries import PostgresMissing

FEW = 4
"""Processes of which one at most shall wait: the others compute meanwhile."""


def one_process(servers: str) -> pytest.MarkDecorator:
    """The mark of tests that wait for such servers, which one process starts.

    Where processes are few, it waits for the servers of every kind.
    """
    few = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) < FEW
    return pytest.mark.xdist_group("servers" if few else servers)


def skip(missing: Exception) -> None:
    """Without a program the tests are skipped, but with CI=true they fail."""
    if os.environ.get("CI") != "true":
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def jaeger() -> Iterator[jaeger_process.Jaeger]:
    """A real Jaeger, one for all tests: give your traces ids and a service name of their own.

    With CI=true it is built.
    """
    try:
        binary = find()
    except JaegerMissing as missing:
        skip(missing)
        binary = build()
    with jaeger_process.start(binary) as running:
        yield running


@pytest.fixture(scope="session")
def phoenix() -> Iterator[phoenix_process.Phoenix]:
    """A real Phoenix, one for all tests: give your spans a project of their own.

    Only where $EVENTCTX_PHOENIX names its Python, else the tests are skipped.
    """
    python = os.environ.get(phoenix_process.VARIABLE)
    if not python:
        pytest.skip(phoenix_process.OPT_IN)
    with phoenix_process.start(Path(python)) as running:
        yield running


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgres_server.Server]:
    """A real PostgreSQL, one for all tests of a process: give yours a database of its own."""
    try:
        server = postgres_server.Server(place=memory_folder())
    except PostgresMissing as missing:
        skip(missing)
        raise
    with server:
        yield server


@pytest.fixture
def postgres_url(postgres: postgres_server.Server) -> Iterator[str]:
    """The URL of an empty database; it is dropped behind the test."""
    name = postgres.new_database()
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def nats_binary() -> Path:
    """The program of NATS, for tests that stop or pause servers of their own."""
    try:
        return nats_server.find()
    except nats_server.NatsMissing as missing:
        skip(missing)
        raise


@pytest.fixture(scope="session")
def shared_cluster(nats_binary: Path) -> Iterator[nats_server.Cluster]:
    with nats_server.running(binary=nats_binary, place=memory_folder()) as cluster:
        yield cluster


@pytest.fixture
def jetstream(shared_cluster: nats_server.Cluster) -> Iterator[nats_server.Cluster]:
    """A real cluster of three NATS servers, without a stream: ``jetstream.url(name=...)``.

    What the test leaves is deleted: the servers keep each stream in step until they end.
    """
    yield shared_cluster
    shared_cluster.delete_streams()
