"""A tokenizer of the user's counts what is added; its counts are kept, so that replays agree."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.messages.tokens import tiktoken_tokenizer
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER, tool_round


def words(text: str) -> int:
    return len(text.split())


async def test_a_tokenizer_counts_words_arguments_and_results_and_not_images() -> None:
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a b c"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
    async with eventctx.open() as engine:
        ctx = await engine.session("s", tokenizer=lambda text: 1_000)
        await ctx.add_message({"role": "user", "content": [image]})
        plain = await ctx.get_token_count()
        await ctx.add_message({"role": "assistant", "content": [call]})
        assert 1_000 <= await ctx.get_token_count() - plain < 1_200
        assert plain > 1_500


async def test_a_tokenizer_counts_the_text_of_a_document_and_its_pages_count_beside() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "word " * 300}
    page = {"type": "document", "source": {"type": "file", "file_id": "f"}}
    async with eventctx.open() as engine:
        ctx = await engine.session("s", tokenizer=words)
        await ctx.add_message({"role": "user", "content": [{"type": "document", "source": source}]})
        plain = await ctx.get_token_count()
        assert 300 <= plain < 320
        await ctx.add_message({"role": "user", "content": [page, {"type": "text", "text": "Read"}]})
        assert await ctx.get_token_count() - plain > 10 * 2_000


async def test_what_a_tokenizer_counted_is_counted_again_without_it() -> None:
    store = MemoryStore()
    ctx = await Engine(store).session("s", tokenizer=words, max_tokens=3_000)
    await ctx.add_message(USER)
    for number in range(40):
        for message in tool_round(number, 2_000):
            await ctx.add_message(message)
        await ctx.get_messages_for_request()
    state = await fold(store, "s", request_view)
    assert await ctx.get_token_count() == state.layout.tokens
    engine = Engine(store)
    assert await (await engine.session("s")).get_token_count() == state.layout.tokens
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("answer", [ValueError("a bug"), -1, 0, 2.5, None, "many"])
async def test_a_tokenizer_that_fails_leaves_the_estimate(answer: Any) -> None:
    def broken(text: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with eventctx.open() as engine:
        plain = await engine.session("plain")
        odd = await engine.session("odd", tokenizer=broken)
        for ctx in (plain, odd):
            await ctx.add_message({"role": "user", "content": "word " * 500})
        assert await odd.get_token_count() == await plain.get_token_count()


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(InvalidSetting, match=r"install eventctx\[tiktoken\]"):
        tiktoken_tokenizer("gpt-5")


def test_a_model_or_a_vocabulary_that_is_not_there_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("tiktoken")

    def encoding_for_model(model: str) -> Any:
        raise KeyError(model) if model == "llama" else OSError("no network")

    package.encoding_for_model = encoding_for_model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", package)
    with pytest.raises(InvalidSetting, match="knows no model 'llama'"):
        tiktoken_tokenizer("llama")
    with pytest.raises(InvalidSetting, match="vocabulary for 'gpt-5' cannot be loaded"):
        tiktoken_tokenizer("gpt-5")
