"""The real Claude Code against a server on this machine that answers from a script: opt-in, 360 MB.

``npm install --prefix FOLDER @anthropic-ai/claude-code`` installs it; ``$EVENTCTX_CLAUDE_CODE`` is
the path of its ``claude``. It gets a home folder of its own and reaches no other address.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "EVENTCTX_CLAUDE_CODE"
OPT_IN = f"Claude Code is opt-in (360 MB): ${VARIABLE} is the path of its `claude`"

_RUN_SECONDS = 120.0
_BILLING = "x-anthropic-billing"

Body = dict[str, Any]
Answer = tuple[list[dict[str, Any]], str] | int
"""Blocks with a stop reason, or the status of a failure."""

Script = Callable[[Body], Answer]


class Api(ThreadingHTTPServer):
    """Answers requests of the Messages API by a script, and keeps their bodies."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.received: list[Body] = []
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)
        self.tokens = 50
        """Prompt tokens that each answer reports."""


class _Handler(BaseHTTPRequestHandler):
    server: Api

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
            self._json(200, {"input_tokens": 1})
            return
        with self.server.lock:
            number = next(self.server.numbers)
            self.server.received.append(body)
            answer = self.server.script(body)
        if isinstance(answer, int):
            error = {"type": "overloaded_error", "message": "by the script"}
            self._json(answer, {"type": "error", "error": error})
            return
        blocks, reason = answer
        message = {
            "id": f"msg_{number:04d}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self.server.tokens, "output_tokens": 1},
        }
        if body.get("stream"):
            self._stream(message, blocks, reason)
        else:
            self._json(200, {**message, "content": blocks, "stop_reason": reason})

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, message: Body, blocks: Sequence[Body], reason: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._event("message_start", message=message)
        for index, block in enumerate(blocks):
            start, deltas = _opened(block)
            self._event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                self._event("content_block_delta", index=index, delta=delta)
            self._event("content_block_stop", index=index)
        ended = {"stop_reason": reason, "stop_sequence": None}
        self._event("message_delta", delta=ended, usage={"output_tokens": 20})
        self._event("message_stop")

    def _event(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields})
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())
        self.wfile.flush()


def _opened(block: Body) -> tuple[Body, list[Body]]:
    """A block as a stream begins it, and the deltas that complete it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
        case _:
            part = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            return {**block, "input": {}}, [part]


class Program(NamedTuple):
    """The program in a folder of its own: ``home`` and ``project`` are below it."""

    binary: Path
    folder: Path
    api: Api

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def run(self, *arguments: str, **settings: str) -> str:
        """Run it once in print mode and return what it printed. Raises CalledProcessError.

        ``settings`` are environment variables.
        """
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.api.server_port}",
            "ANTHROPIC_API_KEY": "no-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            **settings,
        }
        done = subprocess.run(
            [self.binary, "-p", "--dangerously-skip-permissions", *arguments],
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=True,
        )
        return done.stdout

    @property
    def session(self) -> Path:
        """The one session file that it wrote."""
        (path,) = (self.folder / "home" / ".claude" / "projects").glob("*/*.jsonl")
        return path

    @property
    def received(self) -> list[Body]:
        """The bodies that the server received, without what no session file holds."""
        return [_recorded(body) for body in self.api.received]


def _recorded(body: Body) -> Body:
    kept = {key: value for key, value in body.items() if key not in ("metadata", "stream")}
    system = kept.get("system")
    if isinstance(system, list):
        kept["system"] = [one for one in system if not one["text"].startswith(_BILLING)]
    return kept


@contextmanager
def installed(binary: Path, folder: Path, script: Script) -> Iterator[Program]:
    """The program and its server until the end of the block."""
    for name in ("home", "project"):
        (folder / name).mkdir(parents=True)
    api = Api(script)
    thread = threading.Thread(target=api.serve_forever)
    thread.start()
    try:
        yield Program(binary, folder, api)
    finally:
        api.shutdown()
        thread.join()
        api.server_close()
