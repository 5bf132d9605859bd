"""Files of other programs are refused by their name, and never become sessions without text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import MalformedTranscript, NotATranscript
from eventctx.importers.detect import choose
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Pi
from tests.importers.given import ClaudeCode, jsonl, load, text

AT = "2026-09-01T10:00:00.000Z"
SORT = [{"type": "text", "text": "Sort the jars."}]
OPENCODE = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1756720000000}}
PART = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "Sort."}
QWEN = {"uuid": "a", "parentUuid": None, "sessionId": "s", "timestamp": AT, "version": "0.5.0"}
MANAGED = {"id": "sevt_1", "type": "user.message", "content": SORT, "processed_at": AT}
CURSOR = {"type": "system", "subtype": "init", "session_id": "s", "apiKeySource": "login"}
SAID = {"ts": 1756720000000, "type": "say", "say": "task", "text": "Sort the jars."}

FOREIGN: list[tuple[str, list[Any] | dict[str, Any]]] = [
    ("opencode", [OPENCODE]),
    ("opencode", [PART]),
    ("opencode", {"info": {"id": "ses_1"}, "messages": []}),
    ("opencode", {"id": "ses_1", "projectID": "p", "directory": "/w", "time": {}}),
    (
        "Gemini CLI",
        [
            {"type": "init", "timestamp": AT, "session_id": "s", "model": "gemini"},
            {"type": "message", "timestamp": AT, "role": "user", "content": "Sort."},
        ],
    ),
    (
        "Gemini CLI",
        [{"type": "tool_result", "timestamp": AT, "tool_id": "t", "status": "success"}],
    ),
    ("parts", {"contents": []} | {"messages": [{"role": "user", "parts": [{"text": "Sort."}]}]}),
    ("Cline", {"messages": [SAID]}),
    ("Managed Agents", [MANAGED]),
    ("Managed Agents", {"data": [MANAGED], "next_page": None}),
    ("Cursor's stream-json", [CURSOR, {**CURSOR, "type": "tool_call", "tool_call": {}}]),
    ("Cursor's stream-json", [{"type": "assistant", "message": {}, "session_id": "s"}]),
    (
        "Qwen Code's stream-json",
        [{**CURSOR, "uuid": "u", "tools": [], "mcp_servers": [], "qwen_code_version": "0.9.0"}],
    ),
    ("result of a Claude Code run", {**CURSOR, "type": "result", "num_turns": 1, "result": "x"}),
    ("Droid", [{"type": "system", "subtype": "init", "session_id": "s", "tools": ["Read"]}]),
    ("Droid", [{"type": "message", "role": "user", "text": "Sort.", "timestamp": AT}]),
    ("Droid", [{"type": "tool_call", "toolName": "Shell", "parameters": {}, "session_id": "s"}]),
    ("app-server", [{"method": "item/completed", "params": {"item": {}}}]),
    ("Client Protocol", [{"jsonrpc": "2.0", "method": "session/update", "params": {}}]),
    ("Grok", [{"type": "system", "content": "x"}, {"type": "user", "content": SORT}]),
    ("Kimi", [{"type": "metadata", "protocol_version": "1.4"}]),
    ("Kimi", [{"type": "context.append_message", "time": 1, "message": {"role": "user"}}]),
    ("Antigravity", [{"step_index": 0, "source": "MODEL", "type": "X", "status": "DONE"}]),
    ("Goose", [{"working_dir": "/w", "message_count": 2}, {"role": "user", "content": SORT}]),
    ("Goose", [{"role": "assistant", "content": [{"type": "toolRequest", "toolCall": {}}]}]),
    ("Amp", {"id": "T-1", "messages": [{"role": "user", "content": SORT}]}),
    (
        "Amp",
        [{"role": "user", "content": [{"type": "tool_result", "toolUseID": "t", "run": {}}]}],
    ),
    ("VS Code", {"requests": [], "responderUsername": "GitHub Copilot"}),
    ("ChatGPT", {"title": "x", "create_time": 1.5, "mapping": {"a": {}}}),
    ("claude.ai", {"uuid": "u", "name": "x", "chat_messages": [{"text": "Sort."}]}),
    ("LangChain", [{"type": "human", "data": {"content": "Sort."}}]),
    ("LangSmith", [{"id": "r", "run_type": "llm", "inputs": {"messages": [[]]}}]),
    ("OpenTelemetry", {"resourceSpans": [{"scopeSpans": []}]}),
    ("HAR", {"log": {"version": "1.2", "entries": []}}),
    ("Zed", {"zed": "context", "version": "0.4.0", "text": "Sort.", "messages": [{"id": 0}]}),
    (
        "Droid",
        [{"type": "session_start", "id": "s", "title": "t"}, *Pi().user("x").rows[1:]],
    ),
    ("Continue", {"history": [{"message": {"role": "user", "content": "x"}, "contextItems": []}]}),
]


def written(path: Path, value: list[Any] | dict[str, Any]) -> Path:
    path.write_bytes(jsonl(value) if isinstance(value, list) else json.dumps(value).encode())
    return path


@pytest.mark.parametrize(("program", "value"), FOREIGN)
async def test_a_foreign_file_is_refused_and_its_program_is_named(
    program: str, value: list[Any] | dict[str, Any], tmp_path: Path
) -> None:
    store = MemoryStore()
    with pytest.raises(NotATranscript, match=program):
        await load(store, written(tmp_path / "file.jsonl", value))
    assert [info async for info in store.streams()] == []


@pytest.mark.parametrize(
    ("format_", "value"),
    [
        ("messages", [{"role": "user", "message": {"content": SORT}}]),
        ("messages", {"messages": []}),
        ("claude-code", [{**QWEN, "type": "user", "message": {"role": "user", "parts": SORT}}]),
        ("pi", [{"type": "message", "timestamp": AT, "role": "user", "content": "Sort."}]),
        ("swe-agent", {"history": []}),
    ],
)
async def test_a_session_without_any_text_is_refused_also_under_a_named_format(
    format_: str, value: list[Any] | dict[str, Any], tmp_path: Path
) -> None:
    store = MemoryStore()
    with pytest.raises(NotATranscript, match=f"no message|without any text.*read as {format_}"):
        await load(store, written(tmp_path / "file.jsonl", value), format=format_)
    assert [info async for info in store.streams()] == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            "\n# aider chat started at 2026-09-01 10:00:00\n\n#### Sort the jars.\n",
            "aider, as Mark",
        ),
        ("TO LLM 2026-09-01T10:00:00\nUSER Sort the jars.\n", "aider's log"),
    ],
)
def test_texts_of_a_program_are_told_by_their_first_line(
    data: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "history.md").write_text(data)
    with pytest.raises(NotATranscript, match=reason):
        choose(tmp_path / "history.md", None)


async def test_a_file_with_a_conversation_in_each_line_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    chat = {"messages": [{"role": "user", "content": "Sort the jars."}]}
    path = written(tmp_path / "tuning.jsonl", [chat, chat])
    with pytest.raises(MalformedTranscript, match="import each of several as a file of its own"):
        await load(MemoryStore(), path)


@pytest.mark.parametrize(
    "value",
    [
        [{"role": "user", "content": "x", "sessionID": "s", "id": "1", "time": 1}],
        [{"role": "user", "content": "x", "parts": [{"type": "text", "text": "x"}]}],
        [{"role": "user", "content": [{"text": "x"}]}],
        [{"role": "assistant", "tool_calls": []}, {"role": "user", "content": "x"}],
        [{"role": "user", "content": SORT, "ts": 1756720000000}],
        [{"type": "reasoning", "summary": []}, {"role": "user", "content": "x"}],
        [{"type": "web_search_call", "action": {"query": "jars"}}],
        [{"type": "message", "role": "user", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}],
        ClaudeCode().user([{"type": "image", "source": {"type": "base64", "data": "AA=="}}]).rows,
        ClaudeCode().answer("m", {"type": "tool_use", "id": "t", "name": "n", "input": {}}).rows,
        ClaudeCode().user("").answer("m", text("y")).rows,
    ],
)
async def test_lists_with_odd_keys_are_imported_all_the_same(
    value: list[Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "file.jsonl", value)
    summary = await load(MemoryStore(), path, complete=True)
    assert summary.messages == len(value)
