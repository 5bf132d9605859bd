"""Small synthetic transcripts, and what is the same in every import of one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from eventctx.log.codec import raw_of
from eventctx.log.record import Record

NOW = 1_900_000_000_000_000_000
SESSION = "11111111-2222-3333-4444-555555555555"


CHAT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]


class Rows:
    """The lines of a file, as values."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def data(self) -> bytes:
        return jsonl(self.rows)


class ClaudeCode(Rows):
    """Lines of a Claude Code session, a second apart."""

    def __init__(self, session: str = SESSION, **common: Any) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._common = {"isSidechain": False, "sessionId": session, **common}

    def line(self, kind: str, **fields: Any) -> Self:
        number = next(self._numbers)
        stamp = f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.500Z"
        row = {**self._common, "type": kind, **fields, "uuid": f"u{number}", "timestamp": stamp}
        self.rows.append({key: value for key, value in row.items() if value is not ...})
        return self

    def user(self, content: Any, **fields: Any) -> Self:
        return self.line("user", message={"role": "user", "content": content}, **fields)

    def says(self, prompt: str, answer: str) -> Self:
        """A prompt, and the answer that ends its turn."""
        self.user(prompt)
        return self.answer(f"m{len(self.rows)}", text(answer), stop_reason="end_turn")

    def result(self, call: str, text: Any = "done", **fields: Any) -> Self:
        block = {"tool_use_id": call, "type": "tool_result", "content": text, **fields}
        return self.user([block], toolUseResult={"stdout": text})

    def answer(self, message_id: str, *blocks: dict[str, Any], **message: Any) -> Self:
        cached = {"cache_creation_input_tokens": 40, "cache_read_input_tokens": 500}
        usage = {"input_tokens": 3, **cached, "output_tokens": message.pop("output", 1)}
        about = {"model": "claude-test-1", "id": message_id, "type": "message", "role": "assistant"}
        body = {**about, "content": list(blocks), "stop_reason": None, "usage": usage, **message}
        return self.line("assistant", message=body, requestId=f"req-{message_id}")

    def progress(self, **data: Any) -> Self:
        return self.line("progress", data={"type": "hook_progress", **data}, parentToolUseID="t1")

    def system(self, subtype: str, **fields: Any) -> Self:
        return self.line("system", subtype=subtype, **fields)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def thinking(value: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": value, "signature": signature}


def call(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def gauges() -> ClaudeCode:
    """Two results alone, and two in one message."""
    log = ClaudeCode().user("read")
    for number in (1, 2):
        log.answer(f"m{number}", call(f"t{number}"), stop_reason="tool_use")
        log.result(f"t{number}", "bar " * 90)
    log.answer("m3", call("t3"), call("t4"), stop_reason="tool_use")
    block = {"type": "tool_result", "content": "bar " * 90}
    log.user([{**block, "tool_use_id": name} for name in ("t3", "t4")])
    return log.answer("m5", text("all read"), stop_reason="end_turn")


class Codex(Rows):
    """Lines of a rollout."""

    def __init__(self, **meta: Any) -> None:
        super().__init__()
        base = {"text": "You are a test."}
        self.line("session_meta", id="codex-1", base_instructions=base, **meta)

    def line(self, kind: str, **payload: Any) -> Self:
        stamp = f"2026-01-01T10:00:{len(self.rows):02d}.000Z"
        self.rows.append({"timestamp": stamp, "type": kind, "payload": payload})
        return self

    def item(self, kind: str, **fields: Any) -> Self:
        return self.line("response_item", type=kind, **fields)

    def says(self, role: str, value: str) -> Self:
        kind = "output_text" if role == "assistant" else "input_text"
        return self.item("message", role=role, content=[{"type": kind, "text": value}])

    def calls(self, call_id: str) -> Self:
        return self.item("function_call", name="shell", arguments='{"a": 1}', call_id=call_id)

    def output(self, call_id: str) -> Self:
        return self.item("function_call_output", call_id=call_id, output="ok")

    def event(self, kind: str, **fields: Any) -> Self:
        return self.line("event_msg", type=kind, **fields)

    def counted(self, prompt: int, total: int) -> Self:
        last = {"input_tokens": prompt, "cached_input_tokens": 5, "output_tokens": 7}
        usage = {"last_token_usage": last, "total_token_usage": {"input_tokens": total}}
        return self.event("token_count", info={**usage, "model_context_window": 1000})

    def payloads(self) -> list[Any]:
        """The items, without the head of the session."""
        return [row["payload"] for row in self.rows[1:]]


def jsonl(rows: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def salt(size: int) -> bytes:
    return b"s" * size


def put(path: Path, data: bytes) -> Path:
    """Write a file, in a folder that need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def raw_bytes(found: list[Record]) -> bytes:
    """What was kept of the lines besides the messages."""
    return b"\n".join(raw_of(one) or b"" for one in found if one.type == "import:raw")


def story(found: list[Record]) -> tuple[list[Any], bytes]:
    """The parts that are equal in two imports of the same lines.

    Only the places where raw lines are cut into batches may differ, so these lines are joined.
    """
    others = [r for r in found if r.type != "import:raw"]
    about = [(r.id, r.type, r.turn_id, r.span_id, r.iteration) for r in others]
    return [*about, *[[body.data for body in r.bodies] for r in others]], raw_bytes(found)
