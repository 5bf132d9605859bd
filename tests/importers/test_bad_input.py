"""Detection by content, and files that are no transcript: typed errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import MalformedTranscript, StoreFull, TranscriptError, UnknownFormat
from eventctx.importers.detect import choose
from eventctx.importers.format_table import FORMATS
from eventctx.importers.source.naming import session_name
from eventctx.log.store import Appended, Expected
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, OpenHands, Pi
from tests.importers.given import SESSION, ClaudeCode, Codex, jsonl, load, records, story, text

CHAT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
SUMMARY = {"type": "summary", "summary": "Title", "leafUuid": "x"}
SNAPSHOT = {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}
QUEUE = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}


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
    path = tmp_path / "file.txt"
    path.write_bytes(data)
    assert choose(path, None).name == name


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
    path = tmp_path / "file.jsonl"
    path.write_bytes(data)
    with pytest.raises(UnknownFormat, match=found):
        choose(path, None)


def test_every_format_has_a_row_on_its_page() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "import-formats.md"
    text = page.read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"\n| `{name}` |" not in text] == []


@pytest.mark.parametrize("data", [b"", b"\n \n", b" " * 20_000])
def test_an_empty_file_is_an_error_under_every_name(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(data)
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
    path = tmp_path / "file.jsonl"
    path.write_bytes(jsonl([{"event": "x", "lvl": "INFO"}, *CHAT]))
    summary = await load(MemoryStore(), path, format="messages")
    assert (summary.format, summary.messages, summary.unknown) == ("messages", 2, {"untyped": 1})


@pytest.mark.parametrize("name", ["swe-agent", "mini-swe-agent", "messages"])
async def test_half_a_document_is_an_error_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(pretty({"history": CHAT, "messages": CHAT})[:-9])
    store = MemoryStore()
    with pytest.raises(MalformedTranscript, match="whole JSON document"):
        await load(store, path, format=name)
    assert [info async for info in store.streams()] == []


class Refused:
    """What an append that failed returns; like a store's, it may be awaited or not."""

    def __await__(self) -> Generator[None, None, Appended]:
        raise StoreFull("no space left; free some and import again")
        yield


class FullStore(MemoryStore):
    """A store on a disk that is full after the first batch."""

    left = 1

    def append(self, stream: str, drafts: Any, expected: Expected) -> Any:
        if self.left == 0:
            return Refused()
        self.left -= 1
        return super().append(stream, drafts, expected)


async def test_an_import_that_broke_off_is_taken_up_where_it_stopped(tmp_path: Path) -> None:
    log = ClaudeCode()
    for turn in range(100):
        log.user(f"turn {turn}").answer(f"m{turn}", text("x"))
    path = tmp_path / "file.jsonl"
    path.write_bytes(log.data())
    store = FullStore()
    with pytest.raises(StoreFull):
        await load(store, path)
    assert len(await records(store, SESSION)) == 256
    store.left = 100
    await load(store, path)
    other = MemoryStore()
    await load(other, path)
    assert story(await records(store, SESSION)) == story(await records(other, SESSION))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("plain-1_2.3", "plain-1_2.3"),
        ("../../etc/passwd", "etc-passwd"),
        ("a\x00b\nc", "a-b-c"),
        ("C:\\x", "C:-x"),
    ],
)
def test_a_files_own_name_becomes_a_safe_session_id(text: str, name: str) -> None:
    assert session_name(text) == name


def test_names_that_are_empty_or_long_stay_distinct() -> None:
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
    for data, file in ((whole, "whole.jsonl"), (damaged, "file.jsonl")):
        (tmp_path / file).write_bytes(data)
    store = MemoryStore()
    path = tmp_path / "file.jsonl"
    assert choose(path, None).name == name
    expected = await load(MemoryStore(), tmp_path / "whole.jsonl", complete=True)
    found = await load(store, path, complete=True)
    assert (found.format, found.messages) == (name, expected.messages)
    assert found.warnings[-1] == "512 NUL bytes, as a crash leaves them, were left out"
    assert found.unknown == ({"unreadable": 1} if "half" in place else {})
    assert (await load(store, path, complete=True)).added == 0


async def test_a_file_goes_on_after_nul_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    whole = ClaudeCode().user("a").user("b").user("c").data().splitlines(True)
    store = MemoryStore()
    path.write_bytes(b"".join(whole[:2]) + whole[2][:40] + NUL)
    assert (await load(store, path)).messages == 2
    path.write_bytes(path.read_bytes() + whole[2])
    found = await load(store, path)
    assert (found.messages, found.unknown) == (3, {"unreadable": 1})
