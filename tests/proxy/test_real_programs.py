"""Claude Code and Codex through the relay, against a scripted server; only where they are named.

``EVENTCTX_CLAUDE`` and ``EVENTCTX_CODEX`` are the paths of the programs. The wheel of
claude-agent-sdk holds the first, npm's @openai/codex is the second.
"""

from __future__ import annotations

import asyncio
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
from tests.api_answers import Said, claude, response
from tests.orchestrators.providers.server import streamed
from tests.proxy.recorded import sent_bodies
from tests.scripted_http import environment as environment_of_sdks

PROGRAMS = {
    "EVENTCTX_CLAUDE": ["-p", "capital of Switzerland"],
    "EVENTCTX_CODEX": ["exec", "--skip-git-repo-check", "capital of Switzerland"],
}


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
                form = claude if "messages" in path else response
                _, events = form(len(received), received[-1]["model"], Said("Bern."))
                content = b"".join(streamed(events).pieces)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Nothing: a test's output is not a server's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def command_in(folder: Path, url: str, program: str) -> tuple[list[str], dict[str, str]]:
    """The command that records a program in a folder, and its environment."""
    environment = {
        **environment_of_sdks(url),
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "CODEX_API_KEY": "k",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    ours = [sys.executable, "-m", "eventctx.cli", "--store", str(folder / "s.db"), "record"]
    return [*ours, "--tapes", str(folder / "tapes"), "--", program], environment


def run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run(command, env=environment, cwd=folder, timeout=120, **options)
    assert "Bern." in done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("variable", PROGRAMS)
async def test_the_requests_of_a_real_program_are_observed(tmp_path: Path, variable: str) -> None:
    """Each request that the server received is observed, and the view shows the same."""
    program = os.environ.get(variable)
    if program is None:
        pytest.skip(f"{variable} names no program")
    received: list[dict[str, Any]] = []
    with serving(received) as url:
        command, environment = command_in(tmp_path, url, program)
        await asyncio.to_thread(run, [*command, *PROGRAMS[variable]], environment, tmp_path)
    async with eventctx.open(tmp_path / "s.db", read_only=True) as engine:
        sessions = [one.stream for one in await engine.sessions()]
        bodies = [body for one in sessions for body in await sent_bodies(engine, one)]
    found = [json.dumps(body, sort_keys=True) for body in bodies]
    assert sorted(found) == sorted(json.dumps(one, sort_keys=True) for one in received)
