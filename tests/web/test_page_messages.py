"""The page has the parts of a message that everything else reads in it, each with its value."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventctx.messages.parts import Part, parts_of_result, read_parts
from eventctx.web.bodies import with_parts
from tests.test_recorded_sessions import SESSIONS, imported
from tests.web.node import PAGE_TESTS, node

CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
SEALED = {"type": "thinking", "thinking": "so", "signature": "s"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
SHELL = [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}, "odd"]
ODD: list[Any] = [
    {},
    {"role": ""},
    {"role": "user"},
    {"role": "user", "content": ""},
    {"role": "user", "content": 0},
    {"role": "user", "content": False},
    {"role": "user", "content": {}},
    {"role": "user", "content": [None, "bare", 3, [1], {"type": 4}, {"no": "type"}]},
    {"role": "user", "content": [{"type": "constructor"}, {"type": "__proto__"}]},
    {"role": "user", "content": [{"type": "text"}, {"type": "text", "text": None}]},
    {"role": "user", "content": [{"type": "text", "text": 7}, IMAGE, {"type": "input_file"}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}]},
    {"role": "user", "content": [{"type": "tool_result", "output": "x", "is_error": True}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, "odd", {"id": "c2", "name": "b"}]},
    {"role": "assistant", "content": [], "tool_calls": [{"id": "c1", "tool": "t", "args": {}}]},
    {"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "p", "input": "x"}}]},
    {"role": "assistant", "content": "x", "reasoning_content": "why", "refusal": "no"},
    {"role": "assistant", "content": "x", "thinking_block": SEALED},
    {"role": "assistant", "content": [SEALED], "thinking_block": SEALED},
    {"role": "assistant", "content": "x", "thinking_block": {"type": "odd"}},
    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "xx"}]},
    {"role": "assistant", "content": [{"type": "server_tool_use", "id": "h", "name": "web"}]},
    {"role": "assistant", "content": [{"type": "web_search_tool_result", "tool_use_id": "h"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    {"role": "assistant", "content": [{"type": "tool_call", "id": "t", "name": "n", "input": {}}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": 5, "name": "n"}]},
    {"role": "function", "name": "f", "content": "done"},
    {"role": "tool", "tool_call_ids": ["a", 3, "b"], "content": "done"},
    {"role": "tool", "name": "f", "content": [{"type": "tool_result", "tool_use_id": "q"}]},
    {"role": "developer", "type": "additional_tools", "tools": [{"name": "t"}]},
    {"id": "msg_1"},
    {"type": None, "id": "msg_1"},
    {"type": "reasoning", "summary": [{"text": "a"}, "odd"], "encrypted_content": "xyz"},
    {"type": "compaction", "encrypted_content": "xyz"},
    {"type": "shell_call_output", "call_id": "s", "output": SHELL},
    {"type": "computer_call_output", "call_id": "s", "output": {"type": "computer_screenshot"}},
    {"type": "computer_call", "call_id": "s", "action": {"type": "click"}},
    {"type": "tool_search_call", "id": "x", "arguments": {}},
    {"type": "tool_search_call", "call_id": "x", "arguments": {}},
    {"type": "tool_search_output", "call_id": "x", "tools": [{"name": "a"}]},
    {"type": "apply_patch_call_output", "call_id": "x", "status": "failed"},
    {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True},
    {"type": "later_call", "id": "x"},
    {"type": "later_thing", "call_id": "x"},
    {"type": "later_output", "call_id": "x"},
    {"type": "later_item"},
    {"type": "toString"},
]


def in_the_page(messages: list[Any]) -> list[Any]:
    script = PAGE_TESTS / "read-messages.mjs"
    asked = msgspec.json.encode(with_parts([{"message": one} for one in messages]))
    done = subprocess.run([node(), str(script)], input=asked, capture_output=True, check=True)
    read: list[Any] = json.loads(done.stdout)
    return read


def in_the_engine(message: dict[str, Any]) -> list[Any]:
    return [_described(part) for part in read_parts(message)]


def _described(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "place": list(part.place),
        "value": part.value,
        "type": part.type,
        "ids": list(part.ids),
        "name": part.name,
        "failed": part.failed,
        "inner": [_described(one) for one in parts_of_result(part)]
        if part.kind == "result"
        else [],
    }


def test_odd_messages_of_every_dialect_have_the_same_parts_in_the_page() -> None:
    for message, read in zip(ODD, in_the_page(ODD), strict=True):
        assert read == in_the_engine(message), message


def test_the_items_of_the_responses_api_have_the_same_parts_in_the_page() -> None:
    from eventctx.messages.response_items import TABLE, type_of

    items = [{"type": name, "call_id": "c", "id": "i", "name": "n"} for name in TABLE]
    for item, read in zip(items, in_the_page(items), strict=True):
        assert read == in_the_engine(item), type_of(item)


@pytest.mark.parametrize("name", SESSIONS)
async def test_every_recorded_message_has_the_same_parts_in_the_page(
    name: str, recorded_sessions: Path
) -> None:
    engine, sessions = await imported(recorded_sessions / name)
    lines = [line for session in sessions for line in await engine.transcript(session)]
    messages = [line.message for line in lines if line.message is not None]
    assert messages
    for message, read in zip(messages, in_the_page(messages), strict=True):
        assert read == in_the_engine(message), message
