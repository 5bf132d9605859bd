"""HTTP clients whose server is a function: for the SDKs of Anthropic and OpenAI."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import streamed

_NUMBERS = itertools.count(1)

SAYS = Said("Both check a path.")


class Pieces(httpx2.AsyncByteStream, httpx2.SyncByteStream):
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

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else {}
        self.received.append(body)
        path = request.url.path
        if "count_tokens" in path:
            return httpx2.Response(200, json={"input_tokens": 5})
        form = next((form for end, form in _FORMS.items() if path.endswith(end)), claude)
        whole, events = form(next(_NUMBERS), body.get("model", "m-1"), self._says)
        if not body.get("stream"):
            return httpx2.Response(200, json=whole)
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, stream=Pieces(streamed(events).pieces), headers=kind)


_FORMS = {"/chat/completions": chat, "/responses": response}

Handler = Callable[[httpx2.Request], httpx2.Response]


def http(handler: Handler, **more: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.MockTransport(handler), **more)


def blocking_http(handler: Handler, **more: Any) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(handler), **more)
