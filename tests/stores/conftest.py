"""What all tests of stores share: the stores, and drafts with bodies."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from eventctx.record import GENESIS, Draft, Record, body_digest, chain_digest, make_body
from eventctx.store import EventStore
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore

_counter = itertools.count(1)
PROGRAMS = Path(__file__).parent / "programs"


def make_draft(*texts: str | bytes, seed: str | None = None, **fields: Any) -> Draft:
    """A draft with one body per text; the same ``seed`` gives the same event id."""
    number = next(_counter)
    event_id = hashlib.md5((seed or f"draft {number}").encode(), usedforsecurity=False).digest()
    bodies = tuple(
        make_body(text.encode() if isinstance(text, str) else text, b"facts", os.urandom)
        for text in texts
    )
    defaults: dict[str, Any] = {
        "id": event_id,
        "type": "context:message_added",
        "version": 1,
        "time": 1_700_000_000_000_000_000 + number,
        "payload": b'{"event":"context:message_added"}',
        "bodies": bodies,
    }
    return Draft(**{**defaults, **fields})


def check_chain(records: Iterable[Record]) -> None:
    """Assert that positions have no gaps from 0 and every digest follows from the one before."""
    digest = GENESIS
    for position, record in enumerate(records):
        assert record.position == position
        assert chain_digest(digest, position, record) == record.digest
        for body in record.bodies:
            if body.data is not None and body.salt is not None:
                assert body_digest(body.salt, body.data) == body.digest
        digest = record.digest


async def gather(records: AsyncIterator[Record]) -> list[Record]:
    return [record async for record in records]


def run_program(name: str, *args: object, **options: Any) -> subprocess.Popen[str]:
    """Start ``programs/name`` with this interpreter and this checkout."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


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
def program() -> Callable[..., subprocess.Popen[str]]:
    return run_program


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventStore]:
    """Every implementation in turn: what is tested with it is the contract."""
    opened: EventStore = (
        MemoryStore()
        if request.param == "memory"
        else await SqliteStore.open(tmp_path / "contract.db")
    )
    yield opened
    await opened.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"
