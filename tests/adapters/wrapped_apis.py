"""The clients of the two SDKs, plain and wrapped, at a server that answers by a script.

``seen_by`` tells what the caller of a client sees, and what the server: they are the same for a
client and its wrapped copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import anthropic
import openai

from tests.adapters.reading_ways import BLOCKING, WAYS, Seen, failure
from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed
from tests.scripted_http import ScriptedHTTP, done, serving

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
        self._api, self._sends = api, sends
        self.attempts = 0

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
    taken = server.connections[since:]
    requests = [(one.path, sorted(one.headers), one.body) for one in server.requests[since:]]
    return [seen, requests, [sorted(set(taken)).index(one) for one in taken]]


async def seen_by(client: Any, api: Api, way: str, script: Script, server: ScriptedHTTP) -> Seen:
    """What the caller sees of a call, and of one after it."""
    seen: Seen = []
    script.attempts, since = 0, len(server.requests)
    async with client:
        methods = api.methods(client)
        try:
            await WAYS[way](methods, {"model": "m-1", **api.given}, seen)
        except Exception as error:
            seen.append(failure(error))
        seen.append((await methods.create(model="next", **api.given)).to_dict())
    assert server.all_closed()
    return noted(server, seen, since)


def seen_by_blocking(client: Any, api: Api, way: str, script: Script, server: ScriptedHTTP) -> Seen:
    """As ``seen_by``, by a client without async."""
    seen: Seen = []
    script.attempts, since = 0, len(server.requests)
    with client:
        methods = api.methods(client)
        try:
            BLOCKING[way](methods, {"model": "m-1", **api.given}, seen)
        except Exception as error:
            seen.append(failure(error))
        seen.append(methods.create(model="next", **api.given).to_dict())
    assert server.all_closed()
    return noted(server, seen, since)
