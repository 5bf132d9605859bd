"""Small synthetic sessions of pi, OpenHands and Amplifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.importers.given import call, jsonl, text, thinking


class Pi:
    """Lines of a pi session; with ``tree`` they name themselves and their parents."""

    def __init__(self, *, tree: bool = False, **header: Any) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tree = tree
        self.leaf: str | None = None
        version = {"version": 3} if tree else {}
        self._put(type="session", id="pi-1", cwd="/w", **version, **header)

    def _put(self, **row: Any) -> Pi:
        stamp = f"2026-01-01T10:00:{len(self.rows):02d}.000Z"
        self.rows.append({"timestamp": stamp, **row})
        return self

    def entry(self, kind: str, **fields: Any) -> Pi:
        if not self.tree:
            return self._put(type=kind, **fields)
        name = f"e{len(self.rows)}"
        row = {"type": kind, "id": name, "parentId": self.leaf, **fields}
        self.leaf = row["id"]
        return self._put(**row)

    def back_to(self, entry: str | None) -> Pi:
        self.leaf = entry
        return self

    def says(self, role: str, content: Any, **message: Any) -> Pi:
        return self.entry("message", message={"role": role, "content": content, **message})

    def user(self, value: str) -> Pi:
        return self.says("user", [text(value)])

    def answer(self, *blocks: Any, prompt: int = 10, stop: str = "stop", **message: Any) -> Pi:
        usage = {"input": prompt, "output": 7, "cacheRead": 2 * prompt, "cacheWrite": prompt}
        about = {"provider": "anthropic", "model": "m", "usage": usage, "stopReason": stop}
        return self.says("assistant", list(blocks), **{**about, **message})

    def result(self, call_id: Any, value: str = "done", **message: Any) -> Pi:
        fields = {"toolCallId": call_id, "toolName": "bash", "isError": False, **message}
        return self.says("toolResult", [text(value)], **fields)

    def data(self) -> bytes:
        return jsonl(self.rows)


def pi_call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": arguments}


class OpenHands:
    """Events of a conversation, a second apart, with the ids e0, e1, …"""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def event(self, kind: str, source: str = "agent", **fields: Any) -> OpenHands:
        number = len(self.rows)
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.250000"
        row = {"id": f"e{number}", "timestamp": stamp, "source": source, "kind": kind}
        self.rows.append({**row, **fields})
        return self

    def system(self, value: str = "be good") -> OpenHands:
        return self.event("SystemPromptEvent", system_prompt=text(value), tools=[{"kind": "T"}])

    def user(self, value: str) -> OpenHands:
        message = {"role": "user", "content": [text(value)]}
        return self.event("MessageEvent", "user", llm_message=message, extended_content=[])

    def says(self, value: str) -> OpenHands:
        message = {"role": "assistant", "content": [text(value)]}
        response = f"r{len(self.rows)}"
        return self.event("MessageEvent", llm_message=message, llm_response_id=response)

    def action(self, call_id: str, response: str, **fields: Any) -> OpenHands:
        call = {"id": call_id, "name": "run", "arguments": '{"a": 1}', "origin": "completion"}
        about = {"tool_name": "run", "tool_call_id": call_id, "tool_call": call, "thought": []}
        return self.event("ActionEvent", llm_response_id=response, **{**about, **fields})

    def seen(self, call_id: str, value: str = "done", **observation: Any) -> OpenHands:
        content = {"kind": "O", "content": [text(value)], **observation}
        about = {"tool_name": "run", "tool_call_id": call_id, "action_id": "e0"}
        return self.event("ObservationEvent", "environment", observation=content, **about)

    def condensed(self, *forgotten: Any, **fields: Any) -> OpenHands:
        return self.event("Condensation", forgotten_event_ids=list(forgotten), **fields)

    def data(self) -> bytes:
        return jsonl(self.rows)

    def folder(self, path: Path) -> Path:
        """Write a file for each event, as the program does."""
        path.mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(self.rows):
            (path / f"event-{number:05d}-{row['id']}.json").write_bytes(json.dumps(row).encode())
        return path


class AmplifierLog:
    """Lines of an ``events.jsonl``; ``request`` sends all messages so far."""

    def __init__(self, session: str = "amp-1") -> None:
        self.rows: list[dict[str, Any]] = []
        self.session = session
        self.talk: list[dict[str, Any]] = []
        self.event("session:start", parent_id=None)

    def event(self, name: str, top: dict[str, Any] | None = None, **data: Any) -> AmplifierLog:
        number = len(self.rows)
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.123456789+00:00"
        schema = {"name": "amplifier.log", "ver": "1.0.0"}
        row = {"ts": stamp, "lvl": "INFO", "schema": schema, "event": name}
        self.rows.append({**row, "session_id": self.session, **(top or {}), "data": data})
        return self

    def prompt(self, value: str) -> AmplifierLog:
        self.talk.append({"role": "user", "content": value})
        return self.event("prompt:submit", prompt=value)

    def request(self, *passing: dict[str, Any], **raw: Any) -> AmplifierLog:
        """A request: the messages so far, and those that a hook adds to this request alone."""
        sent = {"model": "m", "system": [text("be good")], "messages": [*self.talk, *passing]}
        self.event("provider:request", provider="anthropic")
        return self.event("llm:request", provider="anthropic", model="m", raw={**sent, **raw})

    def response(self, *blocks: dict[str, Any], prompt: int = 100, write: int = 7) -> AmplifierLog:
        self.talk.append({"role": "assistant", "content": list(blocks)})
        usage = {"input_tokens": prompt, "cache_write_tokens": write, "output_tokens": 5}
        raw = {"id": "msg", "role": "assistant", "content": list(blocks), "stop_reason": "end_turn"}
        return self.event("llm:response", model="m", usage=usage, raw=raw)

    def tool(self, call_id: str, output: str = "ok", **result: Any) -> AmplifierLog:
        payload = {"error": None, "output": output, "success": True, **result}
        block = {"type": "tool_result", "tool_use_id": call_id, "content": json.dumps(payload)}
        self.talk.append({"role": "user", "content": [block]})
        self.event("tool:pre", tool_call_id=call_id, tool_name="bash")
        return self.event("tool:post", tool_call_id=call_id, tool_name="bash", result=payload)

    def data(self) -> bytes:
        return jsonl(self.rows)


def openhands_talk() -> OpenHands:
    log = OpenHands().system().user("go").action("c1", "r1").seen("c1", "listing")
    return log.says("done")


def passing_reminder() -> dict[str, Any]:
    return {"role": "user", "content": [text("<system-reminder>the time</system-reminder>")]}


def amplifier_talk() -> AmplifierLog:
    log = AmplifierLog().prompt("go").request(passing_reminder())
    log.response(thinking("hm", "sig="), call("t1")).tool("t1").request()
    return log.response(text("done")).event("orchestrator:complete", {"status": "success"})
