"""The ways in which a caller of the SDKs reads an answer, and what the caller sees of it.

``WAYS`` are those of a client with async, ``BLOCKING`` those without, under the same names. A way
gets the methods of one API (``client.messages``), its arguments, and a list for what it sees.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

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
    cause = error.__cause__ or error.__context__
    body = getattr(error, "body", None)
    return type(error).__name__, str(error), body, type(cause).__name__


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


async def left(methods: Any, given: Given, seen: Seen) -> None:
    stream = await methods.create(**given, stream=True)
    async for event in stream:
        seen.append(event.to_dict())
        if len(seen) == LEFT_AFTER:
            break
    del stream, event
    gc.collect()
    for _ in range(20):  # the loop closes what was collected
        await asyncio.sleep(0)


async def left_and_closed(methods: Any, given: Given, seen: Seen) -> None:
    async with await methods.create(**given, stream=True) as stream:
        async for event in stream:
            seen.append(event.to_dict())
            if len(seen) == LEFT_AFTER:
                break


async def managed(methods: Any, given: Given, seen: Seen) -> None:
    async with methods.stream(**given) as stream:
        async for event in stream:
            seen.append(event.type)


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


def left_blocking(methods: Any, given: Given, seen: Seen) -> None:
    for event in methods.create(**given, stream=True):
        seen.append(event.to_dict())
        if len(seen) == LEFT_AFTER:
            break
    gc.collect()


def left_and_closed_blocking(methods: Any, given: Given, seen: Seen) -> None:
    with methods.create(**given, stream=True) as stream:
        for event in stream:
            seen.append(event.to_dict())
            if len(seen) == LEFT_AFTER:
                break


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
