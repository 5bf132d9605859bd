"""Small synthetic sessions of pi, OpenHands and Amplifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from tests.importers.given import Rows, call, put, text, thinking


class Pi(Rows):
    """Lines of a pi session; with ``tree`` they name themselves and their parents."""

    def __init__(self, *, tree: bool = False, **header: Any) -> None:
        super().__init__()
        self.tree = tree
        self.leaf: str | None = None
        version = {"version": 3} if tree else {}
        self._put(type="session", id="pi-1", cwd="/w", **version, **header)

    def _put(self, **row: Any) -> Self:
        stamp = f"2026-01-01T10:00:{len(self.rows):02d}.000Z"
        self.rows.append({"timestamp": stamp, **row})
        return self

    def entry(self, kind: str, **fields: Any) -> Self:
        if not self.tree:
            return self._put(type=kind, **fields)
        name = f"e{len(self.rows)}"
        row = {"type": kind, "id": name, "parentId": self.leaf, **fields}
        self.leaf = row["id"]
        return self._put(**row)

    def back_to(self, entry: str | None) -> Self:
        self.leaf = entry
        return self

    def says(self, role: str, content: Any, **message: Any) -> Self:
        return self.entry("message", message={"role": role, "content": content, **message})

    def user(self, value: str) -> Self:
        return self.says("user", [text(value)])

    def answer(self, *blocks: Any, prompt: int = 10, stop: str = "stop", **message: Any) -> Self:
        usage = {"input": prompt, "output": 7, "cacheRead": 2 * prompt, "cacheWrite": prompt}
        about = {"provider": "anthropic", "model": "m", "usage": usage, "stopReason": stop}
        return self.says("assistant", list(blocks), **{**about, **message})

    def result(self, call_id: Any, value: str = "done", **message: Any) -> Self:
        fields = {"toolCallId": call_id, "toolName": "bash", "isError": False, **message}
        return self.says("toolResult", [text(value)], **fields)


def pi_call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": "bash", "arguments": arguments}


class OpenHands(Rows):
    """Events of a conversation, a second apart, with the ids e0, e1, …"""

    def event(self, kind: str, source: str = "agent", **fields: Any) -> Self:
        number = len(self.rows)
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.250000"
        row = {"id": f"e{number}", "timestamp": stamp, "source": source, "kind": kind}
        self.rows.append({**row, **fields})
        return self

    def system(self, value: str = "be good") -> Self:
        return self.event("SystemPromptEvent", system_prompt=text(value), tools=[{"kind": "T"}])

    def user(self, value: str) -> Self:
        message = {"role": "user", "content": [text(value)]}
        return self.event("MessageEvent", "user", llm_message=message, extended_content=[])

    def says(self, value: str) -> Self:
        message = {"role": "assistant", "content": [text(value)]}
        response = f"r{len(self.rows)}"
        return self.event("MessageEvent", llm_message=message, llm_response_id=response)

    def action(self, call_id: str, response: str, **fields: Any) -> Self:
        call = {"id": call_id, "name": "run", "arguments": '{"a": 1}', "origin": "completion"}
        about = {"tool_name": "run", "tool_call_id": call_id, "tool_call": call, "thought": []}
        return self.event("ActionEvent", llm_response_id=response, **{**about, **fields})

    def seen(self, call_id: str, value: str = "done", **observation: Any) -> Self:
        content = {"kind": "O", "content": [text(value)], **observation}
        about = {"tool_name": "run", "tool_call_id": call_id, "action_id": "e0"}
        return self.event("ObservationEvent", "environment", observation=content, **about)

    def condensed(self, *forgotten: Any, **fields: Any) -> Self:
        return self.event("Condensation", forgotten_event_ids=list(forgotten), **fields)

    def folder(self, path: Path) -> Path:
        """Write a file for each event, as the program does."""
        for number, row in enumerate(self.rows):
            put(path / f"event-{number:05d}-{row['id']}.json", json.dumps(row).encode())
        return path


class AmplifierLog(Rows):
    """Lines of an ``events.jsonl``; ``request`` sends all messages so far."""

    def __init__(self, session: str = "amp-1") -> None:
        super().__init__()
        self.session = session
        self.talk: list[dict[str, Any]] = []
        self.event("session:start", parent_id=None)

    def event(self, name: str, top: dict[str, Any] | None = None, **data: Any) -> Self:
        number = len(self.rows)
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.123456789+00:00"
        schema = {"name": "amplifier.log", "ver": "1.0.0"}
        row = {"ts": stamp, "lvl": "INFO", "schema": schema, "event": name}
        self.rows.append({**row, "session_id": self.session, **(top or {}), "data": data})
        return self

    def prompt(self, value: str) -> Self:
        self.talk.append({"role": "user", "content": value})
        return self.event("prompt:submit", prompt=value)

    def request(self, *passing: dict[str, Any], **raw: Any) -> Self:
        """A request: the messages so far, and those that a hook adds to this request alone."""
        sent = {"model": "m", "system": [text("be good")], "messages": [*self.talk, *passing]}
        self.event("provider:request", provider="anthropic")
        return self.event("llm:request", provider="anthropic", model="m", raw={**sent, **raw})

    def response(self, *blocks: dict[str, Any], prompt: int = 100, write: int = 7) -> Self:
        self.talk.append({"role": "assistant", "content": list(blocks)})
        usage = {"input_tokens": prompt, "cache_write_tokens": write, "output_tokens": 5}
        raw = {"id": "msg", "role": "assistant", "content": list(blocks), "stop_reason": "end_turn"}
        return self.event("llm:response", model="m", usage=usage, raw=raw)

    def tool(self, call_id: str, output: str = "ok", **result: Any) -> Self:
        payload = {"error": None, "output": output, "success": True, **result}
        block = {"type": "tool_result", "tool_use_id": call_id, "content": json.dumps(payload)}
        self.talk.append({"role": "user", "content": [block]})
        self.event("tool:pre", tool_call_id=call_id, tool_name="bash")
        return self.event("tool:post", tool_call_id=call_id, tool_name="bash", result=payload)


def openhands_talk() -> OpenHands:
    log = OpenHands().system().user("go").action("c1", "r1").seen("c1", "listing")
    return log.says("done")


def passing_reminder() -> dict[str, Any]:
    return {"role": "user", "content": [text("<system-reminder>the time</system-reminder>")]}


def amplifier_talk() -> AmplifierLog:
    log = AmplifierLog().prompt("go").request(passing_reminder())
    log.response(thinking("hm", "sig="), call("t1")).tool("t1").request()
    return log.response(text("done")).event("orchestrator:complete", {"status": "success"})


class Copilot(Rows):
    """Events of GitHub Copilot CLI, a second apart; ``agent`` names the subagent they are of."""

    def __init__(self, session: str = "cp-1", **start: Any) -> None:
        super().__init__()
        self.of: dict[str, Any] = {}
        self.event("session.start", sessionId=session, producer="copilot-agent", **start)

    def event(self, name: str, /, **data: Any) -> Self:
        number = len(self.rows)
        about = {"id": f"e{number}", "parentId": f"e{number - 1}" if number else None}
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.000Z"
        self.rows.append({"type": name, "data": data, **about, "timestamp": stamp, **self.of})
        return self

    def agent(self, name: str | None) -> Self:
        self.of = {} if name is None else {"agentId": name}
        return self

    def user(self, value: str, **data: Any) -> Self:
        return self.event("user.message", content=value, **data)

    def system(self, value: str = "Be brief.", **data: Any) -> Self:
        return self.event("system.message", role="system", content=value, **data)

    def answer(self, value: str, *calls: str, **data: Any) -> Self:
        about = [{"name": "bash", "arguments": {"command": f"run {one}"}} for one in calls]
        asked = [{"toolCallId": one, **rest} for one, rest in zip(calls, about, strict=True)]
        fields = {"apiCallId": f"api-{len(self.rows)}", "model": "m", **data}
        return self.event("assistant.message", content=value, toolRequests=asked, **fields)

    def used(self, call: str, prompt: int, **counts: int) -> Self:
        usage = {"apiCallId": call, "inputTokens": prompt, "outputTokens": 7, **counts}
        return self.event("session.usage_record", usage=usage)

    def result(self, call_id: str, value: str = "done", **data: Any) -> Self:
        fields = {"success": True, "result": {"content": value}, **data}
        return self.event("tool.execution_complete", toolCallId=call_id, **fields)

    def compacted(self, summary: str, **data: Any) -> Self:
        fields = {"success": True, "preCompactionTokens": 900, "trigger": "threshold", **data}
        return self.event("session.compaction_complete", summaryContent=summary, **fields)


class Cursor(Rows):
    """Lines of one of Cursor's transcripts."""

    def says(self, role: str, *blocks: Any) -> Self:
        self.rows.append({"role": role, "message": {"content": list(blocks)}})
        return self

    def user(self, value: str) -> Self:
        return self.says("user", text(f"<user_query>\n{value}\n</user_query>"))

    def answer(self, *blocks: Any) -> Self:
        return self.says("assistant", *blocks)

    def ended(self, status: str = "success") -> Self:
        self.rows.append({"type": "turn_ended", "status": status})
        return self


def cursor_call(**arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "name": "Shell", "input": arguments}


class ClineTask:
    """A task of Cline's or Roo Code's, ten seconds a message: its messages and its screen."""

    def __init__(self, *, roo: bool = False) -> None:
        self.roo = roo
        self.rows: list[dict[str, Any]] = []
        self.screen: list[dict[str, Any]] = []
        self.range: list[int] | None = None
        self.clock = 1_760_000_000_000

    def _show(self, **row: Any) -> None:
        self.clock += 1000
        shown = {"ts": self.clock, "type": "say", **row}
        if not self.roo:
            shown["conversationHistoryIndex"] = len(self.rows) - 1
            if self.range is not None:
                shown["conversationHistoryDeletedRange"] = self.range
        self.screen.append(shown)

    def _store(self, role: str, content: Any, **fields: Any) -> Self:
        self.clock += 1000
        stamp = {"ts": self.clock} if self.roo else {}
        self.rows.append({"role": role, "content": content, **stamp, **fields})
        return self

    def user(self, *blocks: Any, leaves_out: list[int] | None = None, **counts: int) -> Self:
        """A prompt, and the request that it begins; counts of 0 are those of a failed one."""
        used = {"tokensIn": 10, "tokensOut": 7, "cacheWrites": 20, "cacheReads": 30, **counts}
        self._show(say="api_req_started", text=json.dumps({"request": "…", **used}))
        self._store("user", list(blocks))
        self.range = leaves_out or self.range
        self._show(say="text", text="shown while the answer comes")
        return self

    def answer(self, *blocks: Any) -> Self:
        model = {"modelId": "m", "providerId": "anthropic", "mode": "act"}
        about = {} if self.roo else {"modelInfo": model, "metrics": {"tokens": {"prompt": 10}}}
        return self._store("assistant", list(blocks), **about)

    def condensed(self, mark: str, summary: str) -> Self:
        """Roo Code's summary: it stands for all rows before."""
        for row in self.rows:
            row.setdefault("condenseParent", mark)
        about = {"condenseId": mark, "prevContextTokens": 900}
        self._show(say="condense_context", contextCondense=about)
        return self._store("user", [text(summary)], isSummary=True, condenseId=mark)

    def truncated(self, mark: str, first: int, last: int) -> Self:
        """Roo Code's truncation: these rows are hidden, and a row says so between them."""
        for row in self.rows[first : last + 1]:
            row["truncationParent"] = mark
        about = {"truncationId": mark, "prevContextTokens": 800}
        self._show(say="sliding_window_truncation", contextTruncation=about)
        marker = {"role": "user", "content": "[hidden]", "isTruncationMarker": True}
        stamp = self.rows[last + 1]["ts"] - 1 if len(self.rows) > last + 1 else self.clock
        self.rows.insert(last + 1, {**marker, "truncationId": mark, "ts": stamp})
        return self

    def write(self, folder: Path, **more: Any) -> Path:
        """The folder of the task; ``more`` are further files by their names without an ending."""
        own = "api_conversation_history"
        for name, value in {own: self.rows, "ui_messages": self.screen, **more}.items():
            put(folder / f"{name}.json", json.dumps(value).encode())
        return folder / f"{own}.json"
