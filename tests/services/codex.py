"""The real Codex against a server on this machine that answers from a script: opt-in, 300 MB.

``npm install --prefix FOLDER @openai/codex`` installs it; ``$EVENTCTX_CODEX`` is the path of its
``codex``. It gets a home folder of its own and reaches no other address.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "EVENTCTX_CODEX"
OPT_IN = f"Codex is opt-in (300 MB): ${VARIABLE} is the path of its `codex`"

_RUN_SECONDS = 120.0
_SMALL = "model_auto_compact_token_limit=20000"
"""A setting: a turn that begins with more tokens compacts first."""

Body = dict[str, Any]


class Answer(NamedTuple):
    """An output item of the Responses API, and how many tokens the request is said to have had."""

    item: dict[str, Any]
    tokens: int = 10


Script = Callable[[Body], Answer]


def said(words: str, tokens: int = 10) -> Answer:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item = {"type": "message", "id": "m_1", "role": "assistant", "content": content}
    return Answer({**item, "status": "completed"}, tokens)


def code(call: str, expression: str) -> Answer:
    """A call of the tool ``exec``, by which newer models call all others, in JavaScript."""
    source = f"const found = {expression}; text(JSON.stringify(found));"
    item = {"type": "custom_tool_call", "id": f"c_{call}", "call_id": call, "name": "exec"}
    return Answer({**item, "namespace": "functions", "input": source, "status": "completed"})


def said_by_persons(body: Body) -> list[str]:
    """The texts of a request in role ``user``."""
    return [
        block["text"]
        for one in body["input"]
        if one.get("role") == "user"
        for block in one["content"]
        if block["type"] == "input_text"
    ]


def encrypted() -> Answer:
    """The answer to a ``compaction_trigger``."""
    return Answer({"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VjcmV0"})


class Api(ThreadingHTTPServer):
    """Answers requests of the Responses API by a script, and keeps their bodies."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script = script
        self.received: list[Body] = []
        self.lock = threading.Lock()
        self.numbers = itertools.count(1)


class _Handler(BaseHTTPRequestHandler):
    server: Api

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        with self.server.lock:
            number = next(self.server.numbers)
            self.server.received.append(body)
            item, tokens = self.server.script(body)
        usage = {"input_tokens": tokens, "output_tokens": 3, "total_tokens": tokens + 3}
        response = {"id": f"r_{number}", "object": "response", "usage": usage}
        begun = {**response, "status": "in_progress", "output": []}
        ended = {**response, "status": "completed", "output": [item]}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self._event("response.created", response=begun)
        self._event("response.output_item.added", output_index=0, item=item)
        self._event("response.output_item.done", output_index=0, item=item)
        self._event("response.completed", response=ended)

    def _event(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"type": kind, **fields})
        self.wfile.write(f"event: {kind}\ndata: {data}\n\n".encode())


class Program(NamedTuple):
    """The program in a folder of its own: ``home`` and ``project`` are below it."""

    binary: Path
    folder: Path
    api: Api

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def settings(self) -> Path:
        """The folder of its settings and sessions."""
        return self.home / ".codex"

    def run(self, *arguments: str, **settings: str) -> str:
        """Run it once and return what it printed, on both outputs.

        ``settings`` are environment variables.
        """
        done = subprocess.run(
            [self.binary, *arguments],
            cwd=self.project,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def ask(self, *arguments: str, openai: bool = False) -> str:
        """Run a turn: ``words`` of a new session, or ``"resume", "--last", words``.

        With ``openai`` the server is one of OpenAI's, which make a compaction themselves: the
        request for it ends with a ``compaction_trigger``.
        """
        url = f"http://127.0.0.1:{self.api.server_port}/v1"
        provider = {
            "model_provider": "scripted",
            "model_providers.scripted.name": "scripted",
            "model_providers.scripted.base_url": url,
            "model_providers.scripted.wire_api": "responses",
        }
        chosen = {"openai_base_url": url} if openai else provider
        settings = [f'-c{name}="{value}"' for name, value in chosen.items()]
        line = ["exec", *settings, "-c", _SMALL, "--skip-git-repo-check"]
        plain = ["--disable", "enable_request_compression"]
        trusted = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"]
        return self.run(*line, *plain, *trusted, *arguments, CODEX_API_KEY="no-key")

    @property
    def session(self) -> Path:
        """The one session file that it wrote."""
        (path,) = (self.settings / "sessions").rglob("rollout-*.jsonl")
        return path


@contextmanager
def installed(binary: Path, folder: Path, script: Script) -> Iterator[Program]:
    """The program and its server until the end of the block."""
    for name in ("home/.codex", "project"):
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
