"""The real Claude Code, see tests/services/programs.py: 360 MB.

``npm install --prefix FOLDER @anthropic-ai/claude-code`` installs it; ``$EVENTCTX_CLAUDE_CODE`` is
the path of its ``claude``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests import scripted_http
from tests.api_answers import Body, _claude_events
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed
from tests.scripted_http import ScriptedHTTP
from tests.services import programs

Answer = tuple[list[Body], str] | tuple[list[Body], str, int]
"""Blocks, a stop reason, and the tokens that the prompt is said to have had, 50 by default."""

Script = Callable[[Body], Answer]


def scripted_api(script: Script) -> scripted_http.Answer:
    numbers = itertools.count(1)

    def answer(request: ReceivedRequest) -> Reply:
        body = request.body
        if not _asks(request):
            return json_reply({"input_tokens": 1})
        blocks, reason, *said = script(body)
        begun = {"id": f"msg_{next(numbers):04d}", "type": "message", "role": "assistant"}
        begun |= {"model": body["model"], "content": [], "stop_sequence": None}
        begun["usage"] = {"input_tokens": said[0] if said else 50, "output_tokens": 1}
        if not body.get("stream"):
            return json_reply({**begun, "content": blocks, "stop_reason": reason})
        ended = {"stop_reason": reason, "stop_sequence": None}
        return streamed(
            [
                {"type": "message_start", "message": {**begun, "stop_reason": None}},
                *(event for at, one in enumerate(blocks) for event in _claude_events(at, one)),
                {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 20}},
                {"type": "message_stop"},
            ]
        )

    return answer


def _asks(request: ReceivedRequest) -> bool:
    return request.path.startswith("/v1/messages") and "count_tokens" not in request.path


def asked_of(api: ScriptedHTTP) -> list[Body]:
    """The requests for an answer that a server received."""
    return [one.body for one in api.requests if _asks(one)]


class Program(programs.Program):
    def environment(self, home: str = "home") -> dict[str, str]:
        return {
            "HOME": str(self.folder / home),
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": "no-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def run(self, *arguments: str, **settings: str) -> str:
        """Run it once in print mode; what it printed. ``settings`` are environment variables."""
        line = ["-p", "--dangerously-skip-permissions", *arguments]
        environment = {**self.environment(), **settings}
        return programs.ran(self.binary, self.home, self.project, *line, **environment)

    @property
    def session(self) -> Path:
        (path,) = (self.home / ".claude" / "projects").glob("*/*.jsonl")
        return path

    @property
    def received(self) -> list[Body]:
        """The bodies that the server received, without what no session file holds."""
        return [_recorded(body) for body in asked_of(self.api)]


def _recorded(body: Body) -> Body:
    kept = {key: value for key, value in body.items() if key not in ("metadata", "stream")}
    system: Any = kept.get("system")
    if isinstance(system, list):
        billing = "x-anthropic-billing"
        kept["system"] = [one for one in system if not one["text"].startswith(billing)]
    return kept


def installed(binary: Path, folder: Path, script: Script) -> AbstractContextManager[Program]:
    return programs.installed(Program, binary, folder, scripted_api(script))
