"""Small synthetic outputs of programs, and trajectories: Claude Code, Codex, ATIF."""

from __future__ import annotations

import itertools
import json
from typing import Any, Self

from tests.importers.given import Rows


class ClaudeStream(Rows):
    """Lines of ``claude -p --output-format stream-json``."""

    def __init__(self, session: str = "claude-1") -> None:
        super().__init__()
        self._session = session
        tools = {"tools": ["Bash"], "mcp_servers": []}
        self.line("system", subtype="init", model="claude-test-1", **tools)

    def line(self, kind: str, **fields: Any) -> Self:
        uuid = f"u{len(self.rows) + 1}"
        self.rows.append({"type": kind, **fields, "session_id": self._session, "uuid": uuid})
        return self

    def user(self, content: Any, agent: str | None = None, **fields: Any) -> Self:
        message = {"role": "user", "content": content}
        return self.line("user", message=message, parent_tool_use_id=agent, **fields)

    def result(self, call_id: str, value: str = "done", agent: str | None = None) -> Self:
        block = {"tool_use_id": call_id, "type": "tool_result", "content": value}
        return self.user([block], agent, tool_use_result={"stdout": value})

    def answer(self, name: str, *blocks: Any, agent: str | None = None, **fields: Any) -> Self:
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 40, "output_tokens": 1}
        about = {"model": "claude-test-1", "id": name, "type": "message", "role": "assistant"}
        usage["cache_read_input_tokens"] = 500
        message = {**about, "content": list(blocks), "stop_reason": None, "usage": usage}
        return self.line("assistant", message=message, parent_tool_use_id=agent, **fields)

    def event(self, kind: str, **fields: Any) -> Self:
        event = {"type": kind, **fields}
        return self.line("stream_event", event=event, parent_tool_use_id=None)

    def system(self, subtype: str, **fields: Any) -> Self:
        return self.line("system", subtype=subtype, **fields)

    def over(self, subtype: str = "success", **fields: Any) -> Self:
        told = {"num_turns": 1, "duration_ms": 1500, "total_cost_usd": 0.01, "result": "end"}
        failed = subtype != "success"
        return self.line("result", subtype=subtype, **{"is_error": failed, **told, **fields})


class CodexExec(Rows):
    """Lines of ``codex exec --json``."""

    def __init__(self) -> None:
        super().__init__()
        self.line("thread.started", thread_id="thread-1")
        self._numbers = itertools.count()

    def line(self, kind: str, **fields: Any) -> Self:
        self.rows.append({"type": kind, **fields})
        return self

    def turn(self) -> Self:
        return self.line("turn.started")

    def item(self, step: str, kind: str, item: str = "", **fields: Any) -> Self:
        named = item or f"item_{next(self._numbers)}"
        return self.line(f"item.{step}", item={"id": named, "type": kind, **fields})

    def says(self, value: str, kind: str = "agent_message") -> Self:
        return self.item("completed", kind, text=value)

    def runs(self, item: str, command: str = "ls") -> Self:
        going = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        return self.item("started", "command_execution", item, command=command, **going)

    def ran(self, item: str, output: str = "ok", code: int = 0) -> Self:
        status = "failed" if code else "completed"
        over = {"aggregated_output": output, "exit_code": code, "status": status}
        return self.item("completed", "command_execution", item, command="ls", **over)

    def over(self) -> Self:
        return self.line("turn.completed", usage={"input_tokens": 50, "output_tokens": 5})


class Atif:
    """The steps of an ATIF trajectory."""

    def __init__(self, **root: Any) -> None:
        self.steps: list[dict[str, Any]] = []
        agent = {"name": "terminus-2", "version": "2.0.0", "model_name": "test-model"}
        self.root = {"schema_version": "ATIF-v1.8", "session_id": "run-1", "agent": agent, **root}

    def step(self, source: str, message: Any, **fields: Any) -> Self:
        number = len(self.steps) + 1
        stamp = f"2026-01-01T10:00:{number:02d}Z"
        step = {"step_id": number, "timestamp": stamp, "source": source, "message": message}
        self.steps.append({**step, **fields})
        return self

    def acts(self, message: str, *calls: str, prompt: int = 0, **fields: Any) -> Self:
        """An agent's step; ``calls`` are names of calls."""
        run = {"function_name": "run"}
        made = [{"tool_call_id": one, **run, "arguments": {"keys": one}} for one in calls]
        told = {"prompt_tokens": prompt, "completion_tokens": 7, "cached_tokens": 5}
        if made:
            fields["tool_calls"] = made
        if prompt:
            fields["metrics"] = told
        return self.step("agent", message, **fields)

    def document(self, **root: Any) -> dict[str, Any]:
        return {**self.root, "steps": self.steps, **root}

    def data(self, **root: Any) -> bytes:
        return json.dumps(self.document(**root)).encode()


def seen(*results: tuple[str | None, Any], **fields: Any) -> dict[str, Any]:
    """An observation: a call's name, or None, and a content, for each result."""
    calls = [{} if call is None else {"source_call_id": call} for call, _ in results]
    contents = [{"content": content, **fields} for _, content in results]
    return {"results": [{**a, **b} for a, b in zip(calls, contents, strict=True)]}
