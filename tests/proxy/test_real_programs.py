"""Claude Code and Codex through the relay, against a scripted server; only where they are named.

``EVENTCTX_CLAUDE`` and ``EVENTCTX_CODEX`` are the paths of the programs. The wheel of
claude-agent-sdk holds the first, npm's @openai/codex is the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import eventctx
from tests.orchestrators.providers.server import streamed

PROGRAMS = {
    "EVENTCTX_CLAUDE": ["-p", "capital of Switzerland"],
    "EVENTCTX_CODEX": ["exec", "--skip-git-repo-check", "capital of Switzerland"],
}

USAGE = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
TEXT = {"type": "text", "text": ""}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "usage": USAGE,
}
CLAUDES: list[dict[str, Any]] = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": TEXT},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Bern."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
]
ITEM = {
    "type": "message",
    "id": "m_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Bern.", "annotations": []}],
}
RESPONSE = {"id": "r_1", "object": "response", "status": "completed", "usage": USAGE}
CODEXES: list[dict[str, Any]] = [
    {"type": "response.created", "response": RESPONSE | {"status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.completed", "response": RESPONSE | {"output": [ITEM]}},
]


@contextmanager
def serving(received: list[dict[str, Any]]) -> Iterator[str]:
    """The URL of a model that says "Bern." to everything."""

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.partition("?")[0]
            content = b"{}"
            if path.endswith(("/messages", "/responses")):
                received.append(json.loads(body))
                content = b"".join(streamed(CLAUDES if "messages" in path else CODEXES).pieces)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Nothing: a test's output is not a server's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("variable", PROGRAMS)
async def test_the_requests_of_a_real_program_are_observed(tmp_path: Path, variable: str) -> None:
    program = os.environ.get(variable)
    if program is None:
        pytest.skip(f"{variable} names no program")
    received: list[dict[str, Any]] = []
    with serving(received) as url:
        environment = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "k",
            "HOME": str(tmp_path),
            "PATH": os.environ["PATH"],
            "CODEX_API_KEY": "k",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        ours = [sys.executable, "-m", "eventctx.cli", "--store", str(tmp_path / "s.db"), "record"]
        command = [*ours, "--tapes", str(tmp_path / "tapes"), "--", program, *PROGRAMS[variable]]
        done = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
            command,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert "Bern." in done.stdout, done.stderr
    found = []
    async with eventctx.open(tmp_path / "s.db", read_only=True) as engine:
        for session in await engine.sessions():
            async for record in engine.store.read(session.stream):
                if record.type == "context:request_prepared":
                    view = await engine.request_view(session.stream, position=record.position)
                    assert view.verified
                    assert view.sent is not None
                    found.append(json.dumps(view.sent.body(), sort_keys=True))
    assert sorted(found) == sorted(json.dumps(one, sort_keys=True) for one in received)
