"""Amplifier's stored contexts, its logs (reference/formats.md 3.3), and all files of a session."""

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
from eventctx.importers.formats import amplifier
from eventctx.importers.formats.amplifier_log import parse
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, amplifier_talk, passing_reminder
from tests.importers.given import call, jsonl, put, text, thinking
from tests.importers.items import always, ended_usages, items_of, of_type, roles, texts
from tests.importers.taken import load, load_data, messages, records, same

# -- the transcript, and context-persistent ------------------------------------------------------


async def test_context_persistents_rows_are_taken_as_they_are(tmp_path: Path) -> None:
    rows, store = as_context_persistent(ROWS), MemoryStore()
    path = put(tmp_path / "amp-1" / CONTEXT, jsonl(rows))
    summary = await load(store, path)
    assert (summary.format, summary.session) == ("context-persistent", "amp-1.context")
    assert await messages(store, "amp-1.context") == rows
    assert (summary.turns, summary.calls) == (1, 2)
    assert (await load(store, path)).added == 0


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


def test_a_compaction_is_no_message_and_what_vanishes_without_one_is_told() -> None:
    log = compacted(AmplifierLog())
    log.talk[0] = {"role": "user", "content": "question…"}
    found = items_of(parse, log.prompt("and").request().data())
    assert [m["content"] for m in texts(found)].count("question…") == 0
    log = AmplifierLog().prompt("a").request().response(text("b"))
    log.talk = []
    log.prompt("c").request().response(text("d")).prompt("e").request()
    assert len(of_type(items_of(parse, log.data()), Warned)) == 1


# -- the folder of a session, whichever file is named first ----------------------------------------

CALLED = {"type": "tool_call", "id": "t1", "name": "f", "input": {}}
AGAIN = [{"id": "t1", "tool": "f", "arguments": {}}]
ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [text("a plan")]},
    {"role": "assistant", "content": [CALLED], "tool_calls": AGAIN},
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


async def test_the_log_with_whole_requests_and_answers_tells_the_session(tmp_path: Path) -> None:
    folder = session(tmp_path, between=True)
    lean = AmplifierLog().prompt("go").event("llm:request").event("llm:response")
    lean.event("content_block:end", block=text("done"))
    path, whole = put(folder / "events.jsonl", lean.data()), folder / BETWEEN / "events.jsonl"
    assert session_source(path) == session_source(folder) == whole
    assert BETWEEN in (passed_over(path) or "")
    assert session_source(put(whole, lean.data())) == path
    folder = session(tmp_path / "other")
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


async def test_a_log_that_appears_next_to_an_imported_file_is_not_mixed_in(tmp_path: Path) -> None:
    folder, store = session(tmp_path), MemoryStore()
    log = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").unlink()
    await load(store, folder)
    put(folder / "events.jsonl", log)
    with pytest.raises(SourceChanged, match="--session NEW"):
        await load(store, folder)


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


async def test_a_session_is_taken_over_from_the_messages_that_loops_know(tmp_path: Path) -> None:
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


# -- the event log -------------------------------------------------------------------------------


def test_usage_in_the_other_dialect_and_in_the_providers_words() -> None:
    log = AmplifierLog().prompt("go")
    for value in "abc":
        log.request().response(text(value))
    answers = [row["data"] for row in log.rows if row["event"] == "llm:response"]
    answers[0]["usage"] = {"input": 10, "cache_write": 5, "cache_read": 4, "output": 3}
    answers[1]["usage"] = None
    answers[1]["raw"]["usage"] = {"input_tokens": 1, "cache_read_input_tokens": 20}
    answers[2]["usage"] = {"input_tokens": 0, "output_tokens": 0}
    first, second, third = ended_usages(items_of(parse, log.data()))
    assert (first.prompt, first.cache_read, first.output) == (15, 4, 3)
    assert (second.prompt, third) == (21, None)


def test_a_log_may_write_its_names_lines_and_failures_in_another_form() -> None:
    log = amplifier_talk()
    flat = [{**row, **row["data"], "type": row["event"]} for row in log.rows]
    for row in flat:
        del row["event"], row["data"]
    found = items_of(amplifier.parse, jsonl(flat))
    assert texts(found) == texts(items_of(parse, log.data()))
    assert len(of_type(found, ModelCall)) == 2
    log = AmplifierLog().prompt("go").request().response(call("t1"), call("t2"))
    log.tool("t1").tool("t2")
    log.rows[-1]["data"]["result"] = "Error: no such file"
    assert of_type(items_of(parse, log.request().data()), MessageItem)[-1].failed
    named = amplifier_talk().data().replace(b"amp-1", b"0000000000000000-4f1c2d3e4a5b6c7d_explorer")
    (first,) = of_type(items_of(parse, named), Session)
    assert first.agent == "explorer"


def test_of_each_request_only_what_is_new_is_kept() -> None:
    log = AmplifierLog().prompt("go " + "x" * 5_000)
    for number in range(20):
        log.request(tools=[{"name": "y" * 5_000}]).response(call(f"t{number}")).tool(f"t{number}")
    found = items_of(parse, log.data())
    requests = [raw.data for raw in of_type(found, Raw) if raw.kind == "llm:request.rest"]
    assert len(requests) == 20
    assert max(map(len, requests[1:])) < 2_000
    last = json.loads(requests[-1])["data"]["raw"]
    lines = [n for n, row in enumerate(log.rows, 1) if row["event"] == "llm:request"]
    assert last["tools"] == {"same_as_line": lines[-2]}
    assert last["messages"]["then"] == log.talk[last["messages"]["first"] : -2]


def test_a_reminder_in_passing_is_no_message_unless_a_later_request_still_has_it() -> None:
    log = AmplifierLog().prompt("go").request(passing_reminder()).response(call("t1")).tool("t1")
    row = log.request().rows[-1]
    sent = json.loads(json.dumps(row["data"]["raw"]["messages"]))
    sent[-1]["content"][0]["content"] += "\n\n<system-reminder>x</system-reminder>"
    row["data"]["raw"]["messages"] = sent
    found = items_of(parse, log.response(text("x")).data())
    assert texts(found)[1:] == log.talk
    rest = [raw.data for raw in of_type(found, Raw) if raw.kind == "llm:request.rest"]
    assert [b"<system-reminder>" in data for data in rest] == [True, True]
    log = AmplifierLog().prompt("go").request(passing_reminder())
    log.talk.append(passing_reminder())
    log.response(text("a")).prompt("more").request().response(text("b"))
    assert passing_reminder() in texts(items_of(parse, log.data()))


def test_the_same_words_twice_are_two_messages_and_with_a_moved_mark_one() -> None:
    log = AmplifierLog()
    for _ in range(3):
        log.prompt("continue").request().response(text("ok"))
    found = items_of(parse, log.data())
    assert roles(found) == ["system", *["user", "assistant"] * 3]
    assert len(of_type(found, TurnBegan)) == 3
    log = AmplifierLog().prompt("go").request().response(call("t1")).tool("t1").request()
    for row in log.rows:
        if row["event"] == "llm:request":
            sent = [dict(message) for message in row["data"]["raw"]["messages"]]
            content = sent[-1]["content"]
            blocks = [text(content)] if isinstance(content, str) else content
            sent[-1]["content"] = [{**blocks[-1], "cache_control": {"type": "ephemeral"}}]
            row["data"]["raw"]["messages"] = sent
    found = items_of(parse, log.data())
    assert roles(found) == ["system", "user", "assistant", "user"]
    assert not any("cache_control" in json.dumps(message) for message in texts(found))


def test_a_log_is_read_from_its_middle_on_and_goes_on_in_the_same_file() -> None:
    log = amplifier_talk().prompt("more").request().response(text("sure"))
    found = items_of(parse, jsonl(log.rows[-4:]))
    assert texts(found) == [{"role": "system", "content": [text("be good")]}, *log.talk]
    assert len(of_type(found, ModelCall)) == 1
    log = amplifier_talk().event("session:end").event("session:resume").prompt("more").request()
    log.rows[-4]["ts"] = "2020-01-01T00:00:00Z"
    found = items_of(parse, log.response(text("sure")).data())
    assert roles(found) == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert len(of_type(found, Session)) == 1


# -- logs without the requests' messages ---------------------------------------------------------


def lean() -> AmplifierLog:
    """What is logged where the requests and answers themselves are not."""
    log = AmplifierLog().event("prompt:submit", prompt="go").event("provider:request")
    log.event("llm:request", model="m", provider="p")
    log.event("llm:response", model="m", usage={"input_tokens": 5})
    thought = {"type": "thinking", "text": "hm", "signature": "s"}
    used = {"type": "tool_call", "id": "t1", "name": "bash", "arguments": {"a": 1}}
    for block in (thought, used):
        log.event("content_block:start").event("content_block:end", block=block)
    log.event("tool:post", tool_call_id="t1", tool_name="bash", result={"output": "x"})
    log.event("provider:request").event("llm:request").event("llm:response")
    return log.event("content_block:end", block=text("done")).event("prompt:complete")


def test_the_events_themselves_tell_what_the_requests_do_not() -> None:
    found = items_of(parse, lean().data())
    first, answer, result, last = texts(found)
    called = {"type": "tool_call", "id": "t1", "name": "bash", "input": {"a": 1}}
    assert (first, last["content"]) == ({"role": "user", "content": "go"}, [text("done")])
    assert answer == {"role": "assistant", "content": [thinking("hm", "s"), called]}
    about = {"role": "tool", "tool_call_id": "t1", "name": "bash"}
    assert result == {**about, "content": '{"output": "x"}'}
    assert [usage and usage.prompt for usage in ended_usages(found)] == [5, None]
    assert len(of_type(found, TurnBegan)) == len(of_type(found, TurnEnded)) == 1
    log = lean()
    log.rows = [row for row in log.rows if not row["event"].startswith("llm:")]
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant", "tool", "assistant"]
    assert len(of_type(found, ModelCall)) == 2
    log = AmplifierLog().prompt("go")
    for part in "abc":
        log.event("llm:response", usage={"input_tokens": 5})
        log.event("content_block:end", block=text(part))
        log.event("content_block:end", block=text("more"))
    found = items_of(parse, log.data(), always)
    told = [message["content"] for message in texts(found)[1:]]
    assert told == [[text(part), text("more")] for part in "abc"]
    assert len(of_type(found, CallEnded)) == 3


# -- answers without requests, and calls logged in levels -----------------------------------------


def in_levels(*, whole_first: bool = False) -> AmplifierLog:
    """Two calls as releases before 2026 log them: in short, cut, and whole."""
    log = AmplifierLog().prompt("go")
    for number in range(2):
        params = {"model": "claude", "system": "be good", "messages": list(log.talk)}
        log.event("llm:request", model="claude", provider="anthropic", message_count=1)
        log.event("llm:request:debug", request={**params, "messages": ["cut…"]})
        log.event("llm:request:raw", provider="anthropic", params=params)
        usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 2}
        content = [text(f"answer {number}")]
        body = {"role": "assistant", "content": content, "usage": usage}
        short = ("llm:response", {"usage": {"input": 3, "output": 2}, "model": "claude"})
        whole = ("llm:response:raw", {"response": body})
        for name, data in (whole, short) if whole_first else (short, whole):
            log.event(name, **data)
            log.event("llm:response:debug", response={"content_preview": "ans…"})
        log.talk.append({"role": "assistant", "content": content})
        log.event("content_block:end", block=content[0]).prompt(f"and {number}")
    return log


@pytest.mark.parametrize("whole_first", [False, True])
def test_a_call_that_is_logged_in_levels_is_one_call(whole_first: bool) -> None:
    log = in_levels(whole_first=whole_first)
    found = items_of(parse, log.data())
    assert texts(found) == [{"role": "system", "content": "be good"}, *log.talk[:-1]]
    assert len(of_type(found, ModelCall)) == 2
    usages = [usage for usage in ended_usages(found) if usage is not None]
    assert usages[0].prompt == 43  # the short level leaves the cache out
    parts = [raw.kind for raw in of_type(found, Raw)]
    assert parts.count("llm:request.rest") == parts.count("llm:request:debug") == 2
