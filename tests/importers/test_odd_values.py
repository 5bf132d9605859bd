"""Values that no program should write: they cost at most their own line, and no byte of it.

Mutated sessions of every format are in tests/faults/test_damage.py.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import EventctxError, MalformedTranscript
from eventctx.importers.load import ImportSummary
from eventctx.importers.source import document, lines, source
from eventctx.importers.source.lines import nanoseconds
from eventctx.importers.source.values import MAX_DEPTH, REPEATED, REPLACED, decode, read_value
from eventctx.log.codec import stored_harness_bodies
from eventctx.log.ids import check_session_id
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import read_parts
from eventctx.queries import transfer
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.importers.agents import Pi
from tests.importers.given import ClaudeCode, Codex, jsonl, raw_bytes, text
from tests.importers.growing import FILES, LINES, SESSIONS, rows_of
from tests.importers.mutating import mutants_of, write
from tests.importers.outputs import Atif, ClaudeStream, CodexExec
from tests.importers.taken import kept, load, load_data, messages, next_request, records
from tests.importers.terminal_agents import Gemini, says, tool

DEEP = b"[" * 100_000 + b"]" * 100_000
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


async def raw(store: MemoryStore, summary: ImportSummary) -> bytes:
    return raw_bytes(await records(store, summary.session or ""))


def test_a_time_and_a_depth_are_read_up_to_the_last_one() -> None:
    huge = (10**400, 10**12, 1e308, -1e308, float("inf"), float("nan"), 2**63 / 10**9)
    assert {nanoseconds(number) for number in (*huge, True, 0, -1)} == {None}
    assert nanoseconds(1_700_000_000.5) == 1_700_000_000_500_000_000
    assert (nanoseconds(2**63 // 10**9 - 1) or 2**63) < 2**63
    deepest = b"[" * MAX_DEPTH + b'"[[{"' + b"]" * MAX_DEPTH
    assert json.dumps(decode(deepest)).encode() == deepest
    for levels in (MAX_DEPTH + 1, 900, 100_000):
        with pytest.raises(ValueError, match="nested deeper"):
            read_value(b"[" * levels + b"]" * levels)


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
        assert (await raw(store, summary)).count(line) >= 2


@pytest.mark.parametrize("name", [name for name in LINES if name != "claude-code"])
async def test_the_line_of_a_key_that_stands_twice_is_kept_as_it_is(
    name: str, tmp_path: Path
) -> None:
    lines = jsonl(LINES[name]).splitlines()
    twice = b"".join(line[:-1] + b',"twice":"earlier","twice":"later"}\n' for line in lines)
    store, summary = await load_data(tmp_path, twice, format=name)
    plain = (await load_data(tmp_path, b"\n".join(lines), format=name))[1]
    assert summary.messages == plain.messages
    kept = await raw(store, summary)
    assert kept.count(b'"twice":"earlier","twice":"later"') >= len(lines)


async def test_a_key_twice_in_a_claude_code_message_keeps_the_line(tmp_path: Path) -> None:
    twice = b'"content":"earlier","content":"one"'
    row = ClaudeCode().user("one").data().replace(b'"content":"one"', twice)
    store, summary = await load_data(tmp_path, row)
    assert summary.warnings == (f"line 1: {REPEATED}",)
    assert row.strip() == await raw(store, summary)


async def test_a_message_too_deep_to_be_stored_is_kept_raw_wherever_it_is(tmp_path: Path) -> None:
    deep: Any = "inside"
    for _ in range(220):
        deep = [deep]
    summarised = ClaudeCode().user("one").user(deep, isCompactSummary=True).user("two")
    branched = Pi(tree=True).user("one").says("user", deep).user("two")
    branched.back_to("e1").user("three").back_to("e3").user("four")
    for data in (summarised.data(), branched.data()):
        store, summary = await load_data(tmp_path, data)
        assert summary.unknown["unstorable"] >= 1
        assert b"inside" in await raw(store, summary)
        assert await next_request(store, summary.session or "")


def counted(**usage: Any) -> bytes:
    """A stream whose last event counts the answer anew."""
    log = ClaudeStream().user("one").answer("m", text("two"))
    message = log.rows[-1]["message"]
    message["usage"] = usage.get("usage", {**message["usage"], **usage})
    return log.event("message_delta", usage={"output_tokens": 77}).over().data()


def compacted() -> bytes:
    """A stream with a compaction of which far too much is said."""
    deep: Any = "marked"
    for _ in range(600):
        deep = {"a": deep}
    log = ClaudeStream().user("one").answer("m", text("two"))
    log.system("compact_boundary", compact_metadata=deep)
    return log.user("three", isSynthetic=True).over().data()


def step(message: Any = "one", source: str = "user", **fields: Any) -> Atif:
    return Atif().step(source, message).acts("two", **fields)


def with_odd_id(log: ClaudeCode | ClaudeStream) -> bytes:
    log.user("one").answer("m", text("marked")).user("two")
    log.rows[-1]["uuid"] = [{"odd": 1}]
    return log.data()


IMAGE = {"source": {"path": "a.png"}}
KEPT: dict[str, tuple[str, bytes, bytes]] = {
    "a stream's usage": ("claude-stream", b"marked", counted(usage="marked")),
    "a stream's count": ("claude-stream", b"marked", counted(output_tokens={"marked": 1})),
    "a stream's count above all": ("claude-stream", b"%d" % 2**62, counted(output_tokens=2**62)),
    "the answer before an odd id": ("claude-code", b"marked", with_odd_id(ClaudeCode())),
    "the same, streamed": ("claude-stream", b"marked", with_odd_id(ClaudeStream())),
    "a stream's compaction": ("claude-stream", b"marked", compacted()),
    "a command's output": (
        *("codex-exec", b"marked"),
        CodexExec().turn().ran("a", ["marked"]).over().data(),  # type: ignore[arg-type]
    ),
    "a step's thinking": ("atif", b"marked", step(reasoning_content={"marked": 1}).data()),
    "a step's part": ("atif", b"marked", step([{"type": {"marked": 1}, **IMAGE}]).data()),
    "a part of another type": ("atif", b"marked", step([{"type": "marked", **IMAGE}]).data()),
    "subagents": ("atif", b"marked", step().data(subagent_trajectories={"marked": 1})),
    "no message": ("atif", b'"message":false', step(False, "system").step("user", "one").data()),
    "a null among results": (
        *("gemini-cli", b'"result":[null]'),
        Gemini().user("one").answer("two", {**tool("c"), "result": [None]}).data(),
    ),
    "a null among parts": (
        *("gemini-cli", b"null]"),
        Gemini().record("user", [says("one"), None]).answer("two").data(),
    ),
}
"""Values in places whose contents become something else, each in a file of a format."""
"""Values in places whose contents become something else, each in a file of a format."""


@pytest.mark.parametrize("where", KEPT)
async def test_a_value_of_another_type_is_kept(where: str, tmp_path: Path) -> None:
    name, mark, data = KEPT[where]
    store, summary = await load_data(tmp_path, data, format=name)
    assert mark in await kept(store, summary.session or "")


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
    session = summary.session or ""
    assert len(await next_request(store, session)) == len(await messages(store, session)) > 0
    assert (await Engine(store).verify(session)).ok


# -- sizes ---


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (lines, document, source):
        monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    return 1 << 20


async def test_lines_too_long_or_without_a_session_are_refused_with_what_to_do(
    tmp_path: Path, small_limit: int
) -> None:
    too_long = FILES["claude-code"] + ClaudeCode().user("x" * small_limit).data()
    words = r"line 36: expected a line of at most 1 MiB.*shorten"
    with pytest.raises(MalformedTranscript, match=words):
        await load_data(tmp_path, too_long)
    unnamed = (b"x" * 1000 + b"\n") * (small_limit // 1000 + 10) + FILES["claude-code"]
    with pytest.raises(MalformedTranscript, match="expected a line that begins a session"):
        await load_data(tmp_path, unnamed, format="claude-code")


async def test_jsonl_longer_than_a_document_may_be_is_read_after_a_broken_first_line(
    tmp_path: Path, small_limit: int
) -> None:
    rows = [{"role": "user", "content": "x" * 4000}] * (small_limit // 4000 + 10)
    for name in ("messages", None):
        store, summary = await load_data(tmp_path, b'{"broken\n' + jsonl(rows), format=name)
        assert (summary.messages, summary.unknown) == (len(rows), {"unreadable": 1})
        assert len(await messages(store, summary.session or "")) == len(rows)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text there")
async def test_a_name_that_is_no_text_keeps_no_file_from_being_imported(tmp_path: Path) -> None:
    _, summary = await load_data(tmp_path, jsonl(CHAT), os.fsdecode(b"b\xff.jsonl"))
    assert (summary.messages, summary.session) == (len(CHAT), "b")


@pytest.mark.parametrize("tokens", [10**13, 10**30, -1, 1.5, "7"])
async def test_a_tokenizer_that_counts_nonsense_is_passed_over(tokens: Any) -> None:
    context = await Engine(MemoryStore()).session("s", tokenizer=lambda text: tokens)
    await context.add_message({"role": "user", "content": "one"})
    assert await context.get_token_count() < 100


async def exported(folder: Path) -> list[dict[str, Any]]:
    log = ClaudeCode().user("one").answer("m", text("two")).user("three")
    store, _ = await load_data(folder, log.data())
    (info,) = [one async for one in store.streams()]
    return [json.loads(line) async for line in transfer.export_lines(store, info)]


async def test_an_export_with_anything_in_it_is_imported_or_refused(tmp_path: Path) -> None:
    rows = await exported(tmp_path)
    for number, (first, *rest) in enumerate(mutants_of(rows, "export", count=60, seed=1)):
        assert transfer.looks_like_export(first) in (True, False)
        store = MemoryStore()
        with contextlib.suppress(EventctxError):
            header = transfer.read_header(first)
            await transfer.import_drafts(
                store, check_session_id(header.session), transfer.read_drafts(rest)
            )
            assert (await Engine(store).verify(header.session)).ok, number


def test_no_first_line_keeps_a_file_from_being_looked_at() -> None:
    for line in (b'{"x":' + b"[" * 60_000, b"\xff", b'{"eventctx":"\xff"}', b'{"eventctx":1e999}'):
        assert not transfer.looks_like_export(line)
        with pytest.raises(MalformedTranscript, match="line 1"):
            transfer.read_header(line)


@pytest.mark.parametrize("field", ["position", "version", "time", "iteration"])
async def test_a_number_that_no_record_can_have_is_no_record(field: str, tmp_path: Path) -> None:
    _, first, *_ = await exported(tmp_path)
    for value in (-1, 2**32, 2**63, 2**64, 10**400):
        with pytest.raises(MalformedTranscript, match="line 2"):
            list(transfer.read_drafts([json.dumps({**first, field: value}).encode()]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
async def test_a_record_with_the_id_of_another_one_hides_no_words_of_a_person(
    name: str, tmp_path: Path
) -> None:
    rows = rows_of(name)
    said = await persons_words(name, rows, tmp_path)
    for changed in islice(with_an_id_twice(rows), 0, None, some(2, 1)):
        assert said <= await persons_words(name, changed, tmp_path)


async def persons_words(name: str, rows: list[Any], folder: Path) -> Counter[str]:
    """The texts that persons said, in the transcript of a file of these rows."""
    path, store = write(folder, name, [json.dumps(row).encode() for row in rows]), MemoryStore()
    done = await load(store, path, format=SESSIONS[name][0], complete=True)
    found: Counter[str] = Counter()
    for record in await records(store, done.session or ""):
        by_harness = stored_harness_bodies(record.type, record.payload).harness
        if record.type != "context:message_added" or by_harness:
            continue
        message = decode_body(record.bodies[0].data or b"")
        if read_facts(message).human:
            found.update([str(part.value) for part in read_parts(message) if part.kind == "text"])
    return found


def with_an_id_twice(rows: list[Any]) -> Iterator[list[Any]]:
    """Files in which a record has the id of the first one, or of the one before it."""
    places = [(key, holder[key]) for holder, key in holders_of_ids(rows)]
    for at, (key, own) in enumerate(places):
        earlier = [given for name, given in places[:at] if name == key and given != own]
        for taken in {*earlier[:1], *earlier[-1:]}:
            changed = copy.deepcopy(rows)
            list(holders_of_ids(changed))[at][0][key] = taken
            yield changed


def holders_of_ids(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Every object with an id, and the id's name."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from holders_of_ids(inner)
        elif isinstance(inner, str) and key in ("id", "uuid"):
            yield value, key
