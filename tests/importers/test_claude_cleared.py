"""What Claude Code's micro-compactions, and its provider, cleared: results and thinking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.log.plan import INFERRED
from tests.importers.given import SESSION, ClaudeCode, call, gauges, text, thinking
from tests.importers.test_claude_route import linked, viewed


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
