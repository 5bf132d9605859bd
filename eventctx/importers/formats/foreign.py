"""Formats of other programs that are known by name, and not imported.

Their lines share keys with formats that are: without this table Grok's chats, say, are read as
lists of messages, and what their keys tell is lost. Each row of the table asks for at least two
marks, which no imported format has together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

_Object = dict[str, Any]

_MANAGED: Final = re.compile(r"(user|agent|session|span|system)\.[a-z_]+")
_HOLDERS: Final = ("messages", "history", "events", "data")
_LOOKED_AT: Final = 50
_TEXTS: Final = {
    b"# aider chat started at ": "a chat of aider, as Markdown",
    b"TO LLM 20": "aider's log of its requests, as text",
}


def foreign(value: object) -> str | None:
    """The name of the program's form that a line, a document or its first rows have; else None."""
    if isinstance(value, list):
        return _of_rows(value[:_LOOKED_AT])
    if not isinstance(value, dict):
        return None
    title = next((title for title, fits in _FORMS if fits(value)), None)
    if title is not None:
        return title
    lists = (value[key] for key in _HOLDERS if isinstance(value.get(key), list))
    return next((title for rows in lists if (title := foreign(rows))), None)


def foreign_text(head: bytes) -> str | None:
    """The name of the program's form that begins so, and is no JSON; else None."""
    return next((title for mark, title in _TEXTS.items() if head.startswith(mark)), None)


def _of_rows(rows: list[Any]) -> str | None:
    for row in rows:
        title = foreign(row)
        # Messages may be odd, too: the first row that is told by its keys is what the list is of.
        if title is not None or (isinstance(row, dict) and _is_known(row)):
            return title
    return None


def _is_known(row: _Object) -> bool:
    """Whether a row is a message, or a line of Claude Code's output."""
    return _has(row, "role", "content") or _has(row, "session_id", "uuid")


def _has(value: _Object, *keys: str) -> bool:
    return all(key in value for key in keys)


def _is(value: _Object, key: str, kind: type) -> bool:
    return isinstance(value.get(key), kind)


def _type(value: _Object) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _is_opencode_message(value: _Object) -> bool:
    own = _has(value, "id", "sessionID", "time") and "content" not in value
    return own and _is(value, "role", str)


def _is_opencode_part(value: _Object) -> bool:
    return _has(value, "sessionID", "type") and ("messageID" in value or _is(value, "part", dict))


def _is_gemini_stream(value: _Object) -> bool:
    marks = {
        "init": ("session_id", "model", "timestamp"),
        "message": ("role", "delta", "timestamp"),
        "tool_use": ("tool_name", "tool_id"),
        "tool_result": ("tool_id", "status"),
    }
    keys = marks.get(_type(value))
    return keys is not None and _has(value, *keys) and "message" not in value


def _is_cline_screen(value: _Object) -> bool:
    kind = _type(value)
    return kind in ("say", "ask") and _has(value, kind, "ts")


def _is_managed_agents(value: _Object) -> bool:
    own = "processed_at" in value or str(value.get("id")).startswith("sevt")
    return own and _MANAGED.fullmatch(_type(value)) is not None


def _is_cursor_stream(value: _Object) -> bool:
    kind = _type(value)
    begins = kind == "system" and _has(value, "subtype", "session_id", "apiKeySource")
    # Claude Code's lines of these types have an id of their own, too.
    spoken = kind in ("user", "assistant", "tool_call") and _has(value, "session_id")
    own = "uuid" not in value and "tools" not in value and "parent_tool_use_id" not in value
    return own and (begins or (spoken and ("message" in value or "tool_call" in value)))


def _is_qwen_stream(value: _Object) -> bool:
    return _type(value) == "system" and _has(value, "session_id", "qwen_code_version")


def _is_claude_result(value: _Object) -> bool:
    return _type(value) == "result" and _has(value, "session_id", "num_turns", "result")


def _is_droid_stream(value: _Object) -> bool:
    if _type(value) == "system":
        begins = "subtype" in value and ("sessionId" in value or "session_id" in value)
        return begins and "tools" in value and "uuid" not in value and "mcp_servers" not in value
    spoken = _type(value) == "message" and _has(value, "role", "text", "timestamp")
    called = _type(value) == "tool_call" and _has(value, "toolName", "parameters")
    return called or (spoken and "content" not in value)


def _is_codex_server(value: _Object) -> bool:
    method = value.get("method")
    of_codex = isinstance(method, str) and method.startswith(("thread/", "turn/", "item/"))
    return of_codex and _is(value, "params", dict)


def _is_factory(value: _Object) -> bool:
    return _type(value) == "session_start" and _has(value, "id", "title")


def _is_continue(value: _Object) -> bool:
    return _is(value, "message", dict) and "contextItems" in value


def _has_parts(value: _Object) -> bool:
    return _is(value, "role", str) and _is(value, "parts", list) and "content" not in value


def _is_openhands_0(value: _Object) -> bool:
    acts = "action" in value or "observation" in value
    return acts and _has(value, "source", "id") and "kind" not in value


def _is_grok(value: _Object) -> bool:
    spoken = _type(value) in ("system", "user", "assistant") and "content" in value
    # Claude Code's own lines name their session, and Gemini CLI's records their time.
    others = ("role", "message", "uuid", "session_id", "timestamp")
    return spoken and not any(key in value for key in others)


def _is_kimi(value: _Object) -> bool:
    kind = _type(value)
    begins = kind == "metadata" and "protocol_version" in value
    return begins or (kind.startswith("context.append_") and "time" in value)


def _is_antigravity(value: _Object) -> bool:
    return _has(value, "step_index", "source", "type", "status")


def _is_goose(value: _Object) -> bool:
    begins = _has(value, "working_dir", "message_count")
    exported = _has(value, "working_dir", "conversation")
    blocks = value.get("content")
    return begins or exported or (_is(value, "role", str) and _has_block(blocks, _GOOSE))


def _is_amp(value: _Object) -> bool:
    thread = _is(value, "messages", list) and str(value.get("id")).startswith("T-")
    return thread or (_is(value, "role", str) and _has_block(value.get("content"), _AMP))


_GOOSE: Final = {"toolRequest": "toolCall", "toolResponse": "toolResult"}
_AMP: Final = {"tool_result": "toolUseID"}


def _has_block(blocks: object, marks: dict[str, str]) -> bool:
    """Whether one of the blocks is of a type with its own key, both of ``marks``."""
    found = [one for one in blocks if isinstance(one, dict)] if isinstance(blocks, list) else []
    return any(marks.get(_type(one), one) in one for one in found if _type(one) in marks)


def _is_vscode_chat(value: _Object) -> bool:
    return _is(value, "requests", list) and _has(value, "responderUsername")


def _is_chatgpt(value: _Object) -> bool:
    return _is(value, "mapping", dict) and _has(value, "title", "create_time")


def _is_claude_ai(value: _Object) -> bool:
    return _is(value, "chat_messages", list) and _has(value, "uuid", "name")


def _is_langchain(value: _Object) -> bool:
    told = _type(value) in ("human", "ai", "system", "tool") and _is(value, "data", dict)
    return told or (_has(value, "lc", "kwargs") and _type(value) == "constructor")


def _is_langsmith(value: _Object) -> bool:
    return _has(value, "run_type", "inputs", "id")


def _is_otlp(value: _Object) -> bool:
    spans = value.get("resourceSpans")
    return isinstance(spans, list) and any(isinstance(one, dict) for one in spans)


def _is_har(value: _Object) -> bool:
    log = value.get("log")
    return isinstance(log, dict) and _is(log, "entries", list) and "version" in log


def _is_acp(value: _Object) -> bool:
    method = value.get("method")
    return "jsonrpc" in value and isinstance(method, str) and method.startswith("session/")


def _is_zed(value: _Object) -> bool:
    return _has(value, "zed", "messages") or _has(value, "message_metadata", "text")


_FORMS: Final[tuple[tuple[str, Callable[[_Object], bool]], ...]] = (
    (
        "opencode's storage (a message without its parts: import its session's file)",
        _is_opencode_message,
    ),
    ("opencode's storage (a part of a message: import its session's file)", _is_opencode_part),
    ("Gemini CLI's stream-json", _is_gemini_stream),
    ("Cline's screen (import api_conversation_history.json of its folder)", _is_cline_screen),
    ("events of Claude Managed Agents", _is_managed_agents),
    (
        "Cursor's stream-json, which has tools and results in a form of its own",
        _is_cursor_stream,
    ),
    ("Qwen Code's stream-json (import the chat in ~/.qwen/projects)", _is_qwen_stream),
    (
        "the result of a Claude Code run (import the session's file in ~/.claude/projects)",
        _is_claude_result,
    ),
    ("the stream-json of Factory's Droid", _is_droid_stream),
    ("messages of Codex's app-server (import the file in ~/.codex/sessions)", _is_codex_server),
    ("a session of Factory's Droid", _is_factory),
    ("a session of Continue", _is_continue),
    ("a session of Goose", _is_goose),
    ("a thread of Amp (its --stream-json can be imported)", _is_amp),
    ("a session of Kimi Code", _is_kimi),
    ("a conversation of Antigravity", _is_antigravity),
    ("a chat in VS Code, as GitHub Copilot keeps it", _is_vscode_chat),
    ("an export of ChatGPT", _is_chatgpt),
    ("an export of claude.ai", _is_claude_ai),
    ("messages of LangChain (import what the model's API was sent)", _is_langchain),
    ("a run of LangSmith", _is_langsmith),
    ("spans of OpenTelemetry (OTLP)", _is_otlp),
    ("HTTP recorded by a browser (HAR); `eventctx record` records a program", _is_har),
    ("messages of the Agent Client Protocol", _is_acp),
    ("a text thread of Zed", _is_zed),
    ("a chat with types in place of roles, as Grok has it", _is_grok),
    (
        "messages with 'parts' in place of 'content', as Google's API and the AI SDK have them",
        _has_parts,
    ),
    ("an OpenHands event of version 0", _is_openhands_0),
)
