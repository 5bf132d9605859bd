"""Detection by content, and files that are no transcript, or another program's: typed errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import (
    MalformedTranscript,
    NotATranscript,
    StoreFull,
    TranscriptError,
    UnknownFormat,
)
from eventctx.importers.detect import choose
from eventctx.importers.format_table import FORMATS
from eventctx.importers.source.naming import session_name
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, OpenHands, Pi
from tests.importers.given import CHAT, SESSION, ClaudeCode, Codex, jsonl, put, text
from tests.importers.outputs import Atif, ClaudeStream, CodexExec
from tests.importers.taken import FullStore, load, load_data, records, same

SUMMARY = {"type": "summary", "summary": "Title", "leafUuid": "x"}
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
QUEUE = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}


STREAM = re.sub(rb',"uuid":"u\d"', b"", ClaudeStream().answer("m", text("a")).data())
"""As the first releases and Amp write it: its lines have no id."""
ATIF = [f"ATIF-v1.{minor}" for minor in range(9)]


def pretty(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("claude-code", ClaudeCode().user("x").data()),
        ("claude-code", jsonl([SUMMARY, SNAPSHOT])),
        ("claude-code", jsonl([QUEUE])),
        ("claude-code", b"\n\n" + ClaudeCode().user("x").data()),
        ("claude-code", b"\xef\xbb\xbf" + ClaudeCode().user("x").data()),
        ("claude-code", ClaudeCode().user("x").user("y").data().replace(b"\n", b"")),
        ("claude-code", b"broken line\n" + ClaudeCode().user("x").data()),
        ("claude-code", ClaudeCode().user("x").data().replace(b"\n", b"\r\n")),
        ("claude-code", ClaudeCode().system("compact_boundary").user("x").data()),
        ("claude-stream", STREAM),
        ("codex-exec", jsonl([{"type": "thread.started", "thread_id": "t"}])),
        ("codex-exec", jsonl([{"type": "session.created", "session_id": "s"}])),
        ("codex-exec", jsonl(CodexExec().says("a").rows[1:])),
        ("codex-exec", jsonl([{"id": "1", "msg": {"type": "task_started"}}])),
        *[("atif", Atif().step("user", "x").data(schema_version=version)) for version in ATIF],
        ("codex", Codex().data()),
        ("codex", jsonl(Codex().says("user", "x").rows[1:])),
        ("swe-agent", pretty({"history": CHAT, "trajectory": []})),
        ("mini-swe-agent", pretty({"messages": CHAT, "trajectory_format": "mini-swe-agent-1"})),
        ("mini-swe-agent", pretty({"messages": CHAT, "info": {"exit_status": "Submitted"}})),
        ("pi", Pi().user("x").data()),
        ("pi", jsonl(Pi(tree=True).user("x").rows[1:])),
        ("openhands", OpenHands().user("x").data()),
        ("openhands", pretty(OpenHands().user("x").rows[0])),
        ("openhands", pretty({"history": OpenHands().user("x").rows})),
        ("amplifier", AmplifierLog().data()),
        ("amplifier", jsonl([{"type": "llm:request", "data": {}}])),
        ("amplifier", jsonl([{**CHAT[0], "metadata": {"timestamp": "2026-01-01T00:00:00Z"}}])),
        ("amplifier", jsonl([{"role": "assistant", "content": [{"type": "tool_call"}]}])),
        ("context-persistent", jsonl([{**CHAT[0], "timestamp": "2026-01-01T00:00:00Z"}])),
        ("messages", jsonl([{**CHAT[0], "timestamp": "yesterday"}])),
        ("messages", pretty(CHAT)),
        ("messages", jsonl(CHAT)),
        ("messages", pretty({"model": "m", "messages": CHAT})),
        ("messages", jsonl([{"type": "function_call", "name": "f", "call_id": "c"}])),
    ],
)
def test_the_content_tells_the_format_whatever_the_file_is_called(
    name: str, data: bytes, tmp_path: Path
) -> None:
    assert choose(put(tmp_path / "file.txt", data), None).name == name


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "binary"),
        (b"dear diary\ntoday", "neither"),
        (b"3\n", "neither|type int"),
        (b"{}", "no|none"),
        (b"[]", "type list"),
        (jsonl([{"hello": 1}]), "hello"),
        (jsonl([{"id": 1, "source": "user", "action": "message"}]), "OpenHands event of version 0"),
        (jsonl([{"event": "moon:phase", "type": ["session"]}]), "event, type"),
        (b'{"role": "user", "con', "neither"),
    ],
)
def test_an_unknown_format_is_an_error_that_says_what_was_found(
    data: bytes, found: str, tmp_path: Path
) -> None:
    with pytest.raises(UnknownFormat, match=found):
        choose(put(tmp_path / "file.jsonl", data), None)


def test_every_format_has_a_row_on_its_page() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "import-formats.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"\n| `{name}` |" not in text] == []


@pytest.mark.parametrize("data", [b"", b"\n \n", b" " * 20_000])
def test_an_empty_file_is_an_error_under_every_name(data: bytes, tmp_path: Path) -> None:
    path = put(tmp_path / "file.jsonl", data)
    for name in (None, *FORMATS):
        with pytest.raises(MalformedTranscript, match="empty"):
            choose(path, name)


async def test_a_missing_file_a_folder_and_an_unknown_name_are_errors(tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(TranscriptError, match="nowhere"):
        await load(store, tmp_path / "nowhere")
    with pytest.raises(UnknownFormat, match="folder"):
        await load(store, tmp_path)
    with pytest.raises(UnknownFormat, match="known are claude-code"):
        await load(store, tmp_path, format="morse")
    assert [info async for info in store.streams()] == []


async def test_the_format_can_be_named_instead_of_detected(tmp_path: Path) -> None:
    data = jsonl([{"event": "x", "lvl": "INFO"}, *CHAT])
    _, summary = await load_data(tmp_path, data, format="messages")
    assert (summary.format, summary.messages, summary.unknown) == ("messages", 2, {"untyped": 1})


@pytest.mark.parametrize("name", ["swe-agent", "mini-swe-agent", "messages"])
async def test_half_a_document_is_an_error_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    path = put(tmp_path / "run.json", pretty({"history": CHAT, "messages": CHAT})[:-9])
    store = MemoryStore()
    with pytest.raises(MalformedTranscript, match="whole JSON document"):
        await load(store, path, format=name)
    assert [info async for info in store.streams()] == []


async def test_an_import_that_broke_off_is_taken_up_where_it_stopped(tmp_path: Path) -> None:
    log = ClaudeCode()
    for turn in range(100):
        log.user(f"turn {turn}").answer(f"m{turn}", text("x"))
    path, store = put(tmp_path / "file.jsonl", log.data()), FullStore()
    with pytest.raises(StoreFull):
        await load(store, path)
    assert len(await records(store, SESSION)) == 256
    store.left = 100
    await load(store, path)
    other = MemoryStore()
    await load(other, path)
    assert await same(store, other, SESSION)


def test_a_files_own_name_becomes_a_safe_session_id_and_stays_distinct() -> None:
    given = ("plain-1_2.3", "../../etc/passwd", "a\x00b\nc", "C:\\x")
    assert [session_name(one) for one in given] == ["plain-1_2.3", "etc-passwd", "a-b-c", "C:-x"]
    assert session_name("///") != session_name("///x/")
    assert session_name("...").startswith("import-")
    first, second = session_name("x" * 500), session_name("x" * 501)
    assert first != second
    assert len(first) <= 120


# -- NUL bytes, as a crash leaves them -----------------------------------------------------------

NUL = b"\0" * 512
JSONL = {"claude-code": ClaudeCode().user("a").user("b").data(), "messages": jsonl(CHAT)}


@pytest.mark.parametrize("name", JSONL)
@pytest.mark.parametrize("place", ["start", "last line", "end", "after half a line"])
async def test_nul_bytes_do_not_hide_the_lines_around_them(
    name: str, place: str, tmp_path: Path
) -> None:
    whole = JSONL[name]
    begin, last = b"".join(whole.splitlines(True)[:-1]), whole.splitlines(True)[-1]
    damaged = {
        "start": NUL + whole,
        "last line": begin + NUL + last,
        "end": whole + NUL,
        "after half a line": begin + b'{"type": "x", "con' + NUL + last,
    }[place]
    _, expected = await load_data(tmp_path, whole)
    store, found = await load_data(tmp_path, damaged)
    path = tmp_path / "file.jsonl"
    assert choose(path, None).name == name
    assert (found.format, found.messages) == (name, expected.messages)
    assert found.warnings[-1] == "512 NUL bytes, as a crash leaves them, were left out"
    assert found.unknown == ({"unreadable": 1} if "half" in place else {})
    assert (await load(store, path, complete=True)).added == 0


async def test_a_file_goes_on_after_nul_bytes(tmp_path: Path) -> None:
    whole = ClaudeCode().user("a").user("b").user("c").data().splitlines(True)
    half = b"".join(whole[:2]) + whole[2][:40] + NUL
    store, found = await load_data(tmp_path, half, complete=False)
    assert found.messages == 2
    found = await load(store, put(tmp_path / "file.jsonl", half + whole[2]))
    assert (found.messages, found.unknown) == (3, {"unreadable": 1})


# -- files of other programs -----------------------------------------------------------------------

AT = "2026-09-01T10:00:00.000Z"
SORT = [{"type": "text", "text": "Sort the jars."}]
OPENCODE = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1756720000000}}
PART = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "Sort."}
QWEN = {"uuid": "a", "parentUuid": None, "sessionId": "s", "timestamp": AT, "version": "0.5.0"}
MANAGED = {"id": "sevt_1", "type": "user.message", "content": SORT, "processed_at": AT}
CURSOR = {"type": "system", "subtype": "init", "session_id": "s", "apiKeySource": "login"}
GEMINI = {"type": "init", "timestamp": AT, "session_id": "s", "model": "gemini"}
NO_TOOLS = {"uuid": "u", "tools": [], "mcp_servers": []}
SAID = {"ts": 1756720000000, "type": "say", "say": "task", "text": "Sort the jars."}

FOREIGN: list[tuple[str, list[Any] | dict[str, Any] | str]] = [
    ("opencode", [OPENCODE]),
    ("opencode", [PART]),
    ("opencode", {"info": {"id": "ses_1"}, "messages": []}),
    ("opencode", {"id": "ses_1", "projectID": "p", "directory": "/w", "time": {}}),
    ("Gemini CLI", [GEMINI, {"type": "message", "timestamp": AT, "role": "user", "content": "S."}]),
    ("Gemini CLI", [{**GEMINI, "type": "tool_result", "tool_id": "t", "status": "success"}]),
    ("parts", {"contents": []} | {"messages": [{"role": "user", "parts": [{"text": "Sort."}]}]}),
    ("Cline", {"messages": [SAID]}),
    ("Managed Agents", [MANAGED]),
    ("Managed Agents", {"data": [MANAGED], "next_page": None}),
    ("Cursor's stream-json", [CURSOR, {**CURSOR, "type": "tool_call", "tool_call": {}}]),
    ("Cursor's stream-json", [{"type": "assistant", "message": {}, "session_id": "s"}]),
    ("Qwen Code's stream-json", [{**CURSOR, **NO_TOOLS, "qwen_code_version": "0.9.0"}]),
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
    ("Amp", [{"role": "user", "content": [{"type": "tool_result", "toolUseID": "t", "run": 1}]}]),
    ("VS Code", {"requests": [], "responderUsername": "GitHub Copilot"}),
    ("ChatGPT", {"title": "x", "create_time": 1.5, "mapping": {"a": {}}}),
    ("claude.ai", {"uuid": "u", "name": "x", "chat_messages": [{"text": "Sort."}]}),
    ("LangChain", [{"type": "human", "data": {"content": "Sort."}}]),
    ("LangSmith", [{"id": "r", "run_type": "llm", "inputs": {"messages": [[]]}}]),
    ("OpenTelemetry", {"resourceSpans": [{"scopeSpans": []}]}),
    ("HAR", {"log": {"version": "1.2", "entries": []}}),
    ("Zed", {"zed": "context", "version": "0.4.0", "text": "Sort.", "messages": [{"id": 0}]}),
    ("Droid", [{"type": "session_start", "id": "s", "title": "t"}, *Pi().user("x").rows[1:]]),
    ("aider, as Mark", "\n# aider chat started at 2026-09-01 10:00:00\n\n#### Sort the jars.\n"),
    ("aider's log", "TO LLM 2026-09-01T10:00:00\nUSER Sort the jars.\n"),
    ("keys schema_version", {"schema_version": "ATIF-v1.8"}),
    ("keys schema_version, steps", {"schema_version": "1.0", "steps": [{}]}),
    ("Continue", {"history": [{"message": {"role": "user", "content": "x"}, "contextItems": []}]}),
]


def written(path: Path, value: list[Any] | dict[str, Any] | str) -> Path:
    if isinstance(value, str):
        return put(path, value.encode())
    return put(path, jsonl(value) if isinstance(value, list) else json.dumps(value).encode())


@pytest.mark.parametrize(("program", "value"), FOREIGN)
async def test_a_foreign_file_is_refused_and_its_program_is_named(
    program: str, value: list[Any] | dict[str, Any] | str, tmp_path: Path
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


async def test_a_file_with_a_conversation_in_each_line_is_refused(tmp_path: Path) -> None:
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
    assert (await load_data(tmp_path, jsonl(value)))[1].messages == len(value)
