"""Where tiktoken has OpenAI's vocabulary on disk it counts, and nothing is downloaded."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.messages import vocabulary
from eventctx.messages.vocabulary import NEWER, OLDER, Vocabulary, vocabulary_of
from eventctx.stores.memory import MemoryStore
from tests.messages.token_texts import CODE, LANGUAGES

MESSAGE = {"role": "user", "content": "one two three " * 100}
OVERHEAD = 4


class Words:
    """An encoding whose tokens are words."""

    def encode_ordinary(self, text: str) -> list[str]:
        return text.split()


class Package(ModuleType):
    """What is used of tiktoken, with the encodings that were asked for."""

    def __init__(self) -> None:
        super().__init__("tiktoken")
        self.asked: list[str] = []

    def get_encoding(self, name: str) -> Any:
        self.asked.append(name)
        return Words()


def forget() -> None:
    """Forget what was loaded and said in this process."""
    vocabulary._tokenizer_of.cache_clear()
    vocabulary._say_missing.cache_clear()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Package]:
    made = Package()
    monkeypatch.setitem(sys.modules, "tiktoken", made)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    forget()
    yield made
    forget()


@pytest.fixture
def kept(package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Package:
    """The package, with its newer vocabulary on disk."""
    known = Vocabulary("words", hashlib.sha256(b"one 1").hexdigest())
    (tmp_path / known.file).write_bytes(b"one 1")
    monkeypatch.setattr(vocabulary, "NEWER", known)
    return package


async def size(store: MemoryStore, *models: str | None) -> int:
    """The tokens of ``MESSAGE``, added after requests to ``models`` and then sent to the last."""
    ctx = await Engine(store).session("s")
    await ctx.add_message({"role": "system", "content": "Hi"})
    for model in models[:-1]:
        await ctx.get_messages_for_request(model=model)
    before = await ctx.get_token_count()
    await ctx.add_message(MESSAGE)
    await ctx.get_messages_for_request(model=models[-1])
    return await ctx.get_token_count() - before


@pytest.mark.usefixtures("kept")
async def test_texts_for_a_model_of_openai_count_exactly() -> None:
    assert await size(MemoryStore(), "gpt-5.2", "gpt-5.2") == 300 + OVERHEAD


@pytest.mark.usefixtures("kept")
async def test_exact_counts_stay_on_a_machine_without_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    counted = await size(store, "gpt-5.2", "gpt-5.2")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    forget()
    engine = Engine(store)
    assert await (await engine.session("s")).get_token_count() >= counted
    assert (await engine.verify("s")).ok


@pytest.mark.usefixtures("kept")
async def test_a_tokenizer_of_the_users_goes_before_the_vocabulary() -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", tokenizer=lambda text: 7)
        await ctx.add_message(MESSAGE)
        await ctx.get_messages_for_request(model="gpt-5.2")
        assert await ctx.get_token_count() == 7 + OVERHEAD


async def test_without_the_vocabulary_texts_are_estimated_and_that_is_said_once(
    package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "eventctx"):
        estimated = [await size(MemoryStore(), "gpt-5.2", "gpt-5.2") for _ in range(3)]
    assert package.asked == []
    assert set(estimated) == {estimated[0]}
    assert estimated[0] > 200
    (said,) = [record.getMessage() for record in caplog.records]
    assert "tiktoken.get_encoding('o200k_base')" in said


def test_a_damaged_vocabulary_is_not_loaded(package: Package, tmp_path: Path) -> None:
    (tmp_path / NEWER.file).write_bytes(b"half a file")
    assert vocabulary_of("gpt", "gpt-5") is None
    assert package.asked == []


def test_a_cache_that_is_switched_off_keeps_nothing(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert vocabulary_of("gpt", "gpt-5") is None
    assert package.asked == []


@pytest.mark.parametrize(
    ("model", "older"),
    [("gpt-4", True), ("gpt-4-turbo", True), ("openai/gpt-3.5-turbo", True), ("gpt-4o", False)],
)
def test_older_models_have_their_own_vocabulary(
    package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, older: bool
) -> None:
    known = Vocabulary(OLDER.name, hashlib.sha256(b"").hexdigest())
    (tmp_path / known.file).write_bytes(b"")
    monkeypatch.setattr(vocabulary, "OLDER", known)
    assert (vocabulary_of("gpt-tiles", model) is not None) == older
    assert package.asked == ["cl100k_base"] * older


def test_a_very_long_text_counts_like_its_beginning(kept: Package) -> None:
    count = vocabulary_of("gpt", "gpt-5")
    assert count is not None
    assert count("") == 0
    assert count("word " * 600_000) == 600_000


def test_the_kept_counts_of_the_texts_are_those_of_the_real_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("tiktoken", reason="an extra: eventctx[tiktoken]")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", os.environ["TESTS_TIKTOKEN"])
    forget()
    count = vocabulary_of("gpt", "gpt-5")
    forget()
    if count is None:
        pytest.skip("its vocabulary is not on this machine")
    for exact, text in [*LANGUAGES.values(), *CODE.values()]:
        assert count(text) == exact
