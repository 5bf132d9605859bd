"""Small synthetic sessions of Gemini CLI, Qwen Code and opencode."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from tests.importers.given import Rows, put

CHAT = "aaaaaaaa-0000-4000-8000-000000000001"


def says(value: str, **part: Any) -> dict[str, Any]:
    return {"text": value, **part}


def thought(value: str) -> dict[str, Any]:
    return says(value, thought=True)


def calls(call_id: str | None, name: str = "read_file", **args: Any) -> dict[str, Any]:
    own = {} if call_id is None else {"id": call_id}
    return {"functionCall": {**own, "name": name, "args": args}}


def answers(call_id: str | None, value: str = "done", name: str = "read_file") -> dict[str, Any]:
    own = {} if call_id is None else {"id": call_id}
    return {"functionResponse": {**own, "name": name, "response": {"output": value}}}


class Gemini(Rows):
    """Lines of a chat of Gemini CLI; ``document`` is the form of earlier releases."""

    def __init__(self, session: str = CHAT, **head: Any) -> None:
        super().__init__()
        self.head = {"sessionId": session, "projectHash": "f00d", "startTime": _stamp(0), **head}
        self.rows.append(self.head)

    def record(self, kind: str, content: Any, own: str = "", **fields: Any) -> Self:
        number = len(self.rows)
        row = {"id": own or f"m{number}", "timestamp": _stamp(number), "type": kind}
        self.rows.append({**row, "content": content, **fields})
        return self

    def user(self, value: str, own: str = "") -> Self:
        return self.record("user", [says(value)], own)

    def answer(self, value: str, *tools: dict[str, Any], own: str = "", **fields: Any) -> Self:
        tokens = {"input": 100, "output": 7, "cached": 40, "thoughts": 3, "tool": 0, "total": 110}
        about: dict[str, Any] = {"model": "gemini-test", "tokens": tokens, **fields}
        if tools:
            about["toolCalls"] = list(tools)
        return self.record("gemini", value, own, **about)

    def results(self, *parts: dict[str, Any], own: str = "") -> Self:
        return self.record("user", list(parts), own)

    def sets(self, **values: Any) -> Self:
        self.rows.append({"$set": values})
        return self

    def anew(self, *records: dict[str, Any]) -> Self:
        return self.sets(messages=list(records))

    def rewind(self, own: str) -> Self:
        self.rows.append({"$rewindTo": own})
        return self

    def document(self) -> bytes:
        return json.dumps({**self.head, "messages": self.rows[1:]}, indent=2).encode()


def tool(call_id: str, value: str | None = "done", **fields: Any) -> dict[str, Any]:
    """A call in a record of Gemini CLI, with its result if it ended."""
    result = None if value is None else [answers(call_id, value)]
    about = {"id": call_id, "name": "read_file", "args": {"file_path": "a"}, "result": result}
    return {**about, "status": "success", "timestamp": _stamp(30), "displayName": "Read", **fields}


def told(own: str, *parts: dict[str, Any], kind: str = "user") -> dict[str, Any]:
    """A record of a history that Gemini CLI writes anew."""
    return {"id": own, "timestamp": _stamp(40), "type": kind, "content": list(parts)}


class Qwen(Rows):
    """Records of a chat of Qwen Code, each the child of the one before it."""

    def __init__(self, session: str = CHAT, **common: Any) -> None:
        super().__init__()
        self.last: str | None = None
        self.common = {"sessionId": session, "cwd": "/w", "version": "0.20.0", **common}

    def record(self, kind: str, **fields: Any) -> Self:
        number = len(self.rows)
        row = {"uuid": f"u{number}", "parentUuid": self.last, "timestamp": _stamp(number)}
        self.rows.append({**row, **self.common, "type": kind, **fields})
        self.last = self.rows[-1]["uuid"]
        return self

    def back_to(self, own: str | None) -> Self:
        self.last = own
        return self

    def user(self, value: str, **fields: Any) -> Self:
        return self.record("user", message={"role": "user", "parts": [says(value)]}, **fields)

    def answer(self, *parts: dict[str, Any], **fields: Any) -> Self:
        usage = {"promptTokenCount": 100, "candidatesTokenCount": 9, "thoughtsTokenCount": 4}
        usage |= {"cachedContentTokenCount": 60, "totalTokenCount": 109}
        about = {"model": "qwen-test", "usageMetadata": usage, "contextWindowSize": 1000, **fields}
        return self.record("assistant", message={"role": "model", "parts": list(parts)}, **about)

    def result(self, call_id: str, value: str = "done", status: str = "success") -> Self:
        message = {"role": "user", "parts": [answers(call_id, value)]}
        about = {"callId": call_id, "status": status}
        return self.record("tool_result", message=message, toolCallResult=about)

    def system(self, subtype: str, **payload: Any) -> Self:
        return self.record("system", subtype=subtype, systemPayload=payload)

    def compressed(self, *contents: tuple[str, dict[str, Any]], tokens: int = 900) -> Self:
        history = [{"role": role, "parts": [part]} for role, part in contents]
        info = {"originalTokenCount": tokens, "newTokenCount": 90, "compressionStatus": 1}
        return self.system("chat_compression", info=info, compressedHistory=history)


class OpenCode:
    """A session of opencode: its messages with their parts, a second apart."""

    def __init__(self, session: str = "ses_1", **head: Any) -> None:
        about = {"id": session, "projectID": "proj", "directory": "/w", "title": "Jars"}
        self.head = {**about, "version": "1.1.0", "time": {"created": _millis(0)}, **head}
        self.messages: list[dict[str, Any]] = []

    @property
    def _session(self) -> str:
        return str(self.head["id"])

    def message(self, role: str, *parts: dict[str, Any], **info: Any) -> Self:
        number = len(self.messages) + 1
        own = f"msg_{number:02d}"
        about = {"id": own, "sessionID": self._session, "role": role}
        of = {"messageID": own, "sessionID": self._session}
        names = [f"prt_{number:02d}_{index}" for index in range(len(parts))]
        listed = [{"id": name, **of, **one} for name, one in zip(names, parts, strict=True)]
        time = {"created": _millis(number)}
        if role == "assistant":
            time["completed"] = time["created"] + 500
        self.messages.append({"info": {"time": time, **about, **info}, "parts": listed})
        return self

    def user(self, *parts: Any, **info: Any) -> Self:
        told = [{"type": "text", "text": one} if isinstance(one, str) else one for one in parts]
        return self.message("user", *told, **info)

    def answer(self, *parts: dict[str, Any], **info: Any) -> Self:
        tokens = {"total": 170, "input": 100, "output": 7, "reasoning": 3}
        tokens |= {"cache": {"read": 40, "write": 20}}
        about = {"modelID": "open-test", "providerID": "test", "tokens": tokens, "finish": "stop"}
        start, end = {"type": "step-start"}, {"type": "step-finish", "tokens": tokens}
        return self.message("assistant", start, *parts, end, **{**about, **info})

    def export(self) -> bytes:
        return json.dumps({"info": self.head, "messages": self.messages}, indent=2).encode()

    def storage(self, root: Path) -> Path:
        """Write the session into a storage; returns its own file."""
        own = _write(root / "session" / "proj" / f"{self._session}.json", self.head)
        for one in self.messages:
            name = one["info"]["id"]
            _write(root / "message" / self._session / f"{name}.json", one["info"])
            for part in one["parts"]:
                _write(root / "part" / name / f"{part['id']}.json", part)
        return own

    def database(self, path: Path) -> Path:
        """Add the session to a database of opencode."""
        with closing(sqlite3.connect(path)) as database:
            for table, columns in _TABLES.items():
                database.execute(f"create table if not exists {table} ({columns})")
            head = [self._session, "proj", self.head.get("parentID"), "/w", "Jars"]
            head += [json.dumps(self.head.get("revert")), _millis(0), _millis(0)]
            database.execute("insert into session values (?, ?, ?, ?, ?, ?, ?, ?)", head)
            for one in self.messages:
                info = {k: v for k, v in one["info"].items() if k not in ("id", "sessionID")}
                own = one["info"]["id"] + self._session
                row = (own, self._session, info["time"]["created"], json.dumps(info))
                database.execute("insert into message values (?, ?, ?, ?)", row)
                for part in one["parts"]:
                    data = {k: v for k, v in part.items() if k not in ("id", "messageID")}
                    row = (part["id"] + self._session, own, self._session, json.dumps(data))
                    database.execute("insert into part values (?, ?, ?, ?)", row)
            database.commit()
        return path


_TABLES = {
    "session": "id, project_id, parent_id, directory, title, revert, time_created, time_updated",
    "message": "id, session_id, time_created, data",
    "part": "id, message_id, session_id, data",
}


def ran(call_id: str, output: str = "done", **state: Any) -> dict[str, Any]:
    """A part with a tool of opencode that has ended."""
    about: dict[str, Any] = {"status": "completed", "input": {"path": "a"}, "output": output}
    about |= {"metadata": {}, "time": {"start": _millis(1), "end": _millis(1)}}
    return {"type": "tool", "callID": call_id, "tool": "read", "state": {**about, **state}}


def _write(path: Path, value: dict[str, Any]) -> Path:
    return put(path, json.dumps(value, indent=2).encode())


def _stamp(number: int) -> str:
    return f"2026-01-01T10:{number // 60:02d}:{number % 60:02d}.000Z"


def _millis(number: int) -> int:
    return 1_767_261_600_000 + number * 1000
