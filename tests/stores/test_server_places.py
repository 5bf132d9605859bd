"""What belongs to a store on a server and lies on this machine, and what its URL says to people."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eventctx.adapters.amplifier.config import own_names, read
from eventctx.cli.output.opening import as_option, path_of
from eventctx.errors import InvalidSetting
from eventctx.stores.location import cache_base, default_book, durabilities, is_on_a_server


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_caches_of_a_server_lie_in_a_private_folder_by_the_id_of_the_store(tmp_path) -> None:
    one, other = cache_base("postgresql", "a1"), cache_base("postgresql", "b2")
    assert one != other != cache_base("jetstream", "b2")
    assert one.parent == other.parent and one.is_relative_to(tmp_path / "cache")
    assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700


def test_receipts_of_a_server_go_by_the_id_of_the_store_and_no_cache(tmp_path, monkeypatch) -> None:
    book = default_book(cache_base("postgresql", "a1"))
    assert book.is_relative_to(tmp_path / "state") and book.name == "postgresql-a1.jsonl"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert default_book(cache_base("postgresql", "a1")) == book
    assert default_book(cache_base("jetstream", "a1")) != book


def test_receipts_of_a_file_go_by_its_path(tmp_path) -> None:
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


def test_a_mount_plan_names_a_store_on_a_server_as_it_is() -> None:
    plan = {"store": "postgresql://me@host/db?schema=agents", "durability": "replicated"}
    made = read(plan, own_names)
    assert (made.store, made.durability) == (plan["store"], plan["durability"])
    assert read({"store": "nats://a:4222,b:4222"}, own_names).durability is None


def test_a_mount_plan_asks_a_store_for_its_own_durability_only() -> None:
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
