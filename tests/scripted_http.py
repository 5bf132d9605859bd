"""An HTTP/1.1 server on this machine, in threads, which answers as a function says.

It keeps connections open, as the servers of the APIs do. So a client, with async or without, meets
a real connection: one that is used again, cut in the middle of an answer, or silent.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed

Form = Callable[[int, str, Said], tuple[Body, list[Body]]]
Answer = Callable[[ReceivedRequest], Reply]

SAYS = Said("Both check a path.")
_FORMS = {"/chat/completions": chat, "/responses": response}
_NUMBERS = itertools.count(1)  # of answers: an API never gives an id twice


class ScriptedHTTP(ThreadingHTTPServer):
    """``received`` are the bodies of the requests, ``connections`` the number of each one's."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[ReceivedRequest] = []
        self.connections: list[int] = []
        self.open: dict[int, socket.socket] = {}
        self.changed = threading.Condition()
        self.opened = itertools.count()
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def received(self) -> list[Body]:
        return [one.body for one in self.requests]

    def all_closed(self) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: not self.open, timeout=5)

    def server_close(self) -> None:
        super().server_close()
        with self.changed:
            for one in self.open.values():
                with suppress(OSError):  # the other side left first
                    one.shutdown(socket.SHUT_RDWR)  # its thread waits for a request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer in one packet: a second one waits for the first one's receipt
    server: ScriptedHTTP

    def setup(self) -> None:
        super().setup()
        self.number = next(self.server.opened)
        with self.server.changed:
            self.server.open[self.number] = self.connection

    def handle(self) -> None:
        with suppress(OSError):  # the other side left, or was cut off
            super().handle()

    def finish(self) -> None:
        try:
            with suppress(OSError):
                super().finish()
        finally:
            with self.server.changed:
                del self.server.open[self.number]
                self.server.changed.notify_all()

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ReceivedRequest(self.path, headers, json.loads(content) if content else {})
        self.server.requests.append(request)
        self.server.connections.append(self.number)
        self._send(self.server.answer(request))

    do_GET = do_POST  # noqa: N815 - its name is that of the method

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)  # "connection: close" ends the connection
        chunked = not reply.headers.keys() & {"content-length", "connection"}
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in reply.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if reply.ending == "whole":
            self.wfile.write(b"0\r\n\r\n" if chunked else b"")
            return
        self.close_connection = True
        self.wfile.flush()
        if reply.ending == "stalled":
            self.rfile.read()

    def log_message(self, *args: object) -> None:
        """Nothing: a test's output is not a server's log."""


@contextmanager
def serving(answer: Answer) -> Iterator[ScriptedHTTP]:
    server = ScriptedHTTP(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def saying(says: Said = SAYS) -> Answer:
    def answer(request: ReceivedRequest) -> Reply:
        if "count" in request.path:
            return json_reply({"input_tokens": 5})
        form = next((form for end, form in _FORMS.items() if end in request.path), claude)
        return in_form(form, request.body, says)

    return answer


def in_form(form: Form, body: Body, says: Said) -> Reply:
    """An answer to a request, whole or as the stream that its ``body`` asks for."""
    whole, events = form(next(_NUMBERS), body.get("model", "m-1"), says)
    return streamed([*events, *done(form)]) if body.get("stream") else json_reply(whole)


def done(form: Form) -> list[str]:
    return ["[DONE]"] if form is chat else []


def environment(url: str) -> dict[str, str]:
    """The environment in which the SDKs ask the server at ``url``."""
    keys = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}
    return {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1", **keys}
