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
    put,
    records,
    salt,
)
from tests.importers.given import text as said

SECOND = 1_000_000_000
START = 1_767_261_600 * SECOND
"""2026-01-01T10:00:00Z. Rows of ``ClaudeCode`` are half a second after it, a second apart."""


async def of_type(store: MemoryStore, session: str, kind: str) -> list[Record]:
    return [one for one in await records(store, session) if one.type == kind]


async def traced(store: MemoryStore, session: str, operation: str | None = None) -> list[Span]:
    found = [span async for span in spans(store, session)]
    return [one for one in found if operation in (None, one.attributes[conv.OPERATION])]


async def turns(store: MemoryStore, session: str) -> list[Span]:
    return await traced(store, session, conv.INVOKE_AGENT)


def seconds(span: Span) -> float:
    """Its length; an imported span ends a nanosecond early."""
    return round((span.end - span.start) / SECOND, 8) or 1 / SECOND


def tool_loop() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", said("I look."), call("t1"), call("t2"))
    return log.result("t1").result("t2").answer("m2", said("Done."))


# -- turns ---------------------------------------------------------------------------------------


async def test_an_open_turn_lasts_up_to_its_last_record(tmp_path: Path) -> None:
    log = tool_loop().progress().system("local_command", content="x" * 300_000)
    log.answer("m3", said("And more.")).answer("m4", said("."))
    agent = ClaudeCode(agentId="a1", isSidechain=True).user("Look.").answer("m5", said("Seen."))
    put(tmp_path / "file" / "subagents" / "agent-a1.jsonl", agent.data())
    path, store = put(tmp_path / "file.jsonl", log.data()), MemoryStore()
    for _ in range(2):
        await import_file(store, path, clock=lambda: NOW, salt=salt)
    found = await records(store, SESSION)
    assert {"session:linked", "import:raw"} <= {one.type for one in found}
    assert max(one.time for one in found) < START + 60 * SECOND
    (turn,) = await turns(store, SESSION)
    assert (turn.attributes[conv.OUTCOME], seconds(turn)) == ("unfinished", 7.0)


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
    first, _ = await turns(*await imported(tmp_path, log.answer("m3", said("x")).data()))
    assert (first.attributes[conv.OUTCOME], seconds(first)) == ("ok", 4.0)


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_measured_turn_takes_just_what_its_program_says(
    goes_on: bool, tmp_path: Path
) -> None:
    log = tool_loop().system("turn_duration", durationMs=4_321)
    log = log.user("Thanks.").answer("m3", said(".")) if goes_on else log
    first, *_ = await turns(*await imported(tmp_path, log.data()))
    assert (seconds(first), first.attributes[conv.TURN_DURATION]) == (4.321, 4_321_000_000)


async def test_a_measure_that_is_none_changes_nothing(tmp_path: Path) -> None:
    for measure in (None, "x", -1, 1.5, 10**300, True, [1]):
        log = tool_loop().system("turn_duration", durationMs=measure).user("Thanks.")
        got = await imported(tmp_path, log.data())
        assert await of_type(*got, "prompt:measured") == [], measure


# -- headers -------------------------------------------------------------------------------------


def branched(header: str) -> bytes:
    """A session that was branched from another, with the messages that it had there."""
    log = Pi(tree=True).user("go").answer(said("x"), pi_call("c1")).result("c1").answer(said("y"))
    log.rows[0]["timestamp"] = header
    return log.data()


async def test_a_header_later_than_its_messages_does_not_change_their_times(tmp_path: Path) -> None:
    early = await imported(tmp_path, branched("2026-01-01T10:00:00.000Z"))
    late = await imported(tmp_path, branched("2026-03-01T10:00:00.000Z"))
    wanted, found = [[one.time for one in await records(*one)] for one in (early, late)]
    assert (found[0], found[1:]) == (START + SECOND, wanted[1:])
    assert list(map(seconds, await turns(*late))) == [3.0]


# -- disorder ------------------------------------------------------------------------------------


async def test_parallel_results_keep_their_times_and_every_span_is_valid(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[2]["timestamp"] = "2026-01-01T10:00:09.500Z"
    got = await imported(tmp_path, log.answer("m3", said("End.")).user("Thanks.").data())
    times = [one.time - START for one in await of_type(*got, "tool:post")]
    assert times == [9.5 * SECOND, 4.5 * SECOND]
    own = {turn.trace_id: turn for turn in await turns(*got)}
    for span in await traced(*got):
        turn = own[span.trace_id]
        assert turn.start <= span.start < span.end <= turn.end


async def test_one_wrong_time_moves_no_other_record(tmp_path: Path) -> None:
    log = tool_loop()
    log.rows[1]["timestamp"] = "2040-01-01T00:00:00Z"
    got = await imported(tmp_path, log.user("Thanks.").user("x").data())
    added = await of_type(*got, "context:message_added")
    assert [(one.time - START) / SECOND for one in added[2:]] == [3.5, 4.5, 5.5, 6.5, 7.5]


# -- growth, and files without times -------------------------------------------------------------


async def test_records_of_a_file_without_times_have_one_time_in_every_import(
    tmp_path: Path,
) -> None:
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    store, session = await imported(tmp_path, jsonl(rows))
    path = put(tmp_path / "file.jsonl", jsonl([*rows, *rows]))
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
    form = {"format": "context-persistent"}
    store, session = await imported(tmp_path, jsonl(rows[:1]), **form)
    await load(store, put(tmp_path / "file.jsonl", jsonl(rows)), **form)
    # The first row was written when its time was not known: it has that of the import.
    assert [one.time == NOW for one in await records(store, session)][:3] == [True] * 3
    assert max(map(seconds, await traced(store, session))) <= 1.0


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


async def compaction_and_chats(folder: Path, log: ClaudeCode) -> tuple[Span, list[Span]]:
    got = await imported(folder, log.data())
    (one,) = await traced(*got, conv.COMPACT)
    return one, await traced(*got, conv.CHAT)


async def test_an_imported_compaction_lasts_from_the_record_before_it_or_as_its_file_says(
    tmp_path: Path,
) -> None:
    one, (_, after) = await compaction_and_chats(tmp_path, summarised())
    assert (one.start - START, one.end + 1 - START) == (3.5 * SECOND, 104.5 * SECOND)
    assert one.end <= after.start
    assert "eventctx.compaction.duration" not in one.attributes  # the file names none
    assert one.attributes["eventctx.compaction.tokens.recorded"] == 167_000
    assert "167,000 before by the file's own count" in str(one.attributes["compaction"])
    one, _ = await compaction_and_chats(tmp_path, summarised(durationMs=86_000))
    assert (one.start - START, one.end + 1 - START) == (18.5 * SECOND, 104.5 * SECOND)
    assert one.attributes["eventctx.compaction.duration"] == 86 * SECOND
    # One that a person asked for does not last as long as the person waited.
    one, _ = await compaction_and_chats(tmp_path, summarised("manual"))
    assert (one.start - START, seconds(one)) == (104.5 * SECOND, 1 / SECOND)
    one, _ = await compaction_and_chats(tmp_path, summarised("manual", durationMs=2_000))
    assert seconds(one) == 2.0


async def test_a_mirror_of_the_release_before_takes_the_rest_of_its_file(tmp_path: Path) -> None:
    """That release recorded no duration of a compaction; what it stored stays as it is."""
    log, store, drafts = summarised(durationMs=86_000), MemoryStore(), list[Draft]()
    now, session = await imported(tmp_path, log.data())
    for record in await records(now, session):
        fields = {name: getattr(record, name) for name in Draft.__struct_fields__}
        if record.type == "context:post_compact":
            fields["payload"] = encode_event(replace(decode_event(record), duration=0))[2]
            assert fields["payload"] != record.payload
        drafts.append(Draft(**fields))
    await store.append(session, drafts, NO_STREAM)
    before = [one.digest for one in await records(store, session)]
    path = put(tmp_path / "file.jsonl", log.answer("m3", said("Bye.")).user("x").data())
    assert (await load(store, path)).added > 0
    found = await records(store, session)
    assert [one.digest for one in found[: len(before)]] == before
    assert list(map(seconds, await traced(store, session, conv.COMPACT))) == [101.0]
