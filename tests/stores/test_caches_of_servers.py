"""What a server's store has on this machine: caches by the store's id, and losing them is free."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import eventctx
from eventctx.queries.key_frames import KEY_FRAME

pytestmark = pytest.mark.slow

_numbers = itertools.count()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache" / "eventctx" / "stores"


@pytest.fixture(params=["postgresql", "jetstream"])
def places(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The URLs of two stores on one server."""
    names = [f"B{os.getpid()}_{next(_numbers)}" for _ in range(2)]
    if request.param == "jetstream":
        yield [str(request.getfixturevalue("jetstream").url(name)) for name in names]
        return
    server = request.getfixturevalue("postgres")
    yield [str(server.url(schema=name.lower())) for name in names]
    for name in names:
        server.execute(f'DROP SCHEMA IF EXISTS "{name.lower()}" CASCADE')


async def _use(url: str, word: str) -> set[str]:
    """Do all that leaves something on this machine; returns what was found and counted."""

    def failing(_record: eventctx.Record) -> None:
        raise ValueError("as ever")

    async with eventctx.open(url) as engine:
        fresh = await engine.store.head("s") is None
        session = await engine.session("s")
        if fresh:
            async with session.turn():
                for number in range(0, KEY_FRAME, 50):
                    await asyncio.gather(
                        *(session.add_message({"role": "user", "content": f"{word} {number} {n}"})
                          for n in range(50))
                    )  # fmt: skip
        engine.on("prompt:submit", failing)
        async with session.turn():
            await session.add_message({"role": "user", "content": word})
        await engine.timeline("s")
        found = await engine.recall(word)
        assert (await engine.verify("s")).ok
        assert engine.receipts_path is not None and engine.receipts_path.is_relative_to(
            os.environ["XDG_STATE_HOME"]
        )
        return {one.session for one in found} | {
            str(one.count) for one in await engine.hook_failures()
        }


async def test_caches_lie_in_a_private_folder_by_store_and_may_be_lost(cache, places) -> None:
    one, other = places
    assert await _use(one, "apple") == {"s", "1"}
    mine = sorted(path.name for path in cache.iterdir())
    assert len({name.split("-losses")[0].split(".eventctx")[0] for name in mine}) == 1
    assert any(name.endswith("-losses.jsonl") for name in mine)
    assert any(name.endswith(".eventctx-timelines") for name in mine)
    assert any(name.endswith(".eventctx-recall") for name in mine) == one.startswith("nats")
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700

    assert await _use(other, "pear") == {"s", "1"}
    assert len(list(cache.iterdir())) == 2 * len(mine), "another store has caches of its own"
    assert await _use(one, "apple") == {"s", "2"}

    shutil.rmtree(cache)
    assert await _use(one, "apple") == {"s", "1"}, "all is there, and the counts begin anew"
    assert sorted(path.name for path in cache.iterdir()) == mine


# JetStream notices by itself that messages are gone.
@pytest.mark.parametrize("places", ["postgresql"], indirect=True)
async def test_a_cut_tail_of_a_server_is_noticed_by_this_machines_receipts(cache, places) -> None:
    url = places[0]
    async with eventctx.open(url) as engine:
        session = await engine.session("s")
        async with session.turn():
            await session.add_message({"role": "user", "content": "Hello."})
    import psycopg

    schema = url.rpartition("schema=")[2]
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute(f'DELETE FROM "{schema}".records WHERE position > 2'.encode())  # noqa: S608 - our own name
    async with eventctx.open(url) as engine:
        assert {one.kind for one in (await engine.verify("s")).problems} == {"receipt"}
