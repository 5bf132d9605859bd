"""A tokenizer of the user's counts what is added, and tiktoken where its vocabulary is on disk."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.messages import vocabulary
from eventctx.messages.tokens import tiktoken_tokenizer
from eventctx.messages.vocabulary import NEWER, OLDER, Vocabulary, vocabulary_of
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.messages.token_texts import CODE, LANGUAGES
from tests.policies.given import one_session
from tests.sessions import filled, user


def words(text: str) -> int:
    return len(text.split())


async def test_a_tokenizer_counts_words_arguments_and_results_and_not_images() -> None:
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a b c"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
    async with one_session(tokenizer=lambda text: 1_000) as (_, ctx):
        await ctx.add_message({"role": "user", "content": [image]})
        plain = await ctx.get_token_count()
        await ctx.add_message({"role": "assistant", "content": [call]})
        assert 1_000 <= await ctx.get_token_count() - plain < 1_200
        assert plain > 1_500


async def test_a_tokenizer_counts_the_text_of_a_document_and_its_pages_count_beside() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "word " * 300}
    page = {"type": "document", "source": {"type": "file", "file_id": "f"}}
    async with one_session(tokenizer=words) as (_, ctx):
        await ctx.add_message({"role": "user", "content": [{"type": "document", "source": source}]})
        plain = await ctx.get_token_count()
        assert 300 <= plain < 320
        await ctx.add_message({"role": "user", "content": [page, {"type": "text", "text": "Read"}]})
        assert await ctx.get_token_count() - plain > 10 * 2_000


async def test_what_a_tokenizer_counted_is_counted_again_without_it() -> None:
    store = MemoryStore()
    ctx = await filled(Engine(store), 40, tokenizer=words, max_tokens=3_000)
    await ctx.get_messages_for_request()
    size = (await fold(store, "s", request_view)).layout.tokens
    engine = Engine(store)
    again = await engine.session("s")
    assert await ctx.get_token_count() == await again.get_token_count() == size
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("answer", [ValueError("a bug"), -1, 0, 2.5, None, "many"])
async def test_a_tokenizer_that_fails_leaves_the_estimate(answer: Any) -> None:
    def broken(text: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with one_session() as (_, plain), one_session(tokenizer=broken) as (_, odd):
        for ctx in (plain, odd):
            await ctx.add_message(user("word " * 500))
        assert await odd.get_token_count() == await plain.get_token_count()


def test_a_package_a_model_or_a_vocabulary_that_is_not_there_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(InvalidSetting, match=r"install eventctx\[tiktoken\]"):
        tiktoken_tokenizer("gpt-5")
    package: Any = ModuleType("tiktoken")

    def encoding_for_model(model: str) -> Any:
        raise KeyError(model) if model == "llama" else OSError("no network")

    package.encoding_for_model = encoding_for_model
    monkeypatch.setitem(sys.modules, "tiktoken", package)
    with pytest.raises(InvalidSetting, match="knows no model 'llama'"):
        tiktoken_tokenizer("llama")
    with pytest.raises(InvalidSetting, match="vocabulary for 'gpt-5' cannot be loaded"):
        tiktoken_tokenizer("gpt-5")


# -- OpenAI's vocabulary ---------------------------------------------------------------------------


MESSAGE = user("one two three " * 100)
OVERHEAD = 4


class Package(ModuleType):
    """What is used of tiktoken: encodings whose tokens are words. Notes those asked for."""

    def __init__(self) -> None:
        super().__init__("tiktoken")
        self.asked: list[str] = []

    def get_encoding(self, name: str) -> Any:
        self.asked.append(name)
        return SimpleNamespace(encode_ordinary=str.split)


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
async def test_texts_for_a_model_of_openai_count_exactly_also_without_the_package_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    counted = await size(store, "gpt-5.2", "gpt-5.2")
    assert counted == 300 + OVERHEAD
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    forget()
    engine = Engine(store)
    assert await (await engine.session("s")).get_token_count() >= counted
    assert (await engine.verify("s")).ok


@pytest.mark.usefixtures("kept")
async def test_a_tokenizer_of_the_users_goes_before_the_vocabulary() -> None:
    async with one_session(tokenizer=lambda text: 7) as (_, ctx):
        await ctx.add_message(MESSAGE)
        await ctx.get_messages_for_request(model="gpt-5.2")
        assert await ctx.get_token_count() == 7 + OVERHEAD


async def test_without_the_vocabulary_texts_are_estimated_and_that_is_said_once(
    package: Package, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "eventctx"):
        estimated = [await size(MemoryStore(), "gpt-5.2", "gpt-5.2") for _ in range(3)]
    assert package.asked == []
    assert estimated == [estimated[0]] * 3
    assert estimated[0] > 200
    (said,) = caplog.messages
    assert "tiktoken.get_encoding('o200k_base')" in said


def test_a_damaged_vocabulary_is_not_loaded_and_a_cache_that_is_off_keeps_nothing(
    package: Package, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / NEWER.file).write_bytes(b"half a file")
    assert vocabulary_of("gpt", "gpt-5") is None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    forget()
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


@pytest.mark.usefixtures("kept")
def test_a_very_long_text_counts_like_its_beginning() -> None:
    count = vocabulary_of("gpt", "gpt-5")
    assert count and (count(""), count("word " * 600_000)) == (0, 600_000)


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
