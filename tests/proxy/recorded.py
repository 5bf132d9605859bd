"""A scripted server behind a relay, whose calls go to tapes, and a client of raw bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eventctx.engine import Engine
from eventctx.importers.formats.cassettes.rows import plain_form, rows_of
from eventctx.importers.load import import_file
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.program import Upstreams
from eventctx.proxy.relay import Relay
from eventctx.proxy.tapes import Tapes
from tests.orchestrators.providers.server import Reply, Server, serving

Body = dict[str, Any]
SESSION = "6b0ce1a4-7a6f-4a35-a0d6-0e6f4e2f9c11"
CLAUDE = {
    "x-api-key": "sk-secret",
    "authorization": "Bearer secret",
    "user-agent": "claude-cli/2.1.330",
    "x-claude-code-session-id": SESSION,
}
TOOLS = [{"name": "Read", "input_schema": {"type": "object"}}]


def user(text: str) -> Body:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def said(text: str) -> Body:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def answer(text: str) -> Body:
    return {
        "id": f"msg_{text}",
        "type": "message",
        "role": "assistant",
        "model": "m-1",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }


def request(*rows: Body, **more: Any) -> Body:
    return {"model": "m-1", "max_tokens": 900, "tools": TOOLS, "messages": list(rows), **more}


async def sent_bodies(engine: Engine, session: str, *, as_view: bool = True) -> list[Body]:
    """The bodies of a session's requests, observed as they were sent, with verified views.

    ``as_view``: the transcript's view shows the messages of the body.
    """
    found = []
    async for record in engine.store.read(session):
        if record.type == "context:request_prepared":
            view = await engine.request_view(session, position=record.position)
            assert (view.known, view.verified) == ("observed", True)
            body: Body = view.sent.body() if view.sent else {}
            found.append(body)
            if as_view:
                shown = [plain_form(one) for one in view.derived]
                assert shown == [plain_form(one) for one in rows_of(body)]
    return found


def to(relay: Relay, sent: bytes) -> bytes:
    """Raw requests for the relay: their paths after its token, and its own ``Host``."""
    base = urlsplit(relay.url)
    for api in (b"/anthropic/", b"/openai/"):
        sent = sent.replace(b" " + api, b" %s%s" % (base.path.encode(), api))
    return re.sub(rb"(?i)\r\nhost: \w+\r", b"\r\nhost: %s\r" % base.netloc.encode(), sent)


class Recording:
    """A scripted server behind a relay, the tapes in a folder, and a client of raw bytes."""

    def __init__(self, server: Server, relay: Relay, tapes: Tapes) -> None:
        self.server = server
        self.relay = relay
        self.tapes = tapes

    async def ask(
        self,
        body: Body | bytes,
        reply: Reply,
        headers: dict[str, str] | None = None,
        path: str = "/anthropic/v1/messages?beta=true",
    ) -> bytes:
        """The raw answer to a request that is sent through the relay."""
        self.server.replies.append(reply)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.relay.port)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: relay", f"Content-Length: {len(content)}"]
        head += [f"{name}: {value}" for name, value in (headers or CLAUDE).items()]
        writer.write(to(self.relay, "\r\n".join([*head, "", ""]).encode()) + content)
        found = await reader.read()
        writer.close()
        await writer.wait_closed()
        return found

    async def imported(self, engine: Engine) -> list[Any]:
        """The summaries of the sessions on the tapes."""
        await asyncio.to_thread(self.tapes.close)
        return [one for path in self.tapes.paths for one in await import_file(engine.store, path)]


@asynccontextmanager
async def relaying(
    servers: dict[str, str], seen: Callable[[SeenCall], None], **more: Any
) -> AsyncIterator[Relay]:
    """A relay in front of these servers until the block ends, for a minute at most."""
    relay = Relay(Upstreams.of(servers).choose(), seen, **more)
    await relay.start()
    try:
        async with asyncio.timeout(60):
            yield relay
    finally:
        await relay.close()


@asynccontextmanager
async def recording(folder: Path, expected: int = 0) -> AsyncIterator[Recording]:
    """What is recorded until the block ends, with as many problems as are ``expected``."""
    problems: list[str] = []
    tapes = Tapes(folder, "run", problems.append)
    async with serving(Server(lambda _: None)) as server:
        servers = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        async with relaying(servers, tapes.put) as relay:
            yield Recording(server, relay, tapes)
    assert len(problems) == expected, problems
