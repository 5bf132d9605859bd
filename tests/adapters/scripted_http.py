"""HTTP clients whose server is a function: for the SDKs of Anthropic and OpenAI.

An SDK is built on httpx or on httpx2, which depends on its release. A client and an answer are of
the library of the SDK that asks.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import requires
from typing import Any

from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import streamed

_NUMBERS = itertools.count(1)

SAYS = Said("Both check a path.")


@cache
def http_library(sdk: str) -> Any:
    """The HTTP library that an SDK is built on."""
    needed = {re.split(r"[^\w.-]", one)[0] for one in requires(sdk) or ()}
    return import_module("httpx2" if "httpx2" in needed else "httpx")


def answer_to(request: Any, status: int, **more: Any) -> Any:
    """A response of the library that made the request."""
    return _library_of(request).Response(status, **more)


def _library_of(request: Any) -> Any:
    return import_module(type(request).__module__.partition(".")[0])


class _Pieces:
    """A body that comes piece by piece."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


class ScriptedServer:
    """Answers each request with ``says``, in the form that its path asks for."""

    def __init__(self, says: Said = SAYS) -> None:
        self.received: list[Body] = []
        self._says = says

    def __call__(self, request: Any) -> Any:
        body = json.loads(request.content) if request.content else {}
        self.received.append(body)
        path = request.url.path
        if "count_tokens" in path:
            return answer_to(request, 200, json={"input_tokens": 5})
        form = next((form for end, form in _FORMS.items() if path.endswith(end)), claude)
        whole, events = form(next(_NUMBERS), body.get("model", "m-1"), self._says)
        if not body.get("stream"):
            return answer_to(request, 200, json=whole)
        kind = {"content-type": "text/event-stream"}
        library = _library_of(request)
        body = type("Pieces", (_Pieces, library.AsyncByteStream, library.SyncByteStream), {})
        return answer_to(request, 200, stream=body(streamed(events).pieces), headers=kind)


_FORMS = {"/chat/completions": chat, "/responses": response}

Handler = Callable[[Any], Any]
"""From a request to an answer to it."""


def http(sdk: str, handler: Handler, **more: Any) -> Any:
    library = http_library(sdk)
    return library.AsyncClient(transport=library.MockTransport(handler), **more)


def blocking_http(sdk: str, handler: Handler, **more: Any) -> Any:
    library = http_library(sdk)
    return library.Client(transport=library.MockTransport(handler), **more)
