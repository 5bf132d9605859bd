"""Real coding agents against a server on this machine that answers from a script: opt-in.

Each gets a home folder of its own and reaches no other address. ``npm install --prefix FOLDER
@anthropic-ai/claude-code @openai/codex`` installs them; ``$EVENTCTX_CLAUDE_CODE`` is the path of
``claude``, ``$EVENTCTX_CODEX`` that of ``codex``.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.api_answers import Body, _claude_events
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, streamed
from tests.scripted_http import Answer, ScriptedHTTP, serving


def program_of(variable: str, size: str) -> Path:
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"opt-in ({size}): ${variable} is the path of the program")
    return Path(named)


def ran(program: Path, home: Path, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a program in a folder, with a home of its own; what it printed on both outputs."""
    done = subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


class Program(NamedTuple):
    """The program in a folder of its own: ``home`` and ``project`` are below it."""

    binary: Path
    folder: Path
    api: ScriptedHTTP

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def home(self) -> Path:
        return self.folder / "home"


P = TypeVar("P", bound=Program)


@contextmanager
def installed(kind: type[P], binary: Path, folder: Path, answer: Answer) -> Iterator[P]:
    for name in ("home", "project"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    with serving(answer) as api:
        yield kind(binary, folder, api)


def set_up(host: str, home: Path, *options: str) -> None:
    """Our server and hooks in the settings of a program, as ``eventctx setup`` writes them."""
    line = ["-m", "eventctx.cli", "setup", host, "--yes", *options]
    ran(Path(sys.executable), home, Path.cwd(), *line)


# -- Claude Code ---------------------------------------------------------------------------------

Turn = tuple[list[Body], str] | tuple[list[Body], str, int]
"""Blocks, a stop reason, and the tokens that the prompt is said to have had, 50 by default."""

ClaudeScript = Callable[[Body], Turn]


def claude_api(script: ClaudeScript) -> Answer:
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


class Claude(Program):
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
        return ran(self.binary, self.home, self.project, *line, **environment)

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


def claude(binary: Path, folder: Path, script: ClaudeScript) -> AbstractContextManager[Claude]:
    return installed(Claude, binary, folder, claude_api(script))


# -- Codex ---------------------------------------------------------------------------------------

_SMALL = "model_auto_compact_token_limit=20000"
"""A setting: a turn that begins with more tokens compacts first."""


class Item(NamedTuple):
    """An output item of the Responses API, and how many tokens the request is said to have had."""

    item: Body
    tokens: int = 10


CodexScript = Callable[[Body], Item]


def said(words: str, tokens: int = 10) -> Item:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item = {"type": "message", "id": "m_1", "role": "assistant", "content": content}
    return Item({**item, "status": "completed"}, tokens)


def code(call: str, expression: str) -> Item:
    """A call of the tool ``exec``, by which newer models call all others, in JavaScript."""
    source = f"const found = {expression}; text(JSON.stringify(found));"
    item = {"type": "custom_tool_call", "id": f"c_{call}", "call_id": call, "name": "exec"}
    return Item({**item, "namespace": "functions", "input": source, "status": "completed"})


def said_by_persons(body: Body) -> list[str]:
    rows = [one for one in body["input"] if one.get("role") == "user"]
    blocks = [block for one in rows for block in one["content"]]
    return [block["text"] for block in blocks if block["type"] == "input_text"]


def codex_api(script: CodexScript) -> Answer:
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


class Codex(Program):
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
        return ran(self.binary, self.home, self.project, *line, CODEX_API_KEY="no-key")

    @property
    def received(self) -> list[Body]:
        return [body for body in self.api.received if "input" in body]

    @property
    def session(self) -> Path:
        (path,) = (self.home / ".codex" / "sessions").rglob("rollout-*.jsonl")
        return path


def codex(binary: Path, folder: Path, script: CodexScript) -> AbstractContextManager[Codex]:
    (folder / "home" / ".codex").mkdir(parents=True)
    return installed(Codex, binary, folder, codex_api(script))
