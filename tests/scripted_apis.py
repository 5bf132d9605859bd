"""Anthropic's and OpenAI's APIs on this machine, for the pages that show their SDKs.

A page's code runs as it stands: the SDKs take the address from the environment. What is asked is
held to the rules of the real API, and answered by a script: with tools, the model calls the first
one for each file that the last prompt names, all at once, and then tells of the results; without,
it says what ``ANSWERS`` has for the prompt.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.api_answers import Said, chat, claude, response
from tests.orchestrators.providers.server import ReceivedRequest, streamed
from tests.orchestrators.providers.strict import refused

Body = dict[str, Any]

_NUMBERS = itertools.count(1)  # of answers: an API never gives an id twice

ANSWERS = {
    "capital of Switzerland": "Bern.",
    "picture": "A red square.",
    "this PDF": "An invoice over 40 francs.",
    "ummar": "The files 0 to 6 were read; nothing was found.",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = (
        1 << 16
    )  # head and body in one packet: a second one waits for the first one's receipt

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.received.append(body)  # type: ignore[attr-defined]
        problem = refused(ReceivedRequest(self.path, {}, body))
        if problem:
            error = {"type": "invalid_request_error", "message": problem}
            self._send(400, json.dumps({"type": "error", "error": error}))
            return
        if self.path.endswith("/messages"):
            answer, events = _claude(body)
        elif self.path.endswith("/chat/completions"):
            answer, events = _chat(body)
        else:
            answer, events = _response(body)
        if body.get("stream"):
            self._send(200, b"".join(streamed(events).pieces).decode(), "text/event-stream")
        else:
            self._send(200, json.dumps(answer))

    def _send(self, status: int, text: str, kind: str = "application/json") -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing: a test's output is not a server's log."""


@contextmanager
def answering(received: list[Body] | None = None) -> Iterator[dict[str, str]]:
    """The environment in which the SDKs ask this server; ``received`` gets what it is asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.received = [] if received is None else received  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "k",
        }
    finally:
        server.shutdown()
        server.server_close()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [])


def _thought(rows: list[Body], tools: bool) -> tuple[list[str], str]:
    """The files that the model wants to read, or else what it says."""
    last = rows[-1]
    results = last.get("role") == "tool" or last.get("type") == "function_call_output"
    if isinstance(last.get("content"), list):
        results |= last["content"][0].get("type") == "tool_result"
    if results:
        return [], "Both check a path; only one of them writes."
    prompt = _text(last.get("content"))
    if tools:
        return re.findall(r"\w+\.py", prompt), "Done."
    return [], next((said for known, said in ANSWERS.items() if known in prompt), "Done.")


def _said(body: Body, rows: list[Body], prefix: str) -> Said:
    files, text = _thought(rows, bool(body.get("tools")))
    calls = [(f"{prefix}_{n}", "read", {"path": file}) for n, file in enumerate(files)]
    thinking = "One by one." if body.get("thinking") else None
    return Said("" if calls else text, calls, thinking, cached=100)


def _claude(body: Body) -> tuple[Body, list[Body]]:
    return claude(next(_NUMBERS), body["model"], _said(body, body["messages"], "toolu"))


def _chat(body: Body) -> tuple[Body, list[Body]]:
    return chat(next(_NUMBERS), body["model"], _said(body, body["messages"], "call"))


def _response(body: Body) -> tuple[Body, list[Body]]:
    return response(next(_NUMBERS), body["model"], _said(body, body["input"], "call"))
