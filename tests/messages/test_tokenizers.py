"""A tokenizer of the user's, tiktoken's where its vocabulary is on disk, and estimates.

Estimates are held against the prompts that providers reported and OpenAI's counts. Their bounds
are those of these files, with a margin; docs/explanation/tokens.md has the figures for some 400
sessions, in two parts, of which the rates were fitted to one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.messages import vocabulary
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts, weigh
from eventctx.messages.text_weight import MOST, MOST_NARROW, USUAL
from eventctx.messages.tokens import FAMILIES, family_of, tiktoken_tokenizer
from eventctx.messages.vocabulary import NEWER, OLDER, Vocabulary, vocabulary_of
from eventctx.projections.view import request_view
from eventctx.queries.requests import fold
from eventctx.stores.memory import MemoryStore
from tests.browser.stores import recorded_folder
from tests.estimates.errors import behind_compactions, growth, next_requests
from tests.estimates.recorded import Session, files_in, name_of, sessions_of
from tests.how_much import some
from tests.messages.token_texts import CODE, LANGUAGES
from tests.policies.given import one_session
from tests.sessions import filled, user


def words(text: str) -> int:
    return len(text.split())


async def test_a_tokenizer_counts_words_arguments_and_documents_and_not_images_and_pages() -> None:
    call = {"type": "tool_use", "id": "c", "name": "read", "input": {"path": "a b c"}}
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
    async with one_session(tokenizer=lambda text: 1_000) as (_, ctx):
        await ctx.add_message({"role": "user", "content": [image]})
        plain = await ctx.get_token_count()
        await ctx.add_message({"role": "assistant", "content": [call]})
        assert 1_000 <= await ctx.get_token_count() - plain < 1_200
        assert plain > 1_500
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


def test_a_missing_package_model_or_vocabulary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_kept_counts_of_texts_are_the_real_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tiktoken", reason="an extra: eventctx[tiktoken]")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", os.environ["TESTS_TIKTOKEN"])
    forget()
    count = vocabulary_of("gpt", "gpt-5")
    forget()
    if count is None:
        pytest.skip("its vocabulary is not on this machine")
    for exact, text in [*LANGUAGES.values(), *CODE.values()]:
        assert count(text) == exact


# -- estimates -------------------------------------------------------------------------------------


FOLDER = recorded_folder()


def recorded_only(test: Callable[..., None]) -> Callable[..., None]:
    """Needs the recorded sessions, which one process reads."""
    needed = pytest.mark.skipif(FOLDER is None, reason="the recorded sessions are not here")
    return pytest.mark.xdist_group("estimates")(needed(test))


@cache
def recorded(name: str) -> Session:
    async def read() -> list[Session]:
        assert FOLDER is not None
        files = [path for path in files_in(FOLDER) if name_of(path).startswith(name)]
        return [one for path in files async for one in sessions_of(path)]

    return [one for one in asyncio.run(read()) if len(one.steps) > 5][-1]


# Percent: (least, most) of the median error of a session's growth, before anything is reported.
GROWTH = {
    "258c7280-ae7": (-3, 5),  # Claude Code, Opus 4.6, held out
    "entire-26dcd": (0, 8),  # Claude Code, Opus 4.5
    "large-sessio": (0, 20),  # pi, Sonnet 4.5, held out
    # Codex, GPT 5.5: what its provider's searches found, an eighth of it, is in no message.
    "rollout-2026": (-13, 2),
    "deepseek-cha": (-3, 8),
    "gemini-3-pro": (-3, 8),
}


@pytest.mark.slow
@recorded_only
@pytest.mark.parametrize("name", GROWTH)
def test_what_messages_grow_by_is_known_before_anything_is_reported(name: str) -> None:
    session = recorded(name)
    least, most = GROWTH[name]
    error = 100 * median(growth(session, FAMILIES[session.family]))
    assert least <= error <= most


@recorded_only
def test_each_step_of_a_gpt_session_is_known_and_a_request_behind_a_compaction_near() -> None:
    """But for what its provider searched."""
    rates = FAMILIES["gpt"]
    grown = [
        (after.prompt - before.prompt, after.sums.tokens(rates) - before.sums.tokens(rates))
        for before, after in pairwise(recorded("rollout-2026").steps)
    ]
    known = [(real, counted) for real, counted in grown if real - counted < 2_000]
    assert len(grown) - len(known) == 3
    assert sum(c for _, c in known) == pytest.approx(sum(g for g, _ in known), rel=0.02)
    (error,) = behind_compactions(recorded("258c7280-ae7"))
    assert -0.05 < error < 0.25  # 3,387 tokens of 42,603 are in the file


@pytest.mark.slow
@recorded_only
@pytest.mark.parametrize("name", [*GROWTH, "c37652eb"])
def test_the_next_request_is_known_once_a_prompt_was_reported(name: str) -> None:
    errors = [100 * error for error in next_requests(recorded(name))]
    assert abs(median(errors)) < 0.5
    assert sum(abs(error) < 6 for error in errors) > 0.9 * len(errors)


# -- weights of texts ------------------------------------------------------------------------------


GPT = FAMILIES[family_of("gpt-5.2")]

TEXTS = st.text(st.sampled_from('ab zQ7\n  \t.;(){}"-é日漢こ한д🙂अ') | st.characters(codec="utf-8"))


def weight_of(text: str) -> int:
    return weigh(text.encode(), text.count("  "))[0]


@pytest.mark.parametrize("name", [*LANGUAGES, *CODE])
def test_a_text_counts_within_15_percent_in_every_language(name: str) -> None:
    exact, text = {**LANGUAGES, **CODE}[name]
    counted = GPT.tokens(read_facts({"role": "user", "content": text})) - GPT.per_message
    assert counted == pytest.approx(exact, rel=0.15)


def test_the_same_words_count_the_same_in_a_result_and_in_arguments() -> None:
    _, text = LANGUAGES["Polish"]
    result = {"role": "tool", "tool_call_id": "c", "content": text}
    call = {"type": "tool_use", "id": "c", "name": "note", "input": {"text": text}}
    said = GPT.tokens(read_facts({"role": "user", "content": text}))
    assert GPT.tokens(read_facts(result)) == said
    asked = GPT.tokens(read_facts({"role": "assistant", "content": [call]}))
    assert 10 < asked - said < 40


@given(TEXTS, TEXTS)
def test_no_part_of_a_text_weighs_more_than_its_length_and_density_say(
    text: str, more: str
) -> None:
    whole = text + more
    _, dense = weigh(whole.encode(), whole.count("  "))
    assert weight_of(text) <= len(text) * USUAL + dense
    assert weight_of(text) <= len(text) * (MOST_NARROW if text.isascii() else MOST)


@settings(max_examples=some(25, 100))
@given(st.lists(TEXTS.filter(lambda text: "  " not in text), max_size=5))
def test_lines_weigh_together_what_each_weighs(lines: list[str]) -> None:
    text = "".join([line + "\n" for line in lines])
    if "  " not in text:
        assert weight_of(text) == sum(map(weight_of, lines)) + len(lines) * weight_of("\n")


def test_a_long_text_weighs_in_proportion_and_what_an_older_reader_stored_as_it_did() -> None:
    for unit in ("word ", "漢字", "🙂", "7"):
        assert weight_of(unit * 40_000) == 40_000 * weight_of(unit)
    facts = read_facts({"role": "user", "content": LANGUAGES["Russian"][1]})
    old = msgspec.structs.replace(facts, reader=8, weight=0, dense=0)
    characters, wide = facts.prose, facts.wide
    assert GPT.tokens(old) == -(-characters * 10 // 36) - (-wide * 25 // 100) + GPT.per_message


# -- sealed thinking -----------------------------------------------------------------------------


def thought(text: str, signature: str) -> Facts:
    block = {"type": "thinking", "thinking": text, "signature": signature}
    return read_facts({"role": "assistant", "content": [block, {"type": "text", "text": "ok"}]})


def test_signed_thinking_counts_by_its_text_or_else_by_its_signature_if_that_is_long() -> None:
    for signature in ("", "s" * 20, "s" * 4_000):
        assert thought("x" * 3_000, signature).thinking == 3_000
    assert thought("", "s" * 200).thinking == 0
    rates = FAMILIES["claude-4.7"]
    sealed = rates.tokens(thought("", "s" * 2_800))
    # 2,800 characters of base64 are 2,100 bytes, of which some 200 are no text.
    assert sealed - rates.tokens(thought("", "")) == pytest.approx(1_900 / 2.7, abs=2)
    assert rates.tokens(thought("", "s" * 5_600)) > 2 * sealed


def test_encrypted_reasoning_counts_what_a_provider_reported() -> None:
    for characters, reported in ((1_036, 17), (1_336, 62), (1_720, 127)):
        item = {"type": "reasoning", "summary": [], "encrypted_content": "g" * characters}
        counted = GPT.tokens(read_facts(item)) - GPT.per_message
        assert counted == pytest.approx(reported, abs=15)
