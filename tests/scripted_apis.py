"""Anthropic's and OpenAI's APIs on this machine, for the pages that show their SDKs.

A page's code runs as it stands: the SDKs take the address from the environment. What is asked is
held to the rules of the real API, and answered by a script: with tools, the model calls the first
one for each file that the last prompt names, all at once, and then tells of the results; without,
it says what ``ANSWERS`` has for the prompt.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.orchestrators.providers.server import ReceivedRequest, streamed
from tests.orchestrators.providers.strict import refused

Body = dict[str, Any]

_NUMBERS = itertools.count(1)  # of answers: an API never gives an id twice

ANSWERS = {
    "capital of Switzerland": "Bern.",
    "picture": "A red square.",
    "this PDF": "An invoice over 40 francs.",
    "ummar": "The files 0 to 6 were read; nothing was found.",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.received.append(body)  # type: ignore[attr-defined]
        problem = refused(ReceivedRequest(self.path, {}, body))
        if problem:
            error = {"type": "invalid_request_error", "message": problem}
            self._send(400, json.dumps({"type": "error", "error": error}))
            return
        if self.path.endswith("/messages"):
            answer, events = _claude(body)
        elif self.path.endswith("/chat/completions"):
            answer, events = _chat(body)
        else:
            answer, events = _response(body)
        if body.get("stream"):
            self._send(200, b"".join(streamed(events).pieces).decode(), "text/event-stream")
        else:
            self._send(200, json.dumps(answer))

    def _send(self, status: int, text: str, kind: str = "application/json") -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Nothing: a test's output is not a server's log."""


@contextmanager
def answering(received: list[Body] | None = None) -> Iterator[dict[str, str]]:
    """The environment in which the SDKs ask this server; ``received`` gets what it is asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.received = [] if received is None else received  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "k",
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "k",
        }
    finally:
        server.shutdown()
        server.server_close()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [])


def _thought(rows: list[Body], tools: bool) -> tuple[list[str], str]:
    """The files that the model wants to read, or else what it says."""
    last = rows[-1]
    results = last.get("role") == "tool" or last.get("type") == "function_call_output"
    if isinstance(last.get("content"), list):
        results |= last["content"][0].get("type") == "tool_result"
    if results:
        return [], "Both check a path; only one of them writes."
    prompt = _text(last.get("content"))
    if tools:
        return re.findall(r"\w+\.py", prompt), "Done."
    return [], next((said for known, said in ANSWERS.items() if known in prompt), "Done.")


def _claude(body: Body) -> tuple[Body, list[Body]]:
    files, said = _thought(body["messages"], bool(body.get("tools")))
    thinking = {"type": "thinking", "thinking": "One by one.", "signature": "c2lnbmVk"}
    blocks: list[Body] = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": "read", "input": {"path": file}}
        for n, file in enumerate(files)
    ] or [{"type": "text", "text": said, "citations": None}]
    if body.get("thinking"):
        blocks = [thinking, *blocks]
    end = {"stop_reason": "tool_use" if files else "end_turn", "stop_sequence": None}
    usage = {"input_tokens": 120, "output_tokens": 30, "cache_read_input_tokens": 100}
    named = {
        "id": f"msg_{next(_NUMBERS)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
    }
    events: list[Body] = [
        {
            "type": "message_start",
            "message": {**named, "content": [], "usage": usage, "stop_reason": None},
        }
    ]
    for index, block in enumerate(blocks):
        events += _claude_events(index, block)
    events += [
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 30}},
        {"type": "message_stop"},
    ]
    return {**named, **end, "content": blocks, "usage": usage}, events


def _claude_events(index: int, block: Body) -> Iterator[Body]:
    kind = block["type"]
    begun: Body = {
        "text": {"type": "text", "text": ""},
        "thinking": {"type": "thinking", "thinking": "", "signature": ""},
        "tool_use": {**block, "input": {}},
    }[kind]
    deltas: list[Body] = {
        "text": lambda: [{"type": "text_delta", "text": f"{w} "} for w in block["text"].split()],
        "thinking": lambda: [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ],
        "tool_use": lambda: [
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        ],
    }[kind]()
    if kind == "text":
        deltas[-1]["text"] = deltas[-1]["text"].rstrip()
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _chat(body: Body) -> tuple[Body, list[Body]]:
    files, said = _thought(body["messages"], bool(body.get("tools")))
    calls = [
        {
            "index": n,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": file})},
        }
        for n, file in enumerate(files)
    ]
    finish = "tool_calls" if calls else "stop"
    named = {"id": f"chatcmpl-{next(_NUMBERS)}", "model": body["model"], "created": 1}
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 100},
    }
    message: Body = {"role": "assistant", "content": None if calls else said, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "finish_reason": finish, "message": message}
    chunk = {**named, "object": "chat.completion.chunk"}
    events = [
        {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**chunk, "choices": [], "usage": usage},
    ]
    return {**named, "object": "chat.completion", "choices": [choice], "usage": usage}, events


def _response(body: Body) -> tuple[Body, list[Body]]:
    files, said = _thought(body["input"], bool(body.get("tools")))
    output: list[Body] = [
        {
            "type": "function_call",
            "id": f"fc_{n}",
            "call_id": f"call_{n}",
            "name": "read",
            "arguments": json.dumps({"path": file}),
            "status": "completed",
        }
        for n, file in enumerate(files)
    ]
    content = [{"type": "output_text", "text": said, "annotations": [], "logprobs": []}]
    text = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    answer = {
        "id": f"resp_{next(_NUMBERS)}",
        "object": "response",
        "created_at": 1,
        "model": body["model"],
        "status": "completed",
        "output": output or [{**text, "content": content}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 120,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 150,
        },
    }
    return answer, [{"type": "response.completed", "response": answer}]
