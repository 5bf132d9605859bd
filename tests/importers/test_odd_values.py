"""Values that no program should write: they cost at most their own line, and no byte of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import MalformedTranscript
from eventctx.importers.load import ImportSummary
from eventctx.importers.source import document, lines, source
from eventctx.importers.source.lines import nanoseconds
from eventctx.importers.source.values import MAX_DEPTH, REPEATED, REPLACED, decode, read_value
from eventctx.log.codec import raw_of
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Pi
from tests.importers.given import (
    ClaudeCode,
    Codex,
    forked,
    jsonl,
    load,
    load_data,
    messages,
    records,
    text,
)
from tests.importers.growing import FILES, LINES
from tests.importers.outputs import Atif, ClaudeStream, CodexExec
from tests.importers.terminal_agents import Gemini, says, tool

DEEP = b"[" * 100_000 + b"]" * 100_000
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


async def raw_bytes(store: MemoryStore, summary: ImportSummary) -> bytes:
    assert summary.session is not None
    found = await records(store, summary.session)
    return b"\n".join(raw_of(one) or b"" for one in found if one.type == "import:raw")


@pytest.mark.parametrize("text", [10**400, 10**12, 1e308, -1e308, float("inf"), float("nan"), True])
def test_a_number_that_is_no_time_is_none(text: float) -> None:
    assert nanoseconds(text) is None


def test_a_time_in_seconds_is_read_up_to_the_last_one() -> None:
    assert nanoseconds(1_700_000_000.5) == 1_700_000_000_500_000_000
    assert nanoseconds(0) is nanoseconds(-1) is nanoseconds(2**63 / 10**9) is None
    latest = nanoseconds(2**63 // 10**9 - 1)
    assert latest is not None
    assert latest < 2**63


# -- values ---


@pytest.mark.parametrize(
    ("data", "value", "warning"),
    [
        (b'{"a":1,"b":{"c":"\\"","d":2}}', {"a": 1, "b": {"c": '"', "d": 2}}, ""),
        (b'{"a" :\t"\\u0022x"}', {"a": '"x'}, ""),
        (b'{"a":1,"a":2}', {"a": 2}, REPEATED),
        (b'{"x":[{"a":1,"b":3,"a":2}]}', {"x": [{"a": 2, "b": 3}]}, REPEATED),
        (b'{"a":"\\u0022","b":"x","b":"y"}', {"a": '"', "b": "y"}, REPEATED),
        (b'{"\\u0061":1,"a":2}', {"a": 2}, REPEATED),
        (b'{"a":18446744073709551616}', {"a": "18446744073709551616"}, REPLACED),
        (b'{"a":1e999}', {"a": None}, REPLACED),
        (b'{"a":"\\ud800"}', {"a": "�"}, REPLACED),
        (b'{"a":"\xff"}', {"a": "�"}, REPLACED),
    ],
)
def test_a_value_says_all_of_its_text_or_there_is_a_warning(
    data: bytes, value: Any, warning: str
) -> None:
    assert read_value(data) == (value, warning)


def test_a_value_is_read_up_to_a_depth_that_code_can_walk() -> None:
    deepest = b"[" * MAX_DEPTH + b'"[[{"' + b"]" * MAX_DEPTH
    assert json.dumps(decode(deepest)).encode() == deepest
    for levels in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested deeper"):
            read_value(b"[" * levels + b"]" * levels)


# -- lines ---


UNREADABLE = (DEEP[:100_000], DEEP, b"\xff\xfe{", b'{"role":"user","con')


@pytest.mark.parametrize("name", FILES)
async def test_lines_that_cannot_be_read_are_kept_and_counted(name: str, tmp_path: Path) -> None:
    _, plain = await load_data(tmp_path, FILES[name], format=name)
    for line in UNREADABLE:
        data = b"\n".join((line, FILES[name] + line, b""))
        store, summary = await load_data(tmp_path, data, format=name)
        found = summary.unknown["unreadable"] - plain.unknown.get("unreadable", 0)
        assert (summary.messages, found) == (plain.messages, 2)
        assert (await raw_bytes(store, summary)).count(line) >= 2


@pytest.mark.parametrize("name", [name for name in LINES if name != "claude-code"])
async def test_the_line_of_a_key_that_stands_twice_is_kept_as_it_is(
    name: str, tmp_path: Path
) -> None:
    lines = jsonl(LINES[name]).splitlines()
    twice = b"".join(line[:-1] + b',"twice":"earlier","twice":"later"}\n' for line in lines)
    store, summary = await load_data(tmp_path, twice, format=name)
    plain = (await load_data(tmp_path, b"\n".join(lines), format=name))[1]
    assert summary.messages == plain.messages
    kept = await raw_bytes(store, summary)
    assert kept.count(b'"twice":"earlier","twice":"later"') >= len(lines)


async def test_a_key_twice_in_a_claude_code_message_keeps_the_line(tmp_path: Path) -> None:
    row = ClaudeCode().user("one").data()
    row = row.replace(b'"content":"one"', b'"content":"earlier","content":"one"')
    store, summary = await load_data(tmp_path, row)
    assert summary.warnings == (f"line 1: {REPEATED}",)
    assert row.strip() == await raw_bytes(store, summary)


@pytest.mark.parametrize("form", ["summary", "branch"])
async def test_a_message_too_deep_to_be_stored_is_kept_raw_wherever_it_is(
    form: str, tmp_path: Path
) -> None:
    deep: Any = "inside"
    for _ in range(220):
        deep = [deep]
    if form == "summary":
        data = ClaudeCode().user("one").user(deep, isCompactSummary=True).user("two").data()
    else:
        log = Pi(tree=True).user("one").says("user", deep).user("two")
        data = log.back_to("e1").user("three").back_to("e3").user("four").data()
    store, summary = await load_data(tmp_path, data)
    assert summary.unknown["unstorable"] >= 1
    assert b"inside" in await raw_bytes(store, summary)
    assert summary.session is not None
    context = await forked(Engine(store), summary.session)
    assert await context.get_messages_for_request()


def nested(levels: int, inside: Any) -> Any:
    return {"a": nested(levels - 1, inside)} if levels else inside


def counted(**usage: Any) -> bytes:
    """A stream whose last event counts the answer anew."""
    log = ClaudeStream().user("one").answer("m", text("two"))
    message = log.rows[-1]["message"]
    message["usage"] = usage.get("usage", {**message["usage"], **usage})
    return log.event("message_delta", usage={"output_tokens": 77}).over().data()


def with_odd_id(log: ClaudeCode | ClaudeStream) -> bytes:
    log.user("one").answer("m", text("marked")).user("two")
    log.rows[-1]["uuid"] = [{"odd": 1}]
    return log.data()


KEPT: dict[str, tuple[str, bytes]] = {
    "a stream's usage": ("claude-stream", counted(usage="marked")),
    "a stream's count": ("claude-stream", counted(output_tokens={"marked": 1})),
    "a stream's count above all counts": ("claude-stream", counted(output_tokens=2**62)),
    "the answer before an id that is a list": ("claude-code", with_odd_id(ClaudeCode())),
    "the answer before an id that is a list, streamed": (
        "claude-stream",
        with_odd_id(ClaudeStream()),
    ),
    "a stream's compaction": (
        "claude-stream",
        ClaudeStream()
        .user("one")
        .answer("m", text("two"))
        .system("compact_boundary", compact_metadata=nested(600, "marked"))
        .user("three", isSynthetic=True)
        .over()
        .data(),
    ),
    "a command's output": ("codex-exec", CodexExec().turn().ran("a", ["marked"]).over().data()),  # type: ignore[arg-type]
    "a step's thinking": (
        "atif",
        Atif().step("user", "one").acts("two", reasoning_content={"marked": 1}).data(),
    ),
    "a step's part": (
        "atif",
        Atif()
        .step("user", [{"type": {"marked": 1}, "source": {"path": "a.png"}}])
        .acts("two")
        .data(),
    ),
    "a step's part of another type": (
        "atif",
        Atif().step("user", [{"type": "marked", "source": {"path": "a.png"}}]).acts("two").data(),
    ),
    "subagents": (
        "atif",
        Atif().step("user", "one").acts("two").data(subagent_trajectories={"marked": 1}),
    ),
    "no message": ("atif", Atif().step("system", False).step("user", "one").acts("two").data()),
    "a null among results": (
        "gemini-cli",
        Gemini().user("one").answer("two", {**tool("c"), "result": [None]}).data(),
    ),
    "a null among parts": (
        "gemini-cli",
        Gemini().record("user", [says("one"), None]).answer("two").data(),
    ),
}
"""Values in places whose contents become something else, each in a file of a format."""


@pytest.mark.parametrize("where", KEPT)
async def test_a_value_of_another_type_is_kept(where: str, tmp_path: Path) -> None:
    name, data = KEPT[where]
    store, summary = await load_data(tmp_path, data, format=name)
    assert summary.session is not None
    found = await records(store, summary.session)
    bodies = [body.data or b"" for one in found for body in one.bodies]
    kept = b"\n".join([*bodies, await raw_bytes(store, summary)])
    if where == "no message":
        assert b'"message":false' in kept
    elif where == "a null among results":
        assert b'"result":[null]' in kept
    elif where == "a null among parts":
        assert b"null]" in kept
    elif where == "a stream's count above all counts":
        assert b"4611686018427387904" in kept
    else:
        assert b"marked" in kept


# -- usage ---


@pytest.mark.parametrize("tokens", [2**31, 2**63 - 1, 10**400, -5])
@pytest.mark.parametrize("name", ["claude-code", "codex", "messages", "pi"])
async def test_no_reported_usage_keeps_a_session_from_its_next_request(
    name: str, tokens: int, tmp_path: Path
) -> None:
    said = {"input_tokens": tokens, "output_tokens": tokens, "cache_read_input_tokens": tokens}
    data = {
        "claude-code": ClaudeCode().user("one").answer("m", text("x"), usage=said).data(),
        "codex": Codex().says("user", "one").says("assistant", "x").counted(tokens, 5).data(),
        "messages": jsonl([CHAT[0], {**CHAT[1], "usage": said}, CHAT[2]]),
        "pi": Pi().user("one").answer(text("x"), prompt=tokens).data(),
    }[name]
    store, summary = await load_data(tmp_path, data, format=name)
    assert summary.session is not None
    engine = Engine(store)
    context = await forked(engine, summary.session)
    assert len(await context.get_messages_for_request()) == len(
        await messages(store, summary.session)
    )
    assert (await engine.verify(summary.session)).ok


# -- sizes ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (lines, document, source):
        monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    return 1 << 20


async def test_a_line_too_long_for_memory_is_refused_with_what_to_do(
    tmp_path: Path, small_limit: int
) -> None:
    store = MemoryStore()
    path = tmp_path / "file.jsonl"
    path.write_bytes(FILES["claude-code"] + ClaudeCode().user("x" * small_limit).data())
    with pytest.raises(
        MalformedTranscript, match=r"line 36: expected a line of at most 1 MiB.*shorten"
    ):
        await load(store, path)


@pytest.mark.slow
async def test_jsonl_longer_than_a_document_may_be_is_read_after_a_broken_first_line(
    tmp_path: Path, small_limit: int
) -> None:
    rows = [{"role": "user", "content": "x" * 1000}] * (small_limit // 1000 + 10)
    for name in ("messages", None):
        store, summary = await load_data(tmp_path, b'{"broken\n' + jsonl(rows), format=name)
        assert (summary.messages, summary.unknown) == (len(rows), {"unreadable": 1})
        assert summary.session is not None
        assert len(await messages(store, summary.session)) == len(rows)


async def test_lines_that_name_no_session_are_not_collected_for_ever(
    tmp_path: Path, small_limit: int
) -> None:
    data = (b"x" * 1000 + b"\n") * (small_limit // 1000 + 10) + FILES["claude-code"]
    with pytest.raises(MalformedTranscript, match="expected a line that begins a session"):
        await load_data(tmp_path, data, format="claude-code")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
async def test_a_name_that_is_no_text_keeps_no_file_from_being_imported(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"b\xff.jsonl")
    path.write_bytes(jsonl(CHAT))
    store = MemoryStore()
    summary = await load(store, path)
    assert (summary.messages, summary.session) == (len(CHAT), "b")


@pytest.mark.parametrize("tokens", [10**13, 10**30, -1, 1.5, "7"])
async def test_a_tokenizer_that_counts_nonsense_is_passed_over(tokens: Any) -> None:
    context = await Engine(MemoryStore()).session("s", tokenizer=lambda text: tokens)
    await context.add_message({"role": "user", "content": "one"})
    assert await context.get_token_count() < 100
