"""What Claude Code's compactions keep, and what its micro-compactions and its provider clear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.log.plan import INFERRED
from tests.importers.given import SESSION, ClaudeCode, call, gauges, text, thinking
from tests.importers.taken import events
from tests.importers.test_claude_route import left, linked, viewed

Row = dict[str, Any]

OIL, OILED, RED, IS_RED = 0, 1, 2, 3


def compacts(log: ClaudeCode, summary: str, **facts: Any) -> ClaudeCode:
    """Two lines: the boundary and the summary."""
    log.system("compact_boundary", compactMetadata={"trigger": "auto", **facts})
    return log.user(summary, isCompactSummary=True)


def two_turns() -> ClaudeCode:
    """Lines u1 to u4."""
    return ClaudeCode().says("oil", "oiled").says("red", "is red")


def listed(*uuids: str, anchor: str = "u6") -> Row:
    """What a boundary says of the lines that it keeps; u6 is the summary behind two turns."""
    return {"preservedMessages": {"anchorUuid": anchor, "uuids": uuids}}


def segment(head: str, tail: str) -> Row:
    return {"preservedSegment": {"anchorUuid": "u6", "headUuid": head, "tailUuid": tail}}


def words(view: list[Any]) -> list[str]:
    return [one if isinstance(one, str) else one[0].get("text", "") for one in view]


async def last_view(log: ClaudeCode, parents: dict[int, object], tmp_path: Path) -> list[str]:
    engine, view = await viewed(linked(log, parents), tmp_path)
    assert (await engine.verify(SESSION)).ok
    return words(view)


# -- kept ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "parents", "expected"),
    [
        (listed("u3", "u4"), {6: 3}, ["S", "red", "is red", "dust"]),
        (segment("u3", "u4"), {6: 3}, ["S", "red", "is red", "dust"]),
        # The list counts before the segment.
        ({**listed("u4", "never-written"), **segment("u2", "u4")}, {}, ["S", "is red", "dust"]),
        # There is no way from head to tail.
        (segment("u2", "never-written"), {}, ["S", "dust"]),
        # A summary of what came last, anchored at the boundary, follows what was kept.
        (listed("u1", "u2", anchor="u5"), {}, ["oil", "oiled", "S", "dust"]),
    ],
)
async def test_what_a_compaction_keeps_is_beside_its_summary(
    facts: Row, parents: dict[int, object], expected: list[str], tmp_path: Path
) -> None:
    log = compacts(two_turns(), "S", **facts).says("dust", "dusted")
    engine, view = await viewed(linked(log, {4: None, **parents}), tmp_path)
    assert (await engine.verify(SESSION)).ok
    assert words(view) == expected
    for place, word in ((OIL, "oil"), (RED, "red")):
        standing = "whole" if word in expected else "summarised"
        assert (await engine.why(SESSION, place)).standing == standing
    lost, gone = await engine.lost(SESSION), 6 - len(expected)
    assert (lost.compactions, lost.messages.left_by) == (1, {"compaction": gone})
    assert lost.messages.left == gone


async def test_a_kept_answer_stays_whole_with_its_calls_and_results(tmp_path: Path) -> None:
    log = ClaudeCode().says("oil", "oiled").user("read")
    log.answer("m", text("I read"), stop_reason="tool_use")
    log.answer("m", call("t1"), stop_reason="tool_use").result("t1", "the page")
    kept = listed("u3", "u4", "u5", "u6", anchor="u8")
    log = compacts(log, "S", **kept).answer("n", text("done"))
    _, view = await viewed(linked(log, {6: None}), tmp_path)
    blocks = [block["type"] for one in view[2:] for block in one]
    assert (words(view)[:2], blocks) == (["S", "read"], ["text", "tool_use", "tool_result"])


async def test_a_summary_may_be_kept_by_the_next_compaction_or_return(tmp_path: Path) -> None:
    log = compacts(two_turns(), "S").says("dust", "dusted").says("wax", "waxed")
    log = compacts(log, "S of wax", **listed("u6", "u7", "u8", anchor="u11"))
    view = await last_view(log.says("go", "x"), {4: None, 10: None}, tmp_path)
    assert view == ["S", "dust", "dusted", "S of wax", "go"]
    log = compacts(compacts(two_turns(), "S").says("dust", "dusted"), "T")
    log.says("wax", "waxed").says("blue", "x")
    for back, expected in ((5, ["S", "blue"]), (OILED, ["oil", "oiled", "blue"])):
        folder = tmp_path / str(back)
        assert await last_view(log, {4: None, 8: None, 12: back}, folder) == expected


def test_a_step_back_across_a_compaction_leaves_what_came_after_a_prompt_alone() -> None:
    log = compacts(two_turns(), "S", **listed("u2", "u3", "u4")).says("dust", "dusted")
    assert left(linked(log.user("blue"), {4: None, 6: 3, 8: 1})) == [[2, 3, 4, 5]]
    log = compacts(two_turns(), "S").says("dust", "dusted").says("blue", "x")
    for parent in (OIL, RED, IS_RED, None, "never-written"):
        assert left(linked(log, {4: None, 8: parent})) == [], parent
    # Commands that hang on the last message before a compaction are after it.
    log = compacts(two_turns(), "S").user("<command-name>/compact</command-name>")
    log.says("dust", "dusted").says("blue", "x")
    assert left(linked(log, {4: None, 6: IS_RED})) == []
    assert left(linked(log, {4: None, 6: IS_RED, 9: 6})) == [[5, 6]]


# -- taken back ----------------------------------------------------------------------------------


async def test_a_step_back_to_before_a_compaction_takes_it_back(tmp_path: Path) -> None:
    log = compacts(two_turns(), "S").says("dust", "dusted").says("blue", "is blue").says("on", "x")
    engine, view = await viewed(linked(log, {4: None, 8: OILED}), tmp_path)
    assert words(view) == ["oil", "oiled", "blue", "is blue", "on"]
    oil, red, dust = [await engine.why(SESSION, one) for one in (0, 2, 4)]
    assert (oil.standing, red.standing, dust.standing) == ("whole", "dropped", "dropped")
    assert dust.ruling and dust.ruling.reason == "taken_back"
    assert (await engine.lost(SESSION)).messages.left_by == {"taken_back": 4}
    rows = (await engine.audit(SESSION)).requests
    assert [(row.counts.kept, row.counts.dropped) for row in rows[-2:]] == [(3, 4), (5, 4)]
    assert len(await events(engine.store, SESSION, "context:restored")) == 1  # type: ignore[arg-type]


def test_lines_that_were_written_again_are_no_step_back() -> None:
    """A later compaction may append copies of old lines, and hang the next one on them."""
    rows = linked(compacts(two_turns(), "S").says("dust", "dusted").says("blue", "x"), {4: None})
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


async def test_a_result_that_was_cleared_is_in_view_without_its_text(tmp_path: Path) -> None:
    facts = {"trigger": "auto", "preTokens": 543, "compactedToolIds": ["t1", "t3", "unknown"]}
    log = gauges().system("microcompact_boundary", microcompactMetadata=facts).user("gauge 1?")
    log.answer("m6", text("it is gone"), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    assert results_in(view) == [False, True, False, True]
    assert await why_of(engine) == ("shortened", "imported", "claude-code:microcompact")
    audit = await engine.audit(SESSION)
    assert [row.counts.shortened for row in audit.requests] == [0, 0, 0, 0, 2]
    lost = await engine.lost(SESSION)
    assert (lost.compactions, lost.messages.shortened) == (1, 2)


async def why_of(engine: Engine) -> tuple[str, str, str | None]:
    """How the first result stands, why, and who asked for that."""
    why = await engine.why(SESSION, 2)
    assert why.ruling and why.ruling.cause.compaction
    return why.standing, why.ruling.reason, why.ruling.cause.compaction.requested_by


async def test_a_result_that_was_replaced_is_in_view_as_what_was_sent(tmp_path: Path) -> None:
    told = [("t1", "a preview"), ("t3", "another"), ("unknown", "x"), (["t2"], "x"), ("t2", None)]
    replaced = [{"toolUseId": call, "replacement": text} for call, text in told]
    log = gauges().line("content-replacement", replacements=[*replaced, "odd"]).user("gauge 1?")
    log.line("content-replacement", replacements={"odd": 1})
    log.answer("m6", text("it is cut"), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    blocks = [block for content in view if isinstance(content, list) for block in content]
    sent = [one["content"] for one in blocks if one["type"] == "tool_result"]
    assert sent == ["a preview", "bar " * 90, "another", "bar " * 90]
    assert (await why_of(engine))[2] == "claude-code:content-replacement"


def edited(**counts: int) -> dict[str, Any]:
    """The edits that an answer tells of: ``tool_uses=3`` or ``thinking_turns=1``, with tokens."""
    kinds = {"tool_uses": "clear_tool_uses_20250919", "thinking_turns": "clear_thinking_20251015"}
    edits = [
        {"type": kinds[kind], f"cleared_{kind}": number, "cleared_input_tokens": 1000 * number}
        for kind, number in counts.items()
    ]
    return {"context_management": {"applied_edits": edits}}


async def steps_of(engine: Engine) -> list[tuple[str, Any]]:
    """The compactions, and how many tokens the file says that each had before it."""
    steps = (await engine.audit(SESSION)).compactions
    return [(one.strategy, one.figures and one.figures.recorded) for one in steps]


async def test_that_the_provider_cleared_the_oldest_results_is_inferred(tmp_path: Path) -> None:
    log = gauges().user("on").answer("m6", text("done"), **edited(tool_uses=2))
    for name in ("m7", "m8"):
        log.user("more").answer(name, text("yes"), **edited(tool_uses=3), stop_reason="end_turn")
    engine, view = await viewed(linked(log), tmp_path)
    assert results_in(view) == [False, False, False, True]
    rows = (await engine.audit(SESSION)).requests
    assert [row.counts.shortened for row in rows] == [0, 0, 0, 0, 2, 3, 3]
    assert (await why_of(engine))[:2] == ("shortened", INFERRED)
    # Counts are of all that was cleared, also before: the second edit took 1,000 more.
    kind = "clear_tool_uses"
    assert await steps_of(engine) == [(kind, 543 + 2000), (kind, 543 + 1000)]


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


async def test_thinking_that_was_cleared_is_that_of_the_oldest_turns(tmp_path: Path) -> None:
    log = thinks(thinks(thinks(ClaudeCode(), 1), 2), 3)
    log.answer("m9", text("done"), **edited(thinking_turns=2)).user("more")
    log.answer("m10", text("yes"), **edited(thinking_turns=2))
    engine, view = await viewed(linked(log), tmp_path)
    assert with_thinking(view) == [False, False, False, False, True, True]
    assert await steps_of(engine) == [("clear_thinking", 543 + 2000)]
    audit = await engine.audit(SESSION)
    assert (audit.compactions[0].messages_before, audit.compactions[0].messages_after) == (15, 15)
    assert audit.losses == ()
    why = await engine.why(SESSION, 1)
    assert (why.standing, why.stripped is not None) == ("whole", True)
    lost = (await engine.lost(SESSION)).messages
    assert (lost.left, lost.shortened, lost.thinking_cleared) == (0, 0, 4)
    assert (await engine.lost(SESSION, compaction=1)).messages.thinking_cleared == 4


async def test_both_edits_of_one_request_are_two_steps(tmp_path: Path) -> None:
    log = thinks(thinks(ClaudeCode(), 1), 2)
    log.answer("m9", text("done"), **edited(thinking_turns=1, tool_uses=3))
    engine, view = await viewed(linked(log.user("on").answer("m10", text("x"))), tmp_path)
    assert with_thinking(view) == [False, False, True, True]
    told = [("clear_thinking", 543 + 4000), ("clear_tool_uses", 543 + 3000)]
    assert await steps_of(engine) == told
