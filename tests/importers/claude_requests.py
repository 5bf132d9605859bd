"""A Claude Code session that holds the requests as they were sent, written by the program's rules.

The hash is written here once more, by the standard library alone, so that the importer is compared
with the rule and not with itself.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Self

from tests.importers.given import ClaudeCode

SYSTEM = [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be brief."}]
TOOLS = [{"name": "Bash", "description": "Runs it.", "input_schema": {"type": "object"}}]
REMINDER = {"type": "text", "text": "<system-reminder>\nBe kind.\n</system-reminder>"}
PARAMETERS = {"model": "claude-sonnet-4-5", "max_tokens": 32000}


def said(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def ask(words: str = "Say three steps") -> dict[str, Any]:
    return said([REMINDER, {"type": "text", "text": words}])


def hash_of(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key != "cache_control"}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def message_hash(message: dict[str, Any]) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return hash_of({**message, "content": blocks})


class Recording(ClaudeCode):
    """A session's lines, with the records of its requests; ``sent`` are the requests themselves."""

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.sent: list[dict[str, Any]] = []
        self._shapes: set[str] = set()
        self._blobs: set[str] = set()
        self._last: tuple[str, list[dict[str, Any]]] | None = None

    def sends(self, *messages: dict[str, Any], mark: tuple[Any, ...] = (), **fields: Any) -> Self:
        """Write a request of ``messages``; it begins with what it shares with the one before."""
        shape = {"system": SYSTEM, "tools": TOOLS}
        key = hash_of(shape)
        if key not in self._shapes:
            self._shapes.add(key)
            self.line("api-request-shape", shapeHash=key, shape=shape)
        hashes = [message_hash(one) for one in messages]
        for one, name in zip(messages, hashes, strict=True):
            if one["role"] != "assistant" and name not in self._blobs:
                self._blobs.add(name)
                self.line("api-request-blob", hash=name, message=one)
        base, keep = None, 0
        if self._last is not None:
            base, before = self._last
            while keep < min(len(before), len(hashes)) and before[keep] == messages[keep]:
                keep += 1
        request = f"request-{len(self.sent)}"
        marks = [{"path": list(mark), "value": {"type": "ephemeral"}}] if mark else []
        row: dict[str, Any] = {"id": request, "params": PARAMETERS}
        row |= {"base": base} if keep else {}
        row |= {"keep": keep, "tail": hashes[keep:], "shapeHash": key, "cacheControl": marks}
        about = {"requestDigest": "0" * 64, "querySource": "sdk"}
        self.line("api-request", **{**row, **about, **fields})
        self._last = (request, list(messages))
        self.sent.append({**PARAMETERS, **shape, "messages": list(messages)})
        return self

    def answers(self, message_id: str, *blocks: dict[str, Any], **message: Any) -> Self:
        """Write an answer to the last request."""
        self.answer(message_id, *blocks, **message)
        self.rows[-1]["requestRef"] = f"request-{len(self.sent) - 1}"
        return self
