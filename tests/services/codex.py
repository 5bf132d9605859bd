"""The real Codex, see tests/services/programs.py: 300 MB.

``npm install --prefix FOLDER @openai/codex`` installs it; ``$EVENTCTX_CODEX`` is the path of its
``codex``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests import scripted_http
from tests.api_answers import Body
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed
from tests.services import programs

_SMALL = "model_auto_compact_token_limit=20000"
"""A setting: a turn that begins with more tokens compacts first."""


class Answer(NamedTuple):
    """An output item of the Responses API, and how many tokens the request is said to have had."""

    item: Body
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
    rows = [one for one in body["input"] if one.get("role") == "user"]
    blocks = [block for one in rows for block in one["content"]]
    return [block["text"] for block in blocks if block["type"] == "input_text"]


def scripted_api(script: Script) -> scripted_http.Answer:
    numbers = itertools.count(1)

    def answer(request: ReceivedRequest) -> Reply:
        if "input" not in request.body:
            return json_reply({}, 404)
        item, tokens = script(request.body)
        usage = {"input_tokens": tokens, "output_tokens": 3, "total_tokens": tokens + 3}
        response = {"id": f"r_{next(numbers)}", "object": "response", "usage": usage}
        begun = {**response, "status": "in_progress", "output": []}
        ended = {**response, "status": "completed", "output": [item]}
        return streamed(
            [
                {"type": "response.created", "response": begun},
                {"type": "response.output_item.added", "output_index": 0, "item": item},
                {"type": "response.output_item.done", "output_index": 0, "item": item},
                {"type": "response.completed", "response": ended},
            ]
        )

    return answer


class Program(programs.Program):
    def ask(self, *arguments: str, openai: bool = False) -> str:
        """Run a turn: ``words`` of a new session, or ``"resume", "--last", words``.

        With ``openai`` the server is one of OpenAI's, which make a compaction themselves: the
        request for it ends with a ``compaction_trigger``.
        """
        url = f"{self.api.url}/v1"
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
        line += [*plain, *trusted, *arguments]
        return programs.ran(self.binary, self.home, self.project, *line, CODEX_API_KEY="no-key")

    @property
    def received(self) -> list[Body]:
        return [body for body in self.api.received if "input" in body]

    @property
    def session(self) -> Path:
        (path,) = (self.home / ".codex" / "sessions").rglob("rollout-*.jsonl")
        return path


def installed(binary: Path, folder: Path, script: Script) -> AbstractContextManager[Program]:
    (folder / "home" / ".codex").mkdir(parents=True)
    return programs.installed(Program, binary, folder, scripted_api(script))
