"""Claude Code's compactions: what they keep, and steps back to a prompt before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.importers.given import SESSION, ClaudeCode, call, events, text
from tests.importers.test_claude_route import left, linked, viewed

Row = dict[str, Any]

OIL, OILED, RED, IS_RED = 0, 1, 2, 3


def says(log: ClaudeCode, prompt: str, answer: str) -> ClaudeCode:
    """Two lines: a prompt and its answer."""
    log.user(prompt)
    return log.answer(f"m{len(log.rows)}", text(answer), stop_reason="end_turn")


def compacts(log: ClaudeCode, summary: str, **facts: Any) -> ClaudeCode:
    """Two lines: the boundary and the summary."""
    log.system("compact_boundary", compactMetadata={"trigger": "auto", **facts})
    return log.user(summary, isCompactSummary=True)


def two_turns() -> ClaudeCode:
    return says(says(ClaudeCode(), "oil", "oiled"), "red", "is red")


def named(log: ClaudeCode, *places: int) -> list[str]:
    return [log.rows[place]["uuid"] for place in places]


def words(view: list[Any]) -> list[str]:
    return [one if isinstance(one, str) else one[0].get("text", "") for one in view]


async def last_view(log: ClaudeCode, parents: dict[int, object], tmp_path: Path) -> list[str]:
    engine, view = await viewed(linked(log, parents), tmp_path)
    assert (await engine.verify(SESSION)).ok
    await engine.close()
    return words(view)


# -- kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["preservedMessages", "preservedSegment"])
async def test_what_a_compaction_keeps_follows_its_summary(form: str, tmp_path: Path) -> None:
    log = two_turns()
    anchor = "u6"  # the summary
    kept = {
        "preservedMessages": {"anchorUuid": anchor, "uuids": named(log, RED, IS_RED)},
        "preservedSegment": {"anchorUuid": anchor, "headUuid": "u3", "tailUuid": "u4"},
    }[form]
    log = says(compacts(log, "S", **{form: kept}), "dust", "dusted")
    engine, view = await viewed(linked(log, {4: None, 6: 3}), tmp_path)
    assert words(view) == ["S", "red", "is red", "dust"]
    assert (await engine.why(SESSION, RED)).standing == "whole"
    assert (await engine.why(SESSION, OIL)).standing == "summarised"
    lost = await engine.lost(SESSION)
    assert (lost.compactions, lost.messages.left, lost.messages.left_by) == (
        1,
        2,
        {"compaction": 2},
    )
    await engine.close()


async def test_the_list_of_kept_lines_counts_before_the_segment(tmp_path: Path) -> None:
    log = two_turns()
    log = compacts(
        log,
        "S",
        preservedMessages={"anchorUuid": "u6", "uuids": ["u4", "never-written"]},
        preservedSegment={"anchorUuid": "u6", "headUuid": "u2", "tailUuid": "u4"},
    )
    assert await last_view(says(log, "dust", "x"), {4: None}, tmp_path) == ["S", "is red", "dust"]


async def test_a_segment_without_a_way_from_head_to_tail_keeps_nothing(tmp_path: Path) -> None:
    segment = {"anchorUuid": "u6", "headUuid": "u2", "tailUuid": "never-written"}
    log = says(compacts(two_turns(), "S", preservedSegment=segment), "dust", "x")
    assert await last_view(log, {4: None}, tmp_path) == ["S", "dust"]


async def test_a_summary_of_what_came_last_follows_what_was_kept(tmp_path: Path) -> None:
    log = two_turns()
    kept = {"anchorUuid": "u5", "uuids": named(log, OIL, OILED)}  # the boundary
    log = says(compacts(log, "S of red", preservedMessages=kept), "dust", "x")
    view = await last_view(log, {4: None}, tmp_path)
    assert view == ["oil", "oiled", "S of red", "dust"]


async def test_a_kept_answer_stays_whole_with_its_calls_and_results(tmp_path: Path) -> None:
    log = says(ClaudeCode(), "oil", "oiled").user("read")
    log.answer("m", text("I read"), stop_reason="tool_use")
    log.answer("m", call("t1"), stop_reason="tool_use").result("t1", "the page")
    kept = {"anchorUuid": "u8", "uuids": named(log, 2, 3, 4, 5)}
    log = compacts(log, "S", preservedMessages=kept).answer("n", text("done"))
    engine, view = await viewed(linked(log, {6: None}), tmp_path)
    blocks = [block["type"] for one in view[2:] for block in one]
    assert (words(view)[:2], blocks) == (["S", "read"], ["text", "tool_use", "tool_result"])
    await engine.close()


async def test_a_summary_may_be_kept_by_the_next_compaction(tmp_path: Path) -> None:
    log = says(compacts(two_turns(), "S"), "dust", "dusted")
    log = says(log, "wax", "waxed")
    kept = {"anchorUuid": "u11", "uuids": named(log, 5, 6, 7)}
    log = says(compacts(log, "S of wax", preservedMessages=kept), "go", "x")
    view = await last_view(log, {4: None, 10: None}, tmp_path)
    assert view == ["S", "dust", "dusted", "S of wax", "go"]


def test_a_step_back_to_a_prompt_that_was_kept_leaves_what_came_after_it() -> None:
    log = two_turns()
    kept = {"anchorUuid": "u6", "uuids": named(log, OILED, RED, IS_RED)}
    log = says(compacts(log, "S", preservedMessages=kept), "dust", "dusted").user("blue")
    assert left(linked(log, {4: None, 6: 3, 8: 1})) == [[2, 3, 4, 5]]


# -- taken back ----------------------------------------------------------------------------------


async def test_a_step_back_to_before_a_compaction_takes_it_back(tmp_path: Path) -> None:
    log = says(compacts(two_turns(), "S"), "dust", "dusted")
    log = says(says(log, "blue", "is blue"), "on", "x")
    engine, view = await viewed(linked(log, {4: None, 8: OILED}), tmp_path)
    assert words(view) == ["oil", "oiled", "blue", "is blue", "on"]
    assert [(await engine.why(SESSION, one)).standing for one in (0, 2, 4)] == [
        *("whole", "dropped", "dropped")
    ]
    dust = await engine.why(SESSION, 4)
    assert dust.ruling is not None
    assert dust.ruling.reason == "taken_back"
    lost = await engine.lost(SESSION)
    assert lost.messages.left_by == {"taken_back": 4}
    rows = (await engine.audit(SESSION)).requests
    assert [(row.counts.kept, row.counts.dropped) for row in rows[-2:]] == [(3, 4), (5, 4)]
    assert len(await events(engine.store, SESSION, "context:restored")) == 1  # type: ignore[arg-type]
    await engine.close()


async def test_the_summary_of_an_older_compaction_returns(tmp_path: Path) -> None:
    log = compacts(says(compacts(two_turns(), "S"), "dust", "dusted"), "T")
    log = says(says(log, "wax", "waxed"), "blue", "x")
    parents: dict[int, object] = {4: None, 8: None}
    back_to_dust = await last_view(log, {**parents, 12: 5}, tmp_path / "..")
    assert back_to_dust == ["S", "blue"]
    assert await last_view(log, {**parents, 12: OILED}, tmp_path) == ["oil", "oiled", "blue"]


def test_a_link_across_a_compaction_to_no_place_of_a_prompt_takes_nothing_back() -> None:
    log = says(says(compacts(two_turns(), "S"), "dust", "dusted"), "blue", "x")
    for parent in (OIL, RED, IS_RED, None, "never-written"):
        assert left(linked(log, {4: None, 8: parent})) == [], parent


def test_commands_that_hang_on_the_last_message_before_a_compaction_are_after_it() -> None:
    log = compacts(two_turns(), "S").user("<command-name>/compact</command-name>")
    log = says(says(log, "dust", "dusted"), "blue", "x")
    assert left(linked(log, {4: None, 6: IS_RED})) == []
    assert left(linked(log, {4: None, 6: IS_RED, 9: 6})) == [[5, 6]]


def test_lines_that_were_written_again_are_no_step_back() -> None:
    """A later compaction may append copies of old lines, and hang the next one on them."""
    rows = linked(says(says(compacts(two_turns(), "S"), "dust", "dusted"), "blue", "x"), {4: None})
    again = [*rows[:8], *rows[:2], {**rows[8], "parentUuid": rows[OILED]["uuid"]}, *rows[9:]]
    assert left(again) == []
    hook = {**rows[4], "subtype": "stop_hook_summary", "uuid": "hook", "parentUuid": "u2"}
    hung = {**rows[8], "parentUuid": "hook"}
    assert left([*rows[:8], *rows[:2], hook, hung, *rows[9:]]) == []
