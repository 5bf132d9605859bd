"""What Claude Code's compactions keep, and what its micro-compactions and its provider clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.log.plan import INFERRED
from tests.importers.given import SESSION, ClaudeCode, call, events, gauges, text, thinking
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


# -- results and thinking that were cleared --------------------------------------------------------


def results_in(view: list[Any]) -> list[bool]:
    """Whether each result in a view is whole."""
    blocks = [block for content in view if isinstance(content, list) for block in content]
    return ["bar" in one["content"] for one in blocks if one["type"] == "tool_result"]


async def test_a_result_that_a_microcompaction_cleared_is_in_view_without_its_text(
    tmp_path: Path,
) -> None:
    facts = {"trigger": "auto", "preTokens": 543, "compactedToolIds": ["t1", "t3", "unknown"]}
    log = gauges().system("microcompact_boundary", microcompactMetadata=facts).user("gauge 1?")
    log.answer("m6", text("it is gone"), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    assert results_in(view) == [False, True, False, True]
    why = await engine.why(SESSION, 2)
    assert why.ruling is not None
    assert why.ruling.cause.compaction is not None
    assert (why.standing, why.ruling.reason) == ("shortened", "imported")
    assert why.ruling.cause.compaction.requested_by == "claude-code:microcompact"
    audit = await engine.audit(SESSION)
    assert [row.counts.shortened for row in audit.requests] == [0, 0, 0, 0, 2]
    lost = await engine.lost(SESSION)
    assert (lost.compactions, lost.messages.shortened) == (1, 2)
    await engine.close()


async def test_results_that_the_provider_cleared_are_the_oldest_of_that_request(
    tmp_path: Path,
) -> None:
    log = gauges().user("on")
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]}
    log.answer("m6", text("done"), stop_reason="end_turn", context_management=edits)
    log.user("more").answer("m7", text("yes"), stop_reason="end_turn", context_management=edits)
    engine, view = await viewed(linked(log), tmp_path)
    assert results_in(view) == [False, False, False, True]
    rows = (await engine.audit(SESSION)).requests
    assert [row.counts.shortened for row in rows] == [0, 0, 0, 0, 3, 3]
    await engine.close()


async def test_a_result_that_the_program_replaced_is_in_view_as_what_it_sent(
    tmp_path: Path,
) -> None:
    told = [("t1", "a preview"), ("t3", "another"), ("unknown", "x"), (["t2"], "x"), ("t2", None)]
    replaced = [{"toolUseId": call, "replacement": text} for call, text in told]
    log = gauges().line("content-replacement", replacements=[*replaced, "odd"]).user("gauge 1?")
    log.line("content-replacement", replacements={"odd": 1})
    log.answer("m6", text("it is cut"), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    blocks = [block for content in view if isinstance(content, list) for block in content]
    sent = [one["content"] for one in blocks if one["type"] == "tool_result"]
    assert sent == ["a preview", "bar " * 90, "another", "bar " * 90]
    why = await engine.why(SESSION, 2)
    assert why.ruling is not None
    assert why.ruling.cause.compaction is not None
    assert why.ruling.cause.compaction.requested_by == "claude-code:content-replacement"
    await engine.close()


def edited(**counts: int) -> dict[str, Any]:
    """The edits that an answer tells of: ``tool_uses=3`` or ``thinking_turns=1``, with tokens."""
    kinds = {"tool_uses": "clear_tool_uses_20250919", "thinking_turns": "clear_thinking_20251015"}
    edits = [
        {"type": kinds[kind], f"cleared_{kind}": number, "cleared_input_tokens": 1000 * number}
        for kind, number in counts.items()
    ]
    return {"context_management": {"applied_edits": edits}}


async def test_which_results_the_provider_cleared_is_inferred(tmp_path: Path) -> None:
    log = gauges().user("on").answer("m6", text("done"), **edited(tool_uses=2))
    log.user("more").answer("m7", text("yes"), **edited(tool_uses=3))
    engine, _ = await viewed(linked(log), tmp_path)
    why = await engine.why(SESSION, 2)
    assert why.ruling is not None
    assert (why.standing, why.ruling.reason) == ("shortened", INFERRED)
    first, second = (await engine.audit(SESSION)).compactions
    assert (first.strategy, second.strategy) == ("clear_tool_uses", "clear_tool_uses")
    assert first.figures is not None
    assert second.figures is not None
    # Counts are of all that was cleared, also before: the second edit took 1,000 more.
    assert (first.figures.recorded, second.figures.recorded) == (543 + 2000, 543 + 1000)
    await engine.close()


def thinks(log: ClaudeCode, number: int) -> ClaudeCode:
    """A turn of two answers that begin with thinking."""
    log.user(f"prompt {number}")
    for step in (1, 2):
        name = f"{number}-{step}"
        log.answer(f"m{name}", thinking(f"hm {name}", "c2ln"), call(f"t{name}"))
        log.result(f"t{name}", "ok")
    return log


def with_thinking(view: list[Any]) -> list[bool]:
    """Whether each answer in a view has thinking."""
    kinds = [[block["type"] for block in one] for one in view if isinstance(one, list)]
    return ["thinking" in one for one in kinds if "tool_use" in one]


async def test_thinking_that_the_provider_cleared_is_that_of_the_oldest_turns(
    tmp_path: Path,
) -> None:
    log = thinks(thinks(thinks(ClaudeCode(), 1), 2), 3)
    log.answer("m9", text("done"), **edited(thinking_turns=2)).user("more")
    log.answer("m10", text("yes"), **edited(thinking_turns=2))
    engine, view = await viewed(linked(log), tmp_path)
    assert with_thinking(view) == [False, False, False, False, True, True]
    (step,) = (await engine.audit(SESSION)).compactions
    assert (step.strategy, step.messages_before, step.messages_after) == ("clear_thinking", 15, 15)
    assert step.figures is not None
    assert step.figures.recorded == 543 + 2000
    why = await engine.why(SESSION, 1)
    assert (why.standing, why.stripped is not None) == ("whole", True)
    lost = (await engine.lost(SESSION)).messages
    assert (lost.left, lost.shortened, lost.thinking_cleared) == (0, 0, 4)
    assert (await engine.lost(SESSION, compaction=1)).messages.thinking_cleared == 4
    assert (await engine.audit(SESSION)).losses == ()
    await engine.close()


async def test_both_edits_of_one_request_are_two_steps(tmp_path: Path) -> None:
    log = thinks(thinks(ClaudeCode(), 1), 2)
    log.answer("m9", text("done"), **edited(thinking_turns=1, tool_uses=3))
    log.user("on").answer("m10", text("x"))
    engine, view = await viewed(linked(log), tmp_path)
    assert with_thinking(view) == [False, False, True, True]
    thought, used = (await engine.audit(SESSION)).compactions
    assert (thought.strategy, used.strategy) == ("clear_thinking", "clear_tool_uses")
    assert thought.figures is not None
    assert used.figures is not None
    assert (thought.figures.recorded, used.figures.recorded) == (543 + 4000, 543 + 3000)
    await engine.close()
