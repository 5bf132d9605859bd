"""The rules of the real APIs for a request's messages, as far as they matter here."""

from __future__ import annotations

from typing import Any

from tests.orchestrators.providers.server import ReceivedRequest
from tests.transcripts import refusal

_CHAT_KEYS = frozenset(
    ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "reasoning_content")
)


def refused(request: ReceivedRequest) -> str | None:
    """The error with which the API at this path refuses the request; None if it does not."""
    if request.path.startswith("/v1/messages"):
        return _anthropic(request.body)
    if request.path.endswith("/responses"):
        return _responses(request.body)
    return _chat(request.body)


def _anthropic(body: dict[str, Any]) -> str | None:
    open_calls: set[str] = set()
    for place, message in enumerate(body["messages"]):
        if message.keys() != {"role", "content"} or message["role"] not in ("user", "assistant"):
            return f"messages.{place}: {sorted(message)} of role {message['role']}"
        content = message["content"]
        if not content:
            return f"messages.{place}: must have non-empty content"
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "text" and not block["text"].strip():
                return f"messages.{place}: text content blocks must be non-empty"
            if None in block.values():
                return f"messages.{place}: null in {block['type']}"
        if message["role"] == "assistant" and blocks[-1]["type"].endswith("thinking"):
            return f"messages.{place}: The final block in an assistant message cannot be `thinking`"
        answered = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if answered != open_calls:
            return f"messages.{place}: {open_calls} called, {answered} answered in one message"
        open_calls = {b["id"] for b in blocks if b["type"] == "tool_use"}
    return refusal(body["messages"]) or _begins(body["messages"])


def _begins(messages: list[dict[str, Any]]) -> str | None:
    return None if messages and messages[0]["role"] == "user" else "first message must be a user's"


def _chat(body: dict[str, Any]) -> str | None:
    for place, row in enumerate(body["messages"]):
        if unknown := row.keys() - _CHAT_KEYS:
            return f"messages.{place}: {sorted(unknown)} unexpected"
        if "tool_calls" in row and not row["tool_calls"]:
            return f"messages.{place}.tool_calls: [] is too short"
        if row["content"] is None and "tool_calls" not in row and "refusal" not in row:
            return f"messages.{place}.content: expected a string, got null"
    return refusal(body["messages"])


def _responses(body: dict[str, Any]) -> str | None:
    if body["store"] is not False:
        return "store: these tests keep nothing at the server"
    for place, item in enumerate(body["input"]):
        if None in item.values() or "metadata" in item:
            return f"input[{place}]: null or unknown parameter in {sorted(item)}"
        if item.get("type") == "reasoning" and "encrypted_content" not in item:
            return f"Item with id {item['id']!r} not found. Items are not persisted"
        following = body["input"][place + 1 : place + 2]
        if item.get("type") == "reasoning" and not any(map(_is_of_model, following)):
            return f"Item {item['id']!r} was provided without its required following item"
    # The API puts such an item in place of older ones, so a conversation may begin with it.
    return refusal([item for item in body["input"] if item.get("type") != "compaction"])


def _is_of_model(item: dict[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("reasoning", "function_call")
