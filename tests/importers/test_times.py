"""The times of an imported session are its file's: nothing of the import's own time is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.record import Draft, Record
from eventctx.log.store import NO_STREAM
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import Span
from eventctx.queries.spans import spans
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Pi, pi_call
from tests.importers.given import (
    NOW,
    SESSION,
    ClaudeCode,
    call,
    imported,
    jsonl,
    load,
    records,
    salt,
)
from tests.importers.given import text as said

SECOND = 1_000_000_000
START = 1_767_261_600 * SECOND
"""2026-01-01T10:00:00Z. Rows of ``ClaudeCode`` are half a second after it, a second apart."""


async def traced(store: MemoryStore, session: str) -> list[Span]:
    return [span async for span in spans(store, session)]


def turns(found: list[Span]) -> list[Span]:
    return [one for one in found if one.attributes[conv.OPERATION] == conv.INVOKE_AGENT]


def seconds(span: Span) -> float:
    """Its length; an imported span ends a nanosecond early."""
    return round((span.end - span.start) / SECOND, 8) or 1 / SECOND


def of_type(found: list[Record], kind: str) -> list[Record]:
    return [one for one in found if one.type == kind]


def tool_loop() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", said("I look."), call("t1"), call("t2"))
    return log.result("t1").result("t2").answer("m2", said("Done."))


# -- turns ---------------------------------------------------------------------------------------


async def test_an_open_turn_lasts_up_to_its_last_record(tmp_path: Path) -> None:
    log = tool_loop().progress().system("local_command", content="x" * 300_000)
    log.answer("m3", said("And more.")).answer("m4", said("."))
    agents = tmp_path / "file" / "subagents"
    agents.mkdir(parents=True)
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("Look.").answer("m5", said("Seen."))
    (agents / "agent-a1.jsonl").write_bytes(agent.data())
    path = tmp_path / "file.jsonl"
    path.write_bytes(log.data())
    store = MemoryStore()
    for _ in range(2):
        await import_file(store, path, clock=lambda: NOW, salt=salt)
    found = await records(store, SESSION)
    assert {"session:linked", "import:raw"} <= {one.type for one in found}
    assert max(one.time for one in found) < START + 60 * SECOND
    (turn,) = turns(await traced(store, SESSION))
    assert turn.attributes[conv.OUTCOME] == "unfinished"
    assert seconds(turn) == 7.0


async def test_what_is_written_about_a_session_later_does_not_prolong_its_open_turn(
    tmp_path: Path,
) -> None:
    store, session = await imported(tmp_path, tool_loop().user("Thanks.").user("Bye.").data())
    before = await traced(store, session)
    async with Engine(store, clock=lambda: NOW) as engine:
        await engine.session("child")
        await engine.link(session, "child")
        await engine.erase(session, [0])
        await engine.close_session(session)
        after = await traced(store, session)
        assert [(one.start, one.end) for one in after] == [(one.start, one.end) for one in before]


async def test_a_turn_that_its_file_does_not_end_is_over_with_its_last_record(
    tmp_path: Path,
) -> None:
    log = tool_loop()
    log.user("A day later.").rows[-1]["timestamp"] = "2026-01-02T10:00:00Z"
    store, session = await imported(tmp_path, log.answer("m3", said("x")).data())
    first, _ = turns(await traced(store, session))[:2]
    assert first.attributes[conv.OUTCOME] == "ok"
    assert seconds(first) == 4.0


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_measured_turn_takes_just_what_its_program_says(
    goes_on: bool, tmp_path: Path
) -> None:
    log = tool_loop().system("turn_duration", durationMs=4_321)
    log = log.user("Thanks.").answer("m3", said(".")) if goes_on else log
    store, session = await imported(tmp_path, log.data())
    turn = next(one for one in turns(await traced(store, session)) if one.start < START + 2e9)
    assert seconds(turn) == 4.321
    assert turn.attributes[conv.TURN_DURATION] == 4_321_000_000


@pytest.mark.parametrize("measure", [None, "x", -1, 1.5, 10**300, True, [1]])
async def test_a_measure_that_is_none_changes_nothing(measure: Any, tmp_path: Path) -> None:
    log = tool_loop().system("turn_duration", durationMs=measure).user("Thanks.")
    store, session = await imported(tmp_path, log.data())
    assert not of_type(await records(store, session), "prompt:measured")


# -- headers -------------------------------------------------------------------------------------


def branched(header: str) -> bytes:
    """A session that was branched from another, with the messages that it had there."""
    log = Pi(tree=True).user("go").answer(said("x"), pi_call("c1")).result("c1").answer(said("y"))
    log.rows[0]["timestamp"] = header
    return log.data()


async def test_a_header_later_than_its_messages_does_not_change_their_times(
    tmp_path: Path,
) -> None:
    early = await imported(tmp_path, branched("2026-01-01T10:00:00.000Z"))
    late = await imported(tmp_path, branched("2026-03-01T10:00:00.000Z"))
    wanted, found = [await records(*one) for one in (early, late)]
    assert [one.time for one in found[1:]] == [one.time for one in wanted[1:]]
    assert found[0].time == START + SECOND
    (turn,) = turns(await traced(*late))
    assert seconds(turn) == 3.0


# -- disorder ------------------------------------------------------------------------------------


async def test_parallel_results_keep_their_times_and_every_span_is_valid(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[2]["timestamp"] = "2026-01-01T10:00:09.500Z"
    log = log.answer("m3", said("End.")).user("Thanks.")
    store, session = await imported(tmp_path, log.data())
    first, second = of_type(await records(store, session), "tool:post")
    assert (first.time - START, second.time - START) == (9.5 * SECOND, 4.5 * SECOND)
    found = {one.span_id: one for one in await traced(store, session)}
    for span in found.values():
        assert span.start < span.end
        turn = next(one for one in turns(list(found.values())) if one.trace_id == span.trace_id)
        assert turn.start <= span.start
        assert span.end <= turn.end


async def test_one_wrong_time_moves_no_other_record(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[1]["timestamp"] = "2040-01-01T00:00:00Z"
    store, session = await imported(tmp_path, log.user("Thanks.").user("x").data())
    added = of_type(await records(store, session), "context:message_added")
    assert [(one.time - START) / SECOND for one in added[2:]] == [3.5, 4.5, 5.5, 6.5, 7.5]


# -- growth, and files without times -------------------------------------------------------------


async def test_records_of_a_file_without_times_have_one_time_in_every_import(
    tmp_path: Path,
) -> None:
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    store, session = await imported(tmp_path, jsonl(rows))
    path = tmp_path / "file.jsonl"
    path.write_bytes(jsonl([*rows, *rows]))
    (summary,) = await import_file(store, path, clock=lambda: 2 * NOW, salt=salt)
    assert summary.added > 0
    assert {one.time for one in await records(store, session)} == {NOW}


async def test_rows_without_a_time_before_the_first_one_with_one_prolong_nothing(
    tmp_path: Path,
) -> None:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "one"}]
    for second, role in enumerate(("assistant", "user", "assistant")):
        stamp = f"2026-01-01T10:00:0{second}+00:00"
        rows.append({"role": role, "content": "x", "timestamp": stamp})
    path, store = tmp_path / "file.jsonl", MemoryStore()
    for end in (1, len(rows)):
        path.write_bytes(jsonl(rows[:end]))
        summary = await load(store, path, format="context-persistent")
    # The first row was written when its time was not known: it has that of the import.
    assert summary.session is not None
    assert [one.time == NOW for one in await records(store, summary.session)][:3] == [True] * 3
    assert max(map(seconds, await traced(store, summary.session))) <= 1.0


# -- compactions ---------------------------------------------------------------------------------


def summarised(trigger: str = "auto", at: str = "10:01:44.500", **measured: Any) -> ClaudeCode:
    """A tool loop with a compaction whose summary is done at ``at``, and the answer after it."""
    log = ClaudeCode().user("go").answer("m1", said("I look."), call("t1")).result("t1")
    facts = {"trigger": trigger, "preTokens": 167_000, **measured}
    log.system("compact_boundary", compactMetadata=facts)
    log.user("This session is being continued…", isCompactSummary=True)
    log.answer("m2", said("On I go.")).user("Thanks.")
    for row in log.rows[3:5]:
        row["timestamp"] = f"2026-01-01T{at}Z"
    for row in log.rows[5:]:
        row["timestamp"] = "2026-01-01T11:00:00Z"
    return log


async def compaction_and_chats(folder: Path, data: bytes) -> tuple[Span, list[Span]]:
    found = await traced(*await imported(folder, data))
    chats = [one for one in found if one.attributes[conv.OPERATION] == conv.CHAT]
    (one,) = [one for one in found if one.attributes[conv.OPERATION] == conv.COMPACT]
    return one, chats


async def test_an_imported_compaction_lasts_from_the_record_before_it(tmp_path: Path) -> None:
    one, (_, after) = await compaction_and_chats(tmp_path, summarised().data())
    assert (one.start - START, one.end + 1 - START) == (3.5 * SECOND, 104.5 * SECOND)
    assert one.end <= after.start
    assert "eventctx.compaction.duration" not in one.attributes  # the file names none
    assert one.attributes["eventctx.compaction.tokens.recorded"] == 167_000
    assert "167,000 before by the file's own count" in str(one.attributes["compaction"])


async def test_a_compaction_lasts_as_long_as_its_file_says(tmp_path: Path) -> None:
    one, _ = await compaction_and_chats(tmp_path, summarised(durationMs=86_000).data())
    assert (one.start - START, one.end + 1 - START) == (18.5 * SECOND, 104.5 * SECOND)
    assert one.attributes["eventctx.compaction.duration"] == 86 * SECOND


async def test_a_compaction_that_a_person_asked_for_does_not_last_as_long_as_the_person_waited(
    tmp_path: Path,
) -> None:
    one, _ = await compaction_and_chats(tmp_path, summarised("manual").data())
    assert (one.start - START, seconds(one)) == (104.5 * SECOND, 1 / SECOND)
    one, _ = await compaction_and_chats(tmp_path, summarised("manual", durationMs=2_000).data())
    assert seconds(one) == 2.0


async def test_a_mirror_of_the_release_before_takes_the_rest_of_its_file(tmp_path: Path) -> None:
    """That release recorded no duration of a compaction; what it stored stays as it is."""
    log = summarised(durationMs=86_000)
    now, session = await imported(tmp_path, log.data())
    drafts: list[Draft] = []
    for record in await records(now, session):
        payload = record.payload
        if record.type == "context:post_compact":
            payload = encode_event(replace(decode_event(record), duration=0))[2]
            assert payload != record.payload
        fields = {name: getattr(record, name) for name in Draft.__struct_fields__}
        drafts.append(Draft(**{**fields, "payload": payload}))
    store = MemoryStore()
    await store.append(session, drafts, NO_STREAM)
    before = [one.digest for one in await records(store, session)]
    path = tmp_path / "file.jsonl"
    path.write_bytes(log.answer("m3", said("Bye.")).user("x").data())
    assert (await load(store, path)).added > 0
    found = await records(store, session)
    assert [one.digest for one in found[: len(before)]] == before
    one = next(one for one in await traced(store, session) if one.name == "compact imported")
    assert seconds(one) == 101.0
