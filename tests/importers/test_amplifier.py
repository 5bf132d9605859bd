"""Amplifier's transcripts and stored contexts; its files of a session are one session."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventctx.cli.main import cli
from eventctx.errors import SourceChanged
from eventctx.importers.detect import passed_over, session_source
from eventctx.importers.formats.amplifier_log import parse
from eventctx.importers.source.items import CompactionItem, Waiting, Warned
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, amplifier_talk
from tests.importers.given import (
    always,
    items_of,
    jsonl,
    load,
    load_data,
    messages,
    of_type,
    put,
    records,
    same,
    text,
    texts,
)

# -- the transcript, and context-persistent ------------------------------------------------------


def stored() -> list[dict[str, Any]]:
    """The rows of a call, as context-persistent writes them."""
    arguments = {"path": "x"}
    called = {"type": "tool_call", "id": "t1", "name": "read", "input": arguments}
    again = {"id": "t1", "tool": "read", "arguments": arguments}
    rows = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [called], "tool_calls": [again]},
        {"role": "tool", "tool_call_id": "t1", "name": "read", "content": '{"success": true}'},
        {"role": "assistant", "content": [text("done")]},
    ]
    times = [f"2026-01-01T10:00:0{number}.000+00:00" for number in range(5)]
    return [{**row, "timestamp": time} for row, time in zip(rows, times, strict=True)]


async def test_context_persistents_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    path = put(tmp_path / "amp-1" / "context-messages.jsonl", jsonl(stored()))
    store = MemoryStore()
    summary = await load(store, path)
    assert (summary.format, summary.session) == ("context-persistent", "amp-1.context")
    assert await messages(store, "amp-1.context") == stored()
    assert (summary.turns, summary.calls) == (1, 2)
    assert (await load(store, path)).added == 0


# -- compactions ---------------------------------------------------------------------------------


def compacted(log: AmplifierLog) -> AmplifierLog:
    """A talk of three turns, of which the request after a compaction has the last one."""
    for number in range(3):
        log.prompt(f"question {number}").request().response(text(f"answer {number}"))
    log.prompt("now").event("context:compaction", before_messages=8, after_messages=4)
    log.talk = [*log.talk[4:]]
    return log.request().response(text("fine"))


def test_a_compaction_without_its_request_keeps_as_many_as_it_says() -> None:
    log = compacted(AmplifierLog())
    for row in log.rows[-2:]:
        row["data"].pop("raw", None)
    (compaction,) = of_type(items_of(parse, log.data()), CompactionItem)
    assert (compaction.forgotten, compaction.kept_from) == (None, 4)
    log = AmplifierLog().event("context:compaction").event("context:compaction")
    found = of_type(items_of(parse, log.data(), always), CompactionItem)
    assert [item.forgotten for item in found] == [frozenset(), frozenset()]
    assert len(of_type(items_of(parse, log.data()), Waiting)) == 1


def test_a_text_that_a_compaction_shortened_is_no_new_message() -> None:
    log = compacted(AmplifierLog())
    log.talk[0] = {"role": "user", "content": "question…"}
    found = items_of(parse, log.prompt("and").request().data())
    assert [m["content"] for m in texts(found)].count("question…") == 0


def test_messages_that_vanish_without_a_word_are_warned_about_once() -> None:
    log = AmplifierLog().prompt("a").request().response(text("b"))
    log.talk = []
    log.prompt("c").request().response(text("d")).prompt("e").request()
    assert len(of_type(items_of(parse, log.data()), Warned)) == 1


# -- the folder of a session, whichever file is named first ----------------------------------------

ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [text("a plan")]},
    {"role": "assistant", "content": [{"type": "tool_call", "id": "t1", "name": "f", "input": {}}]},
    {"role": "tool", "tool_call_id": "t1", "name": "f", "content": "{}"},
]
BETWEEN = "context-intelligence"


def session(root: Path, name: str = "amp-1", *, between: bool = False) -> Path:
    """A session's folder with its transcript and its log."""
    folder = root / name
    log = amplifier_talk()
    for row in log.rows:
        row["session_id"] = name
    put((folder / BETWEEN if between else folder) / "events.jsonl", log.data())
    put(folder / "metadata.json", b'{"last_turn": "completed"}')
    return put(folder / "transcript.jsonl", jsonl(ROWS)).parent


async def test_a_log_that_does_not_name_its_session_is_named_by_its_folder(tmp_path: Path) -> None:
    log = amplifier_talk()
    for row in log.rows:
        del row["session_id"]
    path = put(tmp_path / "amp-9" / BETWEEN / "events.jsonl", log.data())
    assert (await load(MemoryStore(), path)).session == "amp-9"


async def test_a_transcript_without_times_is_amplifiers(tmp_path: Path) -> None:
    store = MemoryStore()
    summary = await load(store, put(tmp_path / "amp-7" / "transcript.jsonl", jsonl(ROWS)))
    assert (summary.format, summary.session) == ("amplifier", "amp-7")
    assert await messages(store, "amp-7") == ROWS
    assert (await load_data(tmp_path, jsonl(ROWS)))[1].format == "amplifier"


@pytest.mark.parametrize("stamp", [{}, {"timestamp": "2026-01-01T10:00:00.000+00:00"}])
async def test_a_transcript_of_texts_alone_is_known_by_its_folder(
    stamp: dict[str, str], tmp_path: Path
) -> None:
    rows = [{**row, **stamp} for row in (ROWS[0], {"role": "assistant", "content": "hi"})]
    put(tmp_path / "amp-7" / "metadata.json", b"{}")
    summary = await load(MemoryStore(), put(tmp_path / "amp-7" / "transcript.jsonl", jsonl(rows)))
    assert (summary.format, summary.session) == ("amplifier", "amp-7")


@pytest.mark.parametrize("between", [False, True])
async def test_the_files_of_a_session_are_one_session_in_any_order(
    between: bool, tmp_path: Path
) -> None:
    folder = session(tmp_path, between=between)
    log = folder / BETWEEN / "events.jsonl" if between else folder / "events.jsonl"
    expected = MemoryStore()
    alone = put(tmp_path / "alone" / "events.jsonl", log.read_bytes())
    assert (await load(expected, alone)).session == "amp-1"
    for paths in itertools.permutations((folder, folder / "transcript.jsonl", log)):
        store = MemoryStore()
        done = [await load(store, path) for path in paths]
        assert {(one.session, one.path) for one in done} == {("amp-1", log)}
        assert [bool(one.added) for one in done] == [True, False, False]
        assert await same(store, expected, "amp-1")


async def test_a_log_without_answers_does_not_tell_the_session(tmp_path: Path) -> None:
    folder = session(tmp_path)
    log = AmplifierLog().prompt("go").event("tool:pre", tool_call_id="t1").event("llm:request")
    for number in range(55):
        log.event("llm:response", model="m", usage={"input": 100 + number, "output": 1})
    path = put(folder / "events.jsonl", log.data())
    assert session_source(folder) == folder / "transcript.jsonl"
    assert "without the text of answers" in (passed_over(path) or "")
    assert passed_over(folder / "transcript.jsonl") is None
    store = MemoryStore()
    await load(store, path)
    assert await messages(store, "amp-1") == ROWS
    # With the format's name a file is taken as it is.
    alone = await load(store, path, format="amplifier", session="calls", complete=True)
    assert (alone.messages, alone.calls) == (1, 55)


async def test_of_two_logs_the_one_with_whole_requests_tells_the_session(tmp_path: Path) -> None:
    folder = session(tmp_path, between=True)
    lean = AmplifierLog().prompt("go").event("llm:request").event("llm:response")
    lean.event("content_block:end", block=text("done"))
    path, whole = put(folder / "events.jsonl", lean.data()), folder / BETWEEN / "events.jsonl"
    assert session_source(path) == session_source(folder) == whole
    assert BETWEEN in (passed_over(path) or "")
    assert session_source(put(whole, lean.data())) == path


async def test_the_source_stays_the_same_while_the_files_grow(tmp_path: Path) -> None:
    folder = session(tmp_path)
    log, transcript = folder / "events.jsonl", folder / "transcript.jsonl"
    lines, rows = log.read_bytes().splitlines(True), transcript.read_bytes().splitlines(True)
    answered = next(n for n, line in enumerate(lines, 1) if b"llm:response" in line)
    transcript.unlink()
    store = MemoryStore()
    for count in range(1, len(lines) + 1):
        log.write_bytes(b"".join(lines[:count]))
        if count >= answered:
            transcript.write_bytes(b"".join(rows[: count - answered + 1]))
        await load(store, folder if count >= answered else log)
    assert (await load(store, log)).added == 0


async def test_a_log_that_appears_next_to_an_imported_transcript_is_not_mixed_in(
    tmp_path: Path,
) -> None:
    folder, store = session(tmp_path), MemoryStore()
    log = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").unlink()
    await load(store, folder)
    put(folder / "events.jsonl", log)
    with pytest.raises(SourceChanged, match="--session NEW"):
        await load(store, folder)


# -- the command -----------------------------------------------------------------------------------


def test_a_search_finds_each_session_once_and_says_what_it_passed_over(tmp_path: Path) -> None:
    session(tmp_path / "in", "amp-1")
    session(tmp_path / "in", "amp-2", between=True)
    import_it = ["import", str(tmp_path / "in"), "--store"]
    done = CliRunner().invoke(cli, [*import_it, str(tmp_path / "a.db")])
    assert (done.exit_code, done.stdout.count("tells the same session")) == (0, 2)
    done = CliRunner().invoke(cli, [*import_it, str(tmp_path / "b.db"), "--json"])
    found = [one["session"] for one in json.loads(done.stdout)["sessions"]]
    assert sorted(found) == ["amp-1", "amp-2"]


# -- a session that is taken over ----------------------------------------------------------------

CONTEXT = "context-messages.jsonl"


def as_context_persistent(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as context-persistent writes them: with system messages, and a time for each."""
    memory = {"role": "system", "content": "[Context from MEM.md]\n\nUse tabs."}
    return [{**row, "timestamp": "2026-01-01T10:00:00.000+00:00"} for row in (memory, *rows)]


async def test_a_session_is_taken_over_from_the_messages_that_amplifiers_loops_know(
    tmp_path: Path,
) -> None:
    folder, kept = session(tmp_path), as_context_persistent(ROWS)
    told = [(folder / name, ROWS) for name in ("transcript.jsonl", "events.jsonl")]
    told += [(path, kept) for path in (folder, folder / CONTEXT, folder / "transcript.jsonl")]
    for path, rows in told:
        if rows is kept:
            put(folder / CONTEXT, jsonl(kept))
        store = MemoryStore()
        summary = await load(store, path, take_over=True)
        source = CONTEXT if rows is kept else "transcript.jsonl"
        assert (summary.session, summary.path.name) == ("amp-1", source)
        assert await messages(store, "amp-1") == rows
    assert (await load(MemoryStore(), folder / CONTEXT)).session == "amp-1.context"


@pytest.mark.parametrize("between", [False, True])
async def test_a_mirror_is_taken_over_from_the_file_that_it_mirrors(
    between: bool, tmp_path: Path
) -> None:
    folder, store = session(tmp_path, between=between), MemoryStore()
    put(folder / CONTEXT, jsonl(as_context_persistent(ROWS)))
    mirrored = await load(store, folder)
    summary = await load(store, folder, take_over=True)
    assert summary.taken_over
    assert (mirrored.session, mirrored.path) == (summary.session, summary.path)
    assert summary.path.name == "events.jsonl"


async def test_a_mirror_of_a_file_elsewhere_is_not_taken_over_from_this_one(tmp_path: Path) -> None:
    folder, store = session(tmp_path / "one"), MemoryStore()
    (folder / "events.jsonl").unlink()
    other = put(tmp_path / "two" / "amp-1" / CONTEXT, jsonl(as_context_persistent(ROWS)))
    await load(store, folder)
    before = await records(store, "amp-1")
    with pytest.raises(SourceChanged, match=r"mirrors transcript\.jsonl, which is not in"):
        await load(store, other.parent, take_over=True)
    assert await records(store, "amp-1") == before
