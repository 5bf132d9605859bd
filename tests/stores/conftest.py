"""Fixtures of all tests of stores: the stores, and drafts with bodies."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventctx.log.record import Draft, Record
from eventctx.log.store import EventStore
from eventctx.stores.memory import MemoryStore
from eventctx.stores.postgres.store import PostgresStore
from eventctx.stores.sqlite import SqliteStore
from eventctx.testing.store_contract.drafts import check_chain, gather, make_draft
from tests.children import started
from tests.services.postgres_server import Server

PROGRAMS = Path(__file__).parent / "programs.py"


@pytest.fixture
def draft() -> Callable[..., Draft]:
    return make_draft


@pytest.fixture
def chained() -> Callable[[Iterable[Record]], None]:
    return check_chain


@pytest.fixture
def collect() -> Callable[[AsyncIterator[Record]], Awaitable[list[Record]]]:
    return gather


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a function of ``programs.py`` with this checkout; kills it after the test."""
    root = Path(__file__).parents[2]
    with ExitStack() as ending:

        def start(name: str, *args: object) -> subprocess.Popen[str]:
            child = started(
                [sys.executable, PROGRAMS, name, *args],
                env={**os.environ, "PYTHONPATH": str(root)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            return ending.enter_context(child)

        yield start


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    folder = Path("/tmp") / f"eventctx-read-only-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.chmod(stat.S_IRWXU)
    shutil.rmtree(folder)


_schemas = itertools.count(1)


@pytest.fixture
def postgres_place(postgres: Server) -> Iterator[str]:
    """The URL of a schema that is not there yet, dropped behind the test."""
    schema = f"store_{next(_schemas)}"
    yield postgres.url(schema=schema)
    postgres.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@pytest.fixture(params=["memory", "sqlite", "postgres", "jetstream"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventStore]:
    """Every implementation in turn; tests with this fixture check the contract of stores."""
    opened = await OPEN[request.param](request, tmp_path)
    yield opened
    await opened.close()


async def _memory(_request: pytest.FixtureRequest, _folder: Path) -> EventStore:
    return MemoryStore()


async def _sqlite(_request: pytest.FixtureRequest, folder: Path) -> EventStore:
    return await SqliteStore.open(folder / "contract.db")


async def _postgres(request: pytest.FixtureRequest, _folder: Path) -> EventStore:
    return await PostgresStore.open(request.getfixturevalue("postgres_place"))


async def _jetstream(request: pytest.FixtureRequest, _folder: Path) -> EventStore:
    cluster = request.getfixturevalue("jetstream")
    from eventctx.stores.jetstream.store import JetStreamStore

    return await JetStreamStore.open(cluster.url(f"T{next(_numbers)}"))


OPEN = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "jetstream": _jetstream,
}
_numbers = itertools.count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"
