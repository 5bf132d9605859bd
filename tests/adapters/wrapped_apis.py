"""The APIs of wrapped clients on a server that answers by a script, and ways to read an answer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any, NamedTuple

import anthropic
import openai

from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed
from tests.scripted_http import ScriptedHTTP, done, serving

Given = dict[str, Any]
Seen = list[Any]
Way = Callable[[Any, Given, Seen], Awaitable[None]]
BlockingWay = Callable[[Any, Given, Seen], None]

LEFT_AFTER = 1
"""Events that are read of a stream that is left then."""

PARTLY = frozenset(("left", "left and closed", "unread", "closed", "given up", "out of time"))
"""Ways that do not read a stream to its end."""


def failure(error: BaseException) -> Any:
    """What a caller can tell errors apart by."""
    cause = type(error.__cause__ or error.__context__).__name__
    return type(error).__name__, str(error), getattr(error, "body", None), cause


def of_response(answer: Any) -> Any:
    """What a caller sees of an answer whose body was read."""
    response = answer.http_response
    names = ("content-type", "content-encoding", "content-length", "transfer-encoding")
    headers = {name: response.headers.get(name) for name in names}
    return response.status_code, response.http_version, response.text, headers


# -- with async -----------------------------------------------------------------------------------


async def whole(methods: Any, given: Given, seen: Seen) -> None:
    seen.append((await methods.create(**given)).to_dict())


async def iterated(methods: Any, given: Given, seen: Seen) -> None:
    async for event in await methods.create(**given, stream=True):
        seen.append(event.to_dict())


async def some_of(stream: Any, seen: Seen) -> None:
    async for event in stream:
        seen.append(event.to_dict())
        if len(seen) == LEFT_AFTER:
            break


async def left(methods: Any, given: Given, seen: Seen) -> None:
    await some_of(await methods.create(**given, stream=True), seen)
    gc.collect()
    for _ in range(20):  # the loop closes what was collected
        await asyncio.sleep(0)


async def left_and_closed(methods: Any, given: Given, seen: Seen) -> None:
    async with await methods.create(**given, stream=True) as stream:
        await some_of(stream, seen)


async def managed(methods: Any, given: Given, seen: Seen) -> None:
    async with methods.stream(**given) as stream:
        seen.extend([event.type async for event in stream])


async def with_raw_response(methods: Any, given: Given, seen: Seen) -> None:
    answer = await methods.with_raw_response.create(**given)
    parsed = answer.parse()  # of Anthropic's SDK since 1.0, to be awaited
    seen.append((await parsed if isawaitable(parsed) else parsed).to_dict())
    seen.append(of_response(answer))


async def parsed_late(methods: Any, given: Given, seen: Seen) -> None:
    async with methods.with_streaming_response.create(**given) as answer:
        seen.append((await answer.parse()).to_dict())
        seen.append(of_response(answer))


def streaming(read: Callable[[Any, Seen], Awaitable[None]]) -> Way:
    async def way(methods: Any, given: Given, seen: Seen) -> None:
        async with methods.with_streaming_response.create(**given, stream=True) as answer:
            await read(answer, seen)

    return way


async def kept(pieces: Any, seen: Seen) -> None:
    async for piece in pieces:
        seen.append(piece)


async def consumed(answer: Any, seen: Seen) -> None:
    await kept(answer.http_response.aiter_raw(), seen)
    await answer.http_response.aread()  # raises StreamConsumed


async def drained(answer: Any, seen: Seen) -> None:
    """As an SDK does, which iterates the stream again while the first iteration waits."""
    pieces = answer.http_response.aiter_raw()
    seen.append(await anext(pieces))
    await kept(answer.http_response.stream, seen)
    await answer.close()
    await pieces.aclose()


async def unread(answer: Any, seen: Seen) -> None:
    seen.append(answer.status_code)


async def closed(answer: Any, seen: Seen) -> None:
    await answer.close()
    await answer.read()  # raises StreamClosed


async def given_up(methods: Any, given: Given, seen: Seen) -> None:
    async def read() -> None:
        async for event in await methods.create(**given, stream=True):
            seen.append(event.to_dict())
            if len(seen) == LEFT_AFTER:
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    await asyncio.gather(asyncio.create_task(read()), return_exceptions=True)


async def out_of_time(methods: Any, given: Given, seen: Seen) -> None:
    """In a scope that cancels each wait in it, also those of a clean-up."""
    import anyio  # both SDKs need it

    with anyio.CancelScope() as scope:
        async for event in await methods.create(**given, stream=True):
            seen.append(event.to_dict())
            if len(seen) == LEFT_AFTER:
                scope.cancel()


WAYS: dict[str, Way] = {
    "whole": whole,
    "iterated": iterated,
    "left": left,
    "left and closed": left_and_closed,
    "managed": managed,
    "raw": with_raw_response,
    "parsed late": parsed_late,
    "bytes": streaming(lambda answer, seen: kept(answer.iter_bytes(), seen)),
    "packed": streaming(lambda answer, seen: kept(answer.http_response.aiter_raw(), seen)),
    "consumed": streaming(consumed),
    "drained": streaming(drained),
    "unread": streaming(unread),
    "closed": streaming(closed),
    "given up": given_up,
    "out of time": out_of_time,
}


# -- without async --------------------------------------------------------------------------------


def whole_blocking(methods: Any, given: Given, seen: Seen) -> None:
    seen.append(methods.create(**given).to_dict())


def iterated_blocking(methods: Any, given: Given, seen: Seen) -> None:
    seen.extend(event.to_dict() for event in methods.create(**given, stream=True))


def some_of_blocking(stream: Any, seen: Seen) -> None:
    for event in stream:
        seen.append(event.to_dict())
        if len(seen) == LEFT_AFTER:
            break


def left_blocking(methods: Any, given: Given, seen: Seen) -> None:
    some_of_blocking(methods.create(**given, stream=True), seen)
    gc.collect()


def left_and_closed_blocking(methods: Any, given: Given, seen: Seen) -> None:
    with methods.create(**given, stream=True) as stream:
        some_of_blocking(stream, seen)


def managed_blocking(methods: Any, given: Given, seen: Seen) -> None:
    with methods.stream(**given) as stream:
        seen.extend(event.type for event in stream)


def streaming_blocking(read: Callable[[Any, Seen], None]) -> BlockingWay:
    def way(methods: Any, given: Given, seen: Seen) -> None:
        with methods.with_streaming_response.create(**given, stream=True) as answer:
            read(answer, seen)

    return way


def drained_blocking(answer: Any, seen: Seen) -> None:
    pieces = answer.http_response.iter_raw()
    seen.append(next(pieces))
    seen.extend(answer.http_response.stream)
    answer.close()
    pieces.close()


def closed_blocking(answer: Any, seen: Seen) -> None:
    answer.close()
    answer.read()  # raises StreamClosed


BLOCKING: dict[str, BlockingWay] = {
    "whole": whole_blocking,
    "iterated": iterated_blocking,
    "left": left_blocking,
    "left and closed": left_and_closed_blocking,
    "managed": managed_blocking,
    "packed": streaming_blocking(lambda answer, seen: seen.extend(answer.http_response.iter_raw())),
    "drained": streaming_blocking(drained_blocking),
    "closed": streaming_blocking(closed_blocking),
}


ROWS: list[Body] = [{"role": "user", "content": "Vergleiche a.py mit b.py – ja?"}]
SAID = Said("Beide prüfen den Pfad – 两者 ✓ schon.")


class Api(NamedTuple):
    """One of the APIs: the kinds of its client, where its methods are, and what they are given."""

    sdk: Any
    methods: Callable[[Any], Any]
    form: Callable[[int, str, Said], tuple[Body, list[Body]]]
    given: Body

    def client(self, url: str, blocking: bool = False, timeout: float = 60) -> Any:
        kinds = ("Anthropic", "OpenAI") if blocking else ("AsyncAnthropic", "AsyncOpenAI")
        kind = getattr(self.sdk, kinds[self.sdk is openai])
        name = "DefaultHttpxClient" if blocking else "DefaultAsyncHttpxClient"
        # Without TLS: to read all known authorities takes longer than a test.
        http = getattr(self.sdk, name)(verify=False, timeout=timeout)
        return kind(api_key="k", base_url=url, http_client=http, max_retries=1)


APIS = {
    "messages": Api(anthropic, lambda c: c.messages, claude, {"max_tokens": 900, "messages": ROWS}),
    "chat": Api(openai, lambda c: c.chat.completions, chat, {"messages": ROWS}),
    "responses": Api(openai, lambda c: c.responses, response, {"input": ROWS}),
}

Sends = Callable[[Reply, int], Reply]
"""Of an answer in pieces, and the number of the attempt, what is sent."""


class Script:
    """Answers the attempts of one call as ``sends`` says, and the call after it plainly."""

    def __init__(self, api: Api, sends: Sends) -> None:
        self._api, self._sends, self.attempts = api, sends, 0

    def __call__(self, request: ReceivedRequest) -> Reply:
        whole, events = self._api.form(1, "m-1", SAID)
        stream = streamed([*events, *done(self._api.form)])
        reply = stream if request.body.get("stream") else json_reply(whole)
        if request.body["model"] == "next":
            return reply
        self.attempts += 1
        return self._sends(reply, self.attempts - 1)


@contextmanager
def scripted(api: Api, sends: Sends) -> Iterator[tuple[Script, ScriptedHTTP]]:
    script = Script(api, sends)
    with serving(script) as server:
        yield script, server


def noted(server: ScriptedHTTP, seen: Seen, since: int) -> Seen:
    """What a caller saw, and what the server: requests, and the connections that they took."""
    assert server.all_closed()
    taken = server.connections[since:]
    requests = [(one.path, sorted(one.headers), one.body) for one in server.requests[since:]]
    return [seen, requests, [sorted(set(taken)).index(one) for one in taken]]


async def seen_by(client: Any, api: Api, way: str, script: Script, server: ScriptedHTTP) -> Seen:
    """What the caller sees of a call, and of one after it."""
    script.attempts, since, seen = 0, len(server.requests), Seen()
    async with client:
        methods = api.methods(client)
        try:
            await WAYS[way](methods, {"model": "m-1", **api.given}, seen)
        except Exception as error:
            seen.append(failure(error))
        await whole(methods, {"model": "next", **api.given}, seen)
    return noted(server, seen, since)


def seen_by_blocking(client: Any, api: Api, way: str, script: Script, server: ScriptedHTTP) -> Seen:
    """As ``seen_by``, by a client without async."""
    script.attempts, since, seen = 0, len(server.requests), Seen()
    with client:
        methods = api.methods(client)
        try:
            BLOCKING[way](methods, {"model": "m-1", **api.given}, seen)
        except Exception as error:
            seen.append(failure(error))
        whole_blocking(methods, {"model": "next", **api.given}, seen)
    return noted(server, seen, since)
