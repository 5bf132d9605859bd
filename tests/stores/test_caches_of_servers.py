"""What a server's store has on this machine: caches by the store's id, and losing them is free."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

import eventctx
from eventctx.adapters.amplifier.config import own_names, read
from eventctx.cli.output.opening import as_option, path_of
from eventctx.errors import InvalidSetting
from eventctx.queries.key_frames import KEY_FRAME
from eventctx.stores.location import cache_base, default_book, durabilities, is_on_a_server

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache" / "eventctx" / "stores"


@pytest.fixture(params=["postgresql", "jetstream"])
def places(request: pytest.FixtureRequest) -> list[str]:
    """The URLs of two stores on one server."""
    if request.param == "jetstream":
        return [request.getfixturevalue("jetstream").url(name) for name in ("B0", "B1")]
    place = request.getfixturevalue("postgres_place")
    return [place, place.replace("store_", "other_")]


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


def test_receipts_go_by_the_id_of_a_servers_store_or_the_path_of_a_file(
    tmp_path, monkeypatch
) -> None:
    book = default_book(cache_base("postgresql", "a1"))
    assert book.is_relative_to(tmp_path / "state") and book.name == "postgresql-a1.jsonl"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert default_book(cache_base("postgresql", "a1")) == book
    assert default_book(cache_base("jetstream", "a1")) != book
    one, other = tmp_path / "a.db", tmp_path / "b.db"
    assert default_book(one) != default_book(other)
    (tmp_path / "link.db").symlink_to(one)
    assert default_book(tmp_path / "link.db") == default_book(one)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://h/db", ("local", "replicated")),
        ("postgres://h/db", ("local", "replicated")),
        ("nats://h", ()),
        ("tls://h", ()),
        ("sqlite:///s.db", ("full", "normal")),
        ("s.db", ("full", "normal")),
        ("memory://", ("full", "normal")),
    ],
)
def test_each_store_has_its_own_words_for_durability(url, words) -> None:
    assert durabilities(url) == words
    assert is_on_a_server(url) == (words != ("full", "normal"))


def test_a_mount_plan_names_a_store_as_it_is_and_asks_for_its_own_durability_only() -> None:
    plan = {"store": "postgresql://me@host/db?schema=agents", "durability": "replicated"}
    made = read(plan, own_names)
    assert (made.store, made.durability) == (plan["store"], plan["durability"])
    assert read({"store": "nats://a:4222,b:4222"}, own_names).durability is None
    for url, word, expected in (
        ("postgresql://h/db", "full", "'local' or 'replicated'"),
        ("nats://h", "replicated", "none: this store has one durability"),
        ("s.db", "local", "'full' or 'normal'"),
    ):
        with pytest.raises(InvalidSetting, match=expected):
            read({"store": url, "durability": word}, own_names)


def test_a_suggested_command_names_a_server_without_its_password() -> None:
    assert as_option("postgresql://me:hunter2@host/db") == (
        " --store 'postgresql://me:[redacted:password]@host/db'"
    )
    assert path_of("postgresql://me@host/db") is None
