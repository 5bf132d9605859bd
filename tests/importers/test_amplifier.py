"""Amplifier's transcripts and stored contexts; its files of a session are one session."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eventctx.cli.main import cli
from eventctx.errors import SourceChanged
from eventctx.importers.detect import passed_over, session_source
from eventctx.importers.formats.amplifier_log import parse
from eventctx.importers.source.items import (
    CompactionItem,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, amplifier_talk
from tests.importers.given import (
    always,
    items_of,
    jsonl,
    load,
    messages,
    of_type,
    records,
    story,
    text,
    texts,
)

# -- the transcript, and context-persistent ------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    arguments = {"path": "x"}
    return [
        {"role": "user", "content": "go", "metadata": {"timestamp": "2026-01-01T10:00:00+00:00"}},
        {
            "role": "assistant",
            "content": [{"type": "tool_call", "id": "t1", "name": "read", "input": arguments}],
            "tool_calls": [{"id": "t1", "tool": "read", "arguments": arguments}],
        },
        {"role": "tool", "tool_call_id": "t1", "name": "read", "content": '{"success": true}'},
        {"role": "assistant", "content": [text("done")]},
    ]


async def test_a_log_that_does_not_name_its_session_is_named_by_its_folder(tmp_path: Path) -> None:
    log = amplifier_talk()
    for row in log.rows:
        del row["session_id"]
    path = tmp_path / "amp-9" / "context-intelligence" / "events.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(log.data())
    assert (await load(MemoryStore(), path)).session == "amp-9"


def stored() -> list[dict[str, Any]]:
    stamps = [f"2026-01-01T10:00:0{number}.000+00:00" for number in range(5)]
    system = {"role": "system", "content": "be good"}
    plain = [{k: v for k, v in row.items() if k != "metadata"} for row in rows()]
    return [
        {**row, "timestamp": stamp} for row, stamp in zip([system, *plain], stamps, strict=True)
    ]


async def test_context_persistents_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "amp-1" / "context-messages.jsonl"
    path.parent.mkdir()
    path.write_bytes(jsonl(stored()))
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


def test_a_compaction_that_says_nothing_is_counted() -> None:
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
    {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": "t1", "name": "read", "input": {}}],
    },
    {"role": "tool", "tool_call_id": "t1", "name": "read", "content": "{}"},
]
BETWEEN = "context-intelligence"


def session(root: Path, name: str = "amp-1", *, between: bool = False) -> Path:
    """A session's folder with its transcript and its log."""
    folder = root / name
    place = folder / BETWEEN if between else folder
    place.mkdir(parents=True)
    (folder / "transcript.jsonl").write_bytes(jsonl(ROWS))
    (folder / "metadata.json").write_text('{"last_turn": "completed"}')
    log = amplifier_talk()
    for row in log.rows:
        row["session_id"] = name
    (place / "events.jsonl").write_bytes(log.data())
    return folder


async def test_a_transcript_without_times_is_amplifiers(tmp_path: Path) -> None:
    path = tmp_path / "amp-7" / "transcript.jsonl"
    path.parent.mkdir()
    path.write_bytes(jsonl(ROWS))
    store = MemoryStore()
    summary = await load(store, path)
    assert (summary.format, summary.session) == ("amplifier", "amp-7")
    assert await messages(store, "amp-7") == ROWS
    other = tmp_path / "copy.jsonl"
    other.write_bytes(jsonl(ROWS))
    assert (await load(MemoryStore(), other)).format == "amplifier"


@pytest.mark.parametrize("stamp", [{}, {"timestamp": "2026-01-01T10:00:00.000+00:00"}])
async def test_a_transcript_of_texts_alone_is_known_by_its_folder(
    stamp: dict[str, str], tmp_path: Path
) -> None:
    rows = [{**row, **stamp} for row in (ROWS[0], {"role": "assistant", "content": "hi"})]
    path = tmp_path / "amp-7" / "transcript.jsonl"
    path.parent.mkdir()
    path.write_bytes(jsonl(rows))
    (path.parent / "metadata.json").write_text("{}")
    summary = await load(MemoryStore(), path)
    assert (summary.format, summary.session) == ("amplifier", "amp-7")


@pytest.mark.parametrize("between", [False, True])
async def test_the_files_of_a_session_are_one_session_in_any_order(
    between: bool, tmp_path: Path
) -> None:
    folder = session(tmp_path, between=between)
    log = folder / BETWEEN / "events.jsonl" if between else folder / "events.jsonl"
    alone = tmp_path / "alone" / "events.jsonl"
    alone.parent.mkdir()
    alone.write_bytes(log.read_bytes())
    expected = MemoryStore()
    assert (await load(expected, alone)).session == "amp-1"
    for paths in itertools.permutations((folder, folder / "transcript.jsonl", log)):
        store = MemoryStore()
        summaries = [await load(store, path) for path in paths]
        assert {summary.session for summary in summaries} == {"amp-1"}
        assert [bool(summary.added) for summary in summaries] == [True, False, False]
        assert {summary.path for summary in summaries} == {log}
        found = await records(store, "amp-1")
        assert story(found) == story(await records(expected, "amp-1"))


async def test_a_log_without_answers_does_not_tell_the_session(tmp_path: Path) -> None:
    folder = session(tmp_path)
    log = AmplifierLog().prompt("go").event("tool:pre", tool_call_id="t1").event("llm:request")
    for number in range(55):
        log.event("llm:response", model="m", usage={"input": 100 + number, "output": 1})
    (folder / "events.jsonl").write_bytes(log.data())
    assert session_source(folder) == folder / "transcript.jsonl"
    assert "without the text of answers" in (passed_over(folder / "events.jsonl") or "")
    assert passed_over(folder / "transcript.jsonl") is None
    store = MemoryStore()
    await load(store, folder / "events.jsonl")
    assert await messages(store, "amp-1") == ROWS
    # With the format's name a file is taken as it is.
    log_itself = {"format": "amplifier", "session": "calls", "complete": True}
    alone = await load(store, folder / "events.jsonl", **log_itself)
    assert (alone.messages, alone.calls) == (1, 55)


async def test_of_two_logs_the_one_with_whole_requests_tells_the_session(tmp_path: Path) -> None:
    folder = session(tmp_path, between=True)
    lean = AmplifierLog().prompt("go").event("llm:request").event("llm:response")
    lean.event("content_block:end", block=text("done"))
    (folder / "events.jsonl").write_bytes(lean.data())
    whole = folder / BETWEEN / "events.jsonl"
    assert session_source(folder / "events.jsonl") == session_source(folder) == whole
    assert "context-intelligence" in (passed_over(folder / "events.jsonl") or "")
    whole.write_bytes(lean.data())
    assert session_source(whole) == folder / "events.jsonl"


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
    folder = session(tmp_path)
    log = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").unlink()
    store = MemoryStore()
    await load(store, folder)
    (folder / "events.jsonl").write_bytes(log)
    with pytest.raises(SourceChanged, match="--session NEW"):
        await load(store, folder)


# -- the command -----------------------------------------------------------------------------------


def run(store: Path, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["--store", str(store), "import", *map(str, arguments)])


def test_a_search_finds_each_session_once_and_says_what_it_passed_over(tmp_path: Path) -> None:
    session(tmp_path / "in", "amp-1")
    session(tmp_path / "in", "amp-2", between=True)
    done = run(tmp_path / "a.db", tmp_path / "in")
    assert done.exit_code == 0
    assert len([line for line in done.stdout.splitlines() if "tells the same session" in line]) == 2
    done = run(tmp_path / "b.db", tmp_path / "in", "--json")
    found = [one["session"] for one in json.loads(done.stdout)["sessions"]]
    assert sorted(found) == ["amp-1", "amp-2"]


# -- a session that is taken over ----------------------------------------------------------------

CONTEXT = "context-messages.jsonl"
MEMORY = {"role": "system", "content": "[Context from MEM.md]\n\nUse tabs."}


def as_context_persistent(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as context-persistent writes them: with system messages, and a time for each."""
    stamp = "2026-01-01T10:00:00.000+00:00"
    return [{**row, "timestamp": stamp} for row in (MEMORY, *rows)]


async def test_a_session_is_taken_over_from_the_messages_that_amplifiers_loops_know(
    tmp_path: Path,
) -> None:
    folder = session(tmp_path)
    for name in ("transcript.jsonl", "events.jsonl"):
        store = MemoryStore()
        summary = await load(store, folder / name, take_over=True)
        assert (summary.session, summary.path.name) == ("amp-1", "transcript.jsonl")
        assert await messages(store, "amp-1") == ROWS
    kept = as_context_persistent(ROWS)
    (folder / CONTEXT).write_bytes(jsonl(kept))
    for path in (folder, folder / CONTEXT, folder / "transcript.jsonl"):
        store = MemoryStore()
        summary = await load(store, path, take_over=True)
        assert (summary.session, summary.path.name) == ("amp-1", CONTEXT)
        assert await messages(store, "amp-1") == kept
    store = MemoryStore()
    assert (await load(store, folder / CONTEXT)).session == "amp-1.context"


@pytest.mark.parametrize("between", [False, True])
async def test_a_mirror_is_taken_over_from_the_file_that_it_mirrors(
    between: bool, tmp_path: Path
) -> None:
    folder = session(tmp_path, between=between)
    (folder / CONTEXT).write_bytes(jsonl(as_context_persistent(ROWS)))
    store = MemoryStore()
    mirrored = await load(store, folder)
    summary = await load(store, folder, take_over=True)
    assert summary.taken_over
    assert (mirrored.session, mirrored.path) == (summary.session, summary.path)
    assert summary.path.name == "events.jsonl"


async def test_a_mirror_of_a_file_elsewhere_is_not_taken_over_from_this_one(tmp_path: Path) -> None:
    folder = session(tmp_path / "one")
    (folder / "events.jsonl").unlink()
    other = tmp_path / "two" / "amp-1" / CONTEXT
    other.parent.mkdir(parents=True)
    other.write_bytes(jsonl(as_context_persistent(ROWS)))
    store = MemoryStore()
    await load(store, folder)
    before = await records(store, "amp-1")
    with pytest.raises(SourceChanged, match=r"mirrors transcript\.jsonl, which is not in"):
        await load(store, other.parent, take_over=True)
    assert await records(store, "amp-1") == before
