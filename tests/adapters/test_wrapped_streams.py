"""A wrapped client's caller sees each answer exactly as without the wrapper, over real HTTP."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("anthropic", reason="an extra: eventctx[anthropic]")
pytest.importorskip("openai", reason="an extra: eventctx[openai]")

import eventctx
import eventctx.sync
from tests.adapters.wrapped_apis import (
    APIS,
    BLOCKING,
    PARTLY,
    SAID,
    WAYS,
    Sends,
    scripted,
    seen_by,
    seen_by_blocking,
)
from tests.how_much import some, tried
from tests.orchestrators.providers.server import Reply, json_reply, streamed

COMPACT = {"compact": True, "max_tokens": 90_000}
TIMEOUT = 0.5
"""Seconds that a client waits for a server that is silent."""


def with_headers(reply: Reply, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return replace(reply, headers={**reply.headers, **named})


def of_length(reply: Reply, more: int = 0) -> Reply:
    return with_headers(reply, content_length=str(sum(map(len, reply.pieces)) + more))


def packed(reply: Reply, encoding: str, pack: Callable[[bytes], bytes]) -> Reply:
    content = pack(b"".join(reply.pieces))
    half = len(content) // 2
    pieces = [content[:half], content[half:]]
    return with_headers(replace(reply, pieces=pieces), content_encoding=encoding)


def part_of(reply: Reply, ending: str, *behind: bytes) -> Reply:
    count = (len(reply.pieces) + 1) // 3
    pieces = reply.pieces[:count] if count else [reply.pieces[0][:40]]
    return replace(reply, pieces=[*pieces, *behind], ending=ending)


def with_error(reply: Reply) -> Reply:
    error = {"type": "overloaded_error", "message": "Overloaded", "code": "overloaded"}
    return part_of(reply, "whole", *streamed([{"type": "error", "error": error}]).pieces)


def with_pings(reply: Reply) -> Reply:
    pieces = [b": ping\n\n" + one for one in reply.pieces]
    return replace(reply, pieces=pieces) if "event" in reply.headers["content-type"] else reply


def refused(status: int, **headers: str) -> Reply:
    error = {"type": "some_error", "message": f"No: {status}", "code": "some_code"}
    return json_reply({"type": "error", "error": error}, status, **headers)


def zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


ANSWERED: dict[str, Sends] = {
    "chunked": lambda reply, _: reply,
    "of a length": lambda reply, _: of_length(reply),
    "until it closes": lambda reply, _: with_headers(reply, connection="close"),
    "gzip": lambda reply, _: packed(reply, "gzip", zipped),
    "deflate": lambda reply, _: packed(reply, "deflate", zlib.compress),
    "brotli": lambda reply, _: packed(reply, "br", pytest.importorskip("brotli").compress),
    "byte by byte": lambda reply, _: replace(
        reply, pieces=[bytes([one]) for one in b"".join(reply.pieces)]
    ),
    "pings": lambda reply, _: with_pings(reply),
    "busy at first": lambda reply, attempt: reply if attempt else refused(429, retry_after_ms="1"),
    "broken at first": lambda reply, attempt: (
        reply if attempt else refused(500, retry_after_ms="1")
    ),
}
NOT_ANSWERED: dict[str, Sends] = {
    "cut": lambda reply, _: part_of(reply, "cut"),
    "cut, of a length": lambda reply, _: of_length(part_of(reply, "cut"), 99),
    "cut, packed": lambda reply, _: part_of(packed(reply, "gzip", zipped), "cut"),
    "packed wrongly": lambda reply, _: packed(reply, "gzip", lambda content: content),
    "an error in the stream": lambda reply, _: with_error(reply),
    "refused": lambda reply, _: refused(400),
    "always busy": lambda reply, _: refused(429, retry_after_ms="1"),
    "not found": lambda reply, _: Reply(
        ["<h1>Nicht gefunden: ä</h1>".encode("latin-1")],
        404,
        {"content-type": "text/html; charset=latin-1"},
    ),
}
EVERY_WAY = "chunked"


@pytest.fixture(scope="module", autouse=True)
def _retries_come_soon() -> Iterator[None]:
    """What a client repeats, it repeats after milliseconds where the server names no time."""
    with pytest.MonkeyPatch.context() as patch:
        for sdk in ("anthropic", "openai"):
            patch.setattr(f"{sdk}._base_client.INITIAL_RETRY_DELAY", 0.001)
        yield


def hold(records: list[Any], requests: list[Any], answered: bool) -> None:
    """Each attempt is in the log, and ends once: the first call as it did, the next answered."""
    calls = [one.type for one in records if one.type.startswith("provider:")]
    assert calls.count("provider:request") == len(requests)
    assert calls.count("provider:response") == 1 + answered
    assert len(calls) == 2 * len(requests)


SHOWN = [
    *((way, EVERY_WAY, True) for way in WAYS if way not in ("given up", "out of time")),
    *((way, sends, True) for sends in ANSWERED for way in ("whole", "iterated", "packed")),
    *((way, sends, False) for sends in NOT_ANSWERED for way in ("whole", "iterated")),
    ("drained", "byte by byte", True),
]


def some_of(
    shown: Iterable[tuple[str, str, bool]], choices: int
) -> list[tuple[str, str, str, bool]]:
    """Each of these with some of the APIs; with all in a full run."""
    return [
        (api, *one)
        for place, one in enumerate(dict.fromkeys(shown))
        for other, api in enumerate(APIS)
        if tried(place, other, 0, choices=choices)
    ]


@pytest.mark.parametrize(("api", "way", "sends", "answered"), some_of(SHOWN, 3))
async def test_an_answer_is_seen_as_it_is(api: str, way: str, sends: str, answered: bool) -> None:
    called = APIS[api]
    sent = {**ANSWERED, **NOT_ANSWERED}[sends]
    with scripted(called, sent) as (script, server):
        plain = await seen_by(called.client(server.url), called, way, script, server)
        async with eventctx.open("memory://") as engine:
            for name, more in {"observing": {}, "compacting": COMPACT}.items():
                client = eventctx.wrap(called.client(server.url), engine, name, **more)
                assert await seen_by(client, called, way, script, server) == plain
                await engine.close_session(name)  # deferred activity is written
                records = [one async for one in engine.records(name)]
                hold(records, plain[1], answered and way not in PARTLY)
            assert engine.hooks.stats().errors == engine.hooks.stats().dropped == {}


@pytest.mark.parametrize(
    ("api", "way", "sends", "answered"), some_of([one for one in SHOWN if one[0] in BLOCKING], 3)
)
def test_a_blocking_answer_is_seen_as_it_is(api: str, way: str, sends: str, answered: bool) -> None:
    called = APIS[api]
    sent = {**ANSWERED, **NOT_ANSWERED}[sends]
    with scripted(called, sent) as (script, server), eventctx.sync.open("memory://") as engine:
        plain = seen_by_blocking(called.client(server.url, True), called, way, script, server)
        client = eventctx.wrap(called.client(server.url, True), engine, "s", **COMPACT)
        assert seen_by_blocking(client, called, way, script, server) == plain
        engine.close_session("s")
        hold(list(engine.records("s")), plain[1], answered and way not in PARTLY)
        assert engine.hooks.stats().errors == engine.hooks.stats().dropped == {}


@pytest.mark.parametrize("api", APIS)
@given(cuts=st.lists(st.integers(1, 400), max_size=12), packs=st.booleans())
@settings(max_examples=some(6, 15), deadline=None)
def test_bytes_cut_anywhere_are_seen_as_they_are(api: str, cuts: list[int], packs: bool) -> None:
    """Also in the middle of a character, of a line's end, and of a packed block."""

    def cut(reply: Reply, attempt: int) -> Reply:
        if packs:
            reply = packed(reply, "gzip", zipped)
        content = b"".join(reply.pieces)
        places = sorted({0, *(one for one in cuts if one < len(content)), len(content)})
        pieces = [content[at:end] for at, end in pairwise(places)]
        return replace(reply, pieces=pieces)

    called = APIS[api]
    with scripted(called, cut) as (script, server), eventctx.sync.open("memory://") as engine:
        inner, other = [called.client(server.url, True) for _ in range(2)]
        plain = seen_by_blocking(inner, called, "iterated", script, server)
        client = eventctx.wrap(other, engine, "s")
        assert seen_by_blocking(client, called, "iterated", script, server) == plain
        engine.close_session("s")
        hold(list(engine.records("s")), plain[1], True)
        assert SAID.text in str(engine.session("s").get_messages())


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "way", ["iterated", "left", "left and closed", "unread", "given up", "out of time"]
)
async def test_a_silent_server_is_seen_as_without_the_wrapper(api: str, way: str) -> None:
    called = APIS[api]
    timeout = TIMEOUT if way == "iterated" else 60
    with scripted(called, lambda reply, _: part_of(reply, "stalled")) as (script, server):
        async with eventctx.open("memory://") as engine:
            plain, client = (called.client(server.url, timeout=timeout) for _ in range(2))
            before = await seen_by(plain, called, way, script, server)
            wrapped = eventctx.wrap(client, engine, "s")
            assert await seen_by(wrapped, called, way, script, server) == before
            await engine.close_session("s")
            hold([one async for one in engine.records("s")], before[1], False)
            assert engine.hooks.stats().dropped == {}
