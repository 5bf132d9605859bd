"""Small cassettes, as VCR writes them."""

from __future__ import annotations

import json
from typing import Any

import yaml

ANTHROPIC = "https://api.anthropic.com/v1/messages?beta=true"
CHAT = "https://api.openai.com/v1/chat/completions"
RESPONSES = "https://api.openai.com/v1/responses"


class Tape:
    """Recorded requests and their answers."""

    def __init__(self, url: str = ANTHROPIC) -> None:
        self.rows: list[dict[str, Any]] = []
        self.url = url

    def exchange(self, sent: Any, answered: Any, **options: Any) -> Tape:
        """An exchange with bodies as values."""
        return self.raw({"parsed_body": sent}, {"parsed_body": answered}, **options)

    def raw(
        self, sent: dict[str, Any], answered: dict[str, Any], *, url: str = "", status: int = 200
    ) -> Tape:
        """An exchange with bodies in the form in which a recorder has them."""
        request = {"headers": {"x-api-key": ["secret"]}, "method": "POST", "uri": url or self.url}
        date = ["Mon, 05 Jan 2026 10:00:09 GMT"]
        response = {"headers": {"date": date}, "status": {"code": status, "message": ""}}
        self.rows.append({"request": {**request, **sent}, "response": {**response, **answered}})
        return self

    def says(self, sent: Any, body: str, **options: Any) -> Tape:
        """An exchange whose answer is a text: JSON, or a stream of events."""
        return self.raw({"body": json.dumps(sent)}, {"body": {"string": body}}, **options)

    def yaml(self) -> bytes:
        document = {"interactions": self.rows, "version": 1}
        return yaml.safe_dump(document, allow_unicode=True).encode()

    def json(self) -> bytes:
        return json.dumps({"interactions": self.rows, "version": 1}, indent=2).encode()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def message(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An answer of Anthropic's API."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 2}
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1"}
    body = {**about, "content": list(blocks), "stop_reason": "end_turn", "stop_sequence": None}
    return {**body, "usage": usage, **fields}


def completion(text: str | None, **fields: Any) -> dict[str, Any]:
    """An answer of OpenAI's chat completions."""
    said = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **fields}
    usage = {"prompt_tokens": 43, "completion_tokens": 2}
    choice = {"index": 0, "finish_reason": "stop", "message": said, "logprobs": None}
    return {"id": "c1", "model": "m-1", "created": 7, "choices": [choice], "usage": usage}


def response(name: str, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An answer of the Responses API."""
    usage = {"input_tokens": 43, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 2}
    about = {"id": name, "object": "response", "model": "m-1", "status": "completed"}
    return {**about, "created_at": 7, "output": list(items), "usage": usage, **fields}


def said(text: str, **fields: Any) -> dict[str, Any]:
    """A message among the items of a response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    about = {"id": f"msg_{text}", "type": "message", "status": "completed"}
    return {**about, "role": "assistant", "content": content, **fields}


def reasoning(name: str) -> dict[str, Any]:
    return {"id": name, "type": "reasoning", "summary": [], "encrypted_content": f"sealed {name}"}


def stream(*events: dict[str, Any], named: bool = True) -> str:
    """A stream of server-sent events."""
    parts = [f"event: {one['type']}\n" if named else "" for one in events]
    lines = [f"{part}data: {json.dumps(one)}" for part, one in zip(parts, events, strict=True)]
    return "\n\n".join(lines) + ("\n\n" if named else "\n\ndata: [DONE]\n\n")
