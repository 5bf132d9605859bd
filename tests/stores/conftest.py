"""Fixtures of all tests of stores: the stores, and drafts with bodies."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest

from eventctx.log.store import EventStore
from eventctx.stores.location import open_store
from eventctx.stores.sqlite import SqliteStore
from tests.children import started
from tests.services.postgres_server import Server

PROGRAMS = Path(__file__).parent / "programs.py"
HERE = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
"""The environment of a program that runs this checkout."""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a function of ``programs.py`` with this checkout; kills it after the test."""
    with ExitStack() as ending:

        def start(name: str, *args: object) -> subprocess.Popen[str]:
            child = started(
                [sys.executable, PROGRAMS, name, *args],
                env=HERE,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            return ending.enter_context(child)

        yield start


_numbers = itertools.count(1)


@pytest.fixture
def postgres_place(postgres: Server) -> Iterator[str]:
    """The URL of a schema that is not there yet, dropped behind the test."""
    schema = f"store_{next(_numbers)}"
    yield postgres.url(schema=schema)
    postgres.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@pytest.fixture(params=["memory", "sqlite", "postgres", "jetstream"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, opened: Any) -> EventStore:
    """Every implementation in turn; tests with this fixture check the contract of stores."""
    place = {"memory": "memory://", "sqlite": str(tmp_path / "contract.db")}.get(request.param)
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_place")
    elif request.param == "jetstream":
        place = request.getfixturevalue("jetstream").url(f"T{next(_numbers)}")
    return await opened(open_store(place))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[Awaitable[Any]], Awaitable[Any]]]:
    """Awaits what opens a store, and closes that behind the test."""
    async with AsyncExitStack() as ending:

        async def until_the_end(opening: Awaitable[Any]) -> Any:
            store = await opening
            ending.push_async_callback(store.close)
            return store

        yield until_the_end


@pytest.fixture
async def sqlite(path: Path, opened: Any) -> SqliteStore:
    return await opened(SqliteStore.open(path))
