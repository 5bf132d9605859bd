"""Claude Code's graph of lines: lines written twice, steps back, and lines out of order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.formats.claude.waiting import WINDOW
from eventctx.importers.formats.claude_code import parse
from eventctx.importers.load import import_file
from eventctx.importers.source.items import ModelCall, Raw, Session, Undone, Waiting
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.stats import stats_of
from eventctx.stores.memory import MemoryStore
from tests.importers.given import SESSION, ClaudeCode, call, gauges, jsonl, put, text
from tests.importers.items import always, items_of, of_type, raw_kinds, texts
from tests.importers.taken import events, load, records, same, views

Row = dict[str, Any]


def linked(log: ClaudeCode, parents: dict[int, object] | None = None) -> list[Row]:
    """The rows, each after the one before it but where ``parents`` names another by its index.

    A value that is no index stays as it is.
    """
    rows = [dict(row) for row in log.rows]
    for place, row in enumerate(rows):
        parent = (parents or {}).get(place, place - 1 if place else None)
        row["parentUuid"] = rows[parent]["uuid"] if isinstance(parent, int) else parent
    return rows


def told(rows: list[Row]) -> list[Any]:
    return [one.get("content") for one in texts(items_of(parse, jsonl(rows), always))]


def left(rows: list[Row]) -> list[list[int]]:
    found = of_type(items_of(parse, jsonl(rows), always), Undone)
    return [sorted(one.places) for one in found]


def rewound() -> ClaudeCode:
    return red().says("blue", "blue it is").user("on")


async def viewed(rows: list[Row], tmp_path: Path) -> tuple[Engine, list[Any]]:
    """An engine with the imported rows, and the contents of the last request."""
    path, store = put(tmp_path / "session.jsonl", jsonl(rows)), MemoryStore()
    await load(store, path, complete=True)
    first = await records(store, SESSION)
    assert (await load(store, path, complete=True)).added == 0
    assert await records(store, SESSION) == first
    return Engine(store), [one["content"] for one in (await views(store, SESSION))[-1]]


def test_what_was_written_twice_is_one_message_and_one_call() -> None:
    log = ClaudeCode().user("count").answer("m1", call("t1"), stop_reason="tool_use")
    rows = linked(log.result("t1", "42").answer("m2", text("42"), stop_reason="end_turn"))
    found = items_of(parse, jsonl([*rows, *rows]), always)
    assert len(texts(found)) == 4
    assert len(of_type(found, ModelCall)) == 2
    assert raw_kinds(found)[4:] == [f"{row['type']}.repeated" for row in rows]
    log = ClaudeCode()
    for _ in range(2):
        for name, prompt in (("m1", "count"), ("m2", "more")):
            log.user(prompt).answer(name, text(name), stop_reason="end_turn")
    rows = linked(log.user("and nuts?"), {4: None})
    found = items_of(parse, jsonl(rows), always)
    assert [one.response_id for one in of_type(found, ModelCall)] == ["m1", "m2"]
    assert left(rows) == [[0, 1, 2, 3]]


# -- taken back ----------------------------------------------------------------------------------


async def test_what_was_taken_back_or_retracted_is_in_no_later_view(tmp_path: Path) -> None:
    log = rewound().answer("m8", text("done"), stop_reason="end_turn")
    engine, view = await viewed(linked(log, {4: 1}), tmp_path)
    assert view == ["pantry", [text("jars")], "blue", [text("blue it is")], "on"]
    why = await engine.why(SESSION, 3)
    assert (why.standing, why.ruling and why.ruling.reason) == ("dropped", "taken_back")
    lost = await engine.lost(SESSION)
    assert (lost.compactions, lost.messages.left_by) == (0, {"taken_back": 2})
    audit = await engine.audit(SESSION)
    assert [row.counts.dropped for row in audit.requests] == [0, 0, 2, 2]
    assert sum(one.calls for one in audit.usage.values()) == 4
    assert len(await engine.transcript(SESSION)) == 8
    log = retracted().answer("m3", text("welcome"), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    assert view == ["lock", [text("no")], "thanks"]
    assert (await engine.why(SESSION, 1)).ruling.reason == "taken_back"  # type: ignore[union-attr]


def red() -> ClaudeCode:
    """Two turns: lines 0 to 3."""
    return ClaudeCode().says("pantry", "jars").says("red", "red it is")


def parallel() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", call("t1")).answer("m1", call("t2"))
    log.result("t1").result("t2").answer("m2", text("done"), stop_reason="end_turn")
    return log.says("red", "red it is").user("blue")


def retried() -> ClaudeCode:
    log = ClaudeCode().says("go", "done").system("api_error").system("stop_hook_summary")
    return log.says("next", "on").user("last")


def after_a_hook() -> ClaudeCode:
    log = red().progress(type="hook_progress")
    return log.says("blue", "blue it is").user("on")


COMMAND = "<command-name>/context</command-name>"


LEFT: dict[str, tuple[ClaudeCode, dict[int, object], list[list[int]]]] = {
    "the first prompt was edited": (rewound(), {4: None}, [[0, 1, 2, 3]]),
    "a person went back twice": (
        red().says("blue", "is blue").says("on", "gone on").user("green"),
        {4: 1, 8: 1},
        [[2, 3], [4, 5, 6, 7]],
    ),
    "a command is after the step back": (red().user(COMMAND).user("blue"), {4: 1}, [[2, 3]]),
    "a result goes with its answer": (
        red().answer("m4", call("t1"), stop_reason="tool_use").result("t1").user("blue"),
        {6: 1},
        [[2, 3, 4, 5]],
    ),
    "a prompt follows what a hook reported": (after_a_hook(), {4: 1}, [[2, 3]]),
    "parallel results are no branch": (parallel(), {3: 1, 4: 2}, []),
    "parallel results of a call that stays": (parallel(), {3: 1, 4: 2, 8: 5}, [[5, 6]]),
    "a retry after an error of the API": (retried(), {2: 0}, []),
    "a parent that was never written": (rewound(), {4: "phantom"}, []),
}
"""Lines, the parents that are not the lines before, and the places that are left."""


@pytest.mark.parametrize("case", LEFT)
def test_a_step_back_leaves_what_came_after_its_parent(case: str) -> None:
    log, parents, expected = LEFT[case]
    assert left(linked(log, parents)) == expected


def retracted() -> ClaudeCode:
    log = ClaudeCode().user("lock").answer("m1", text("first, file"), stop_reason="refusal")
    log.system("model_refusal_fallback", retractedMessageUuids=["u2", "unknown"])
    return log.answer("m2", text("no"), stop_reason="end_turn").user("thanks")


# -- out of order --------------------------------------------------------------------------------


def early() -> list[Row]:
    """A result (line 4) that was written before its call (line 6)."""
    log = ClaudeCode().user("sign").answer("m1", call("t1"), stop_reason="tool_use")
    log.result("t1", "OPEN").answer("m2", text("now"), stop_reason="tool_use")
    log.answer("m2", call("t2"), stop_reason="tool_use").result("t2", "updated")
    rows = linked(log.answer("m3", text("changed"), stop_reason="end_turn").user("thanks"))
    return [*rows[:3], rows[5], *rows[3:5], *rows[6:]]


def test_a_result_that_was_written_before_its_call_waits_for_it_and_follows_it() -> None:
    waiting = of_type(items_of(parse, jsonl(early()[:4])), Waiting)
    assert [one.line for one in waiting] == [4]
    found = items_of(parse, jsonl(early()), always)
    contents = [message["content"] for message in texts(found)]
    assert contents[3] == [text("now"), call("t2")]
    assert contents[4][0]["content"] == "updated"
    assert left(early()) == []
    assert [one.line for one in of_type(found, Raw)] == [1, 2, 3, 5, 6, 6, 7, 8]


def test_a_result_whose_call_never_comes_keeps_its_place() -> None:
    log = ClaudeCode().says("go", "a").result("t9")
    for number in range(WINDOW):
        log.user(f"prompt {number}")
    assert len(told(linked(log))) == 3 + WINDOW
    assert told(linked(log))[2][0]["tool_use_id"] == "t9"
    # An answer that was written before its prompt follows it.
    rows = linked(rewound())
    rows[2:4] = rows[3], rows[2]
    assert told(rows)[2:4] == ["red", [text("red it is")]]


# -- sessions in the file ------------------------------------------------------------------------


async def imported(rows: list[Row], tmp_path: Path) -> Engine:
    """An engine with the sessions in a file of these rows; a second import adds nothing."""
    path, store = put(tmp_path / "session.jsonl", jsonl(rows)), MemoryStore()
    await import_file(store, path, complete=True)
    assert sum([one.added for one in await import_file(store, path, complete=True)]) == 0
    return Engine(store)


def counted() -> ClaudeCode:
    return ClaudeCode().says("count", "42").says("and nuts?", "7")


async def test_a_call_that_two_files_hold_counts_once_in_the_store(tmp_path: Path) -> None:
    rows, store = linked(counted()), MemoryStore()
    for name, some in (("first", rows[:2]), ("second", rows)):
        data = jsonl([{**row, "sessionId": name} for row in some])
        await import_file(store, put(tmp_path / f"{name}.jsonl", data), complete=True)
    engine = Engine(store)
    stats = await stats_of(engine.store, "memory:", None, engine.hook_failures, ReadErrors())
    assert (sum(one.calls for one in stats.usage.values()), stats.copied_calls) == (2, 1)
    rows = linked(counted())
    for row in rows[:2]:
        row["forkedFrom"] = {"sessionId": "the-source", "messageUuid": row["uuid"]}
    (first,) = of_type(items_of(parse, jsonl(rows)), Session)
    assert (first.parent, first.link) == ("the-source", "branch")
    engine = await imported(rows, tmp_path)
    assert await calls_of(engine, SESSION) == 1
    assert (await engine.audit(SESSION)).requests[-1].counts.kept == 3


async def test_a_session_that_was_imported_as_complete_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    log = ClaudeCode().says("dig", "dug").answer("m", text("and more"), stop_reason="end_turn")
    rows = linked(log.says("fill", "filled"))
    for first in (2, 3):
        store = MemoryStore()
        await import_file(store, put(path, jsonl(rows[:first])), complete=True)
        for grown, complete in ((3, False), (4, False), (5, True), (5, True), (5, False)):
            put(path, jsonl(rows[: max(first, grown)]))
            (summary,) = await import_file(store, path, complete=complete)
        assert (summary.added, summary.messages, summary.turns) == (0, 5, 2)
        assert len(await events(store, SESSION, "prompt:complete")) == 2
        engine = Engine(store)
        assert await calls_of(engine, SESSION) == 3
        assert [row.name for row in (await engine.audit(SESSION)).requests] == ["1.1", "1.2", "2.1"]


async def calls_of(engine: Engine, session: str) -> int:
    return sum(one.calls for one in (await engine.audit(session)).usage.values())


async def test_subagents_in_the_file_are_sessions_of_their_own(tmp_path: Path) -> None:
    log = ClaudeCode().user("find").answer("m1", call("t1", "Task"), stop_reason="tool_use")
    side = ClaudeCode(isSidechain=True)
    side.user("look").user("and you").answer("s1", call("g1"), stop_reason="tool_use").result("g1")
    side.answer("s2", text("here"), stop_reason="end_turn").answer("s3", text("no"))
    inner = linked(side, {1: None, 2: 0, 5: 1})
    for row in inner:
        row["uuid"] = f"s-{row['uuid']}"
        row["parentUuid"] = row["parentUuid"] and f"s-{row['parentUuid']}"
    rows = linked(log.result("t1", "a leak").answer("m2", text("found"), stop_reason="end_turn"))
    engine = await imported([*rows[:2], *inner, *rows[2:]], tmp_path)
    names = [one.stream for one in await engine.sessions()]
    assert sorted(names) == [SESSION, f"{SESSION}.agent-s-u1", f"{SESSION}.agent-s-u2"]
    assert [await calls_of(engine, one) for one in sorted(names)] == [2, 2, 1]
    links = await events(engine.store, f"{SESSION}.agent-s-u1", "session:linked")  # type: ignore[arg-type]
    assert [one.session for one in links] == [SESSION]


def microcompacted() -> list[Row]:
    facts = {"compactedToolIds": ["t1", "t3"]}
    log = gauges().system("microcompact_boundary", microcompactMetadata=facts).user("gauge 1?")
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]}
    return linked(log.answer("m6", text("it is gone"), context_management=edits).user("on"))


GROWING = {
    "rewound": linked(rewound(), {4: 1}),
    "written twice": [row for row in linked(rewound()) for _ in range(2)],
    "out of order": early(),
    "retracted": linked(retracted()),
    "microcompacted": microcompacted(),
}


async def test_a_file_that_is_imported_line_by_line_is_the_same_session(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    for name, rows in GROWING.items():
        grown, whole = MemoryStore(), MemoryStore()
        for end in range(1, len(rows) + 1):
            await load(grown, put(path, jsonl(rows[:end])))
        for store in (grown, whole):
            await load(store, path, complete=True)
        assert await same(grown, whole, SESSION), name
