"""Policies of a user's own: from a function or its path, with whatever the function does wrong."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

import eventctx
from eventctx.cli.commands.audit import compaction_line
from eventctx.errors import CompactionError, InvalidPlan, InvalidSetting
from eventctx.hooks.log import LogSink, level_of, lines
from eventctx.log.codec import decode_event
from eventctx.log.events import PostCompact
from eventctx.policies.deciding import MAX_QUESTIONS
from eventctx.policies.fit import fit
from eventctx.policies.named import Custom, policy_named, recorded_settings
from eventctx.policies.policy import (
    AskScores,
    Budget,
    NewInsertion,
    PolicyState,
    Proposal,
    Scores,
    Visible,
)
from eventctx.policies.proposals import drop, keep_only
from eventctx.projections.flat import read
from eventctx.queries.spans import spans
from tests.policies.given import (
    DUE,
    ROOMY,
    asks,
    examples,
    keeps_the_rules,
    model,
    one_session,
    seen,
    staying,
    system,
    tells,
    user,
    view,
)
from tests.transcripts import Story, stories

HERE = __name__


def last_three(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    return keep_only(visible, [ref.number for ref in visible.messages[-3:]])


def without_the_oldest(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    return drop(visible, [ref.number for ref in visible.messages[: len(visible.messages) // 2]])


def wants_scores(visible: Visible, budget: Budget, state: PolicyState) -> Proposal | AskScores:
    numbers = tuple([ref.number for ref in visible.messages])
    scores = state.answers.get("s")
    if not isinstance(scores, Scores):
        return AskScores("s", numbers)
    return keep_only(visible, [n for n in numbers if scores.by_number[n] >= 0.5])


class Own:
    name, version, max_messages = "own", 1, None

    def propose(self, visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        return last_three(visible, budget, state)


NUMBER = 5

# -- what authors are given ----------------------------------------------------------------------

ROWS = [
    *(system("s"), user("task"), asks("a", "b"), tells("a"), tells("b"), model("so")),
    *(user("on"), asks("c"), tells("c"), model("done")),
]


def test_keeping_only_some_messages_keeps_their_rounds_and_what_must_stay() -> None:
    proposal = keep_only(view(*ROWS, pins=(5,)), [3])
    assert staying(proposal) == [0, 2, 3, 4, 5, 6]
    fitted = fit(view(*ROWS, pins=(5,)), proposal, ROOMY).proposal
    assert fitted.dispositions[1] == ("kept", "task")
    assert proposal.dispositions[3] == ("kept", "custom")
    assert proposal.dispositions[2] == ("kept", "same_round")
    assert proposal.dispositions[9] == ("dropped", "custom")


def test_dropping_some_messages_drops_their_rounds_but_nothing_that_must_stay() -> None:
    proposal = drop(view(*ROWS, pins=(8,)), [0, 3, 6, 7])
    assert staying(proposal) == [0, 1, 5, 6, 7, 8, 9]
    assert proposal.dispositions[2] == ("dropped", "custom")
    assert proposal.dispositions[1] == ("kept", "fits")


@pytest.mark.parametrize("make", [keep_only, drop])
def test_a_number_that_is_not_in_view_is_an_error(make: Callable[..., Proposal]) -> None:
    with pytest.raises(InvalidPlan, match=r"in view.*\[77\]"):
        make(view(*ROWS), [1, 77])


@examples
@given(story=stories(), data=st.data())
def test_any_choice_of_messages_makes_a_proposal_that_keeps_the_rules(
    story: Story, data: st.DataObject
) -> None:
    numbers = data.draw(st.sets(st.integers(0, len(story.messages) - 1)))
    visible = seen(story, tuple(data.draw(st.sets(st.integers(0, len(story.messages) - 1)))))
    for make in (keep_only, drop):
        keeps_the_rules(Custom(lambda v, b, s, make=make: make(v, numbers)), visible, ROOMY)


# -- finding the function ------------------------------------------------------------------------


def test_a_function_and_both_spellings_of_its_path_are_the_same_policy() -> None:
    sys.modules.setdefault(HERE, sys.modules[last_three.__module__])
    by_colon = policy_named("custom", {"function": f"{HERE}:last_three"})
    by_dot = policy_named("custom", {"function": f"{HERE}.last_three"})
    itself = policy_named("custom", {"function": last_three})
    visible = view(*ROWS)
    assert by_dot.propose(visible, ROOMY, DUE) == itself.propose(visible, ROOMY, DUE)
    assert by_colon.propose(visible, ROOMY, DUE) == itself.propose(visible, ROOMY, DUE)
    assert itself == Custom(last_three)
    assert itself != Custom(without_the_oldest)


def test_what_is_recorded_of_it_is_its_path() -> None:
    assert recorded_settings(Custom(f"{HERE}:last_three"))["function"] == f"{HERE}:last_three"
    assert recorded_settings(Custom(last_three))["function"] == f"{HERE}:last_three"
    assert recorded_settings(Custom(Own().propose))["function"] == f"{HERE}:Own.propose"
    assert "functools" in str(recorded_settings(Custom(partial(last_three)))["function"])


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (None, "expected a function"),
        (5, "cannot be called"),
        ("", "expected a function"),
        ("last_three", "expected a function"),
        ("no way", "expected a function"),
        ("no.such.module:f", "ModuleNotFoundError"),
        (f"{HERE}:missing", "no such name"),
        (f"{HERE}:last_three.missing", "no such name"),
        (f"{HERE}:NUMBER", "cannot be called: 5"),
        (f"{HERE}:Own", "a class or a policy"),
        (Own(), "a class or a policy"),
    ],
)
def test_what_cannot_be_found_or_called_is_refused_at_once(function: Any, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem) as caught:
        Custom(function)
    assert "expected" in str(caught.value)
    assert "found" in str(caught.value)


def test_an_async_function_is_refused() -> None:
    async def waits(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        return drop(visible, [])

    with pytest.raises(InvalidSetting, match="asks questions"):
        Custom(waits)
    with pytest.raises(CompactionError, match="found coroutine"):
        Custom(lambda v, b, s: waits(v, b, s)).propose(view(*ROWS), ROOMY, DUE)


def test_a_module_that_raises_when_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_policy.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSetting, match="RuntimeError: not today"):
        Custom("broken_policy:f")


# -- in a session --------------------------------------------------------------------------------


async def compacted(function: Any, **options: Any) -> tuple[list[dict[str, Any]], Any, Any]:
    """A request of a session that must be compacted, with the record and audit row of that."""
    async with one_session(policy="custom", function=function, max_tokens=1_500, **options) as (
        engine,
        ctx,
    ):
        await ctx.add_message(user("pinned"))
        await ctx.pin(0)
        await ctx.add_message(user("go"))
        for n in range(9):
            await ctx.add_messages([asks(f"c{n}"), tells(f"c{n}", 600)])
        messages = await ctx.get_messages_for_request()
        assert len(await ctx.get_messages()) == 20
        records = [r async for r in engine.records("s") if r.type == "context:post_compact"]
        (row,) = (await engine.audit("s")).compactions
        return messages, decode_event(records[-1]), row


async def test_the_function_may_ask() -> None:
    async def scorer(request: Any) -> list[float]:
        return [number / 30 for number in request.numbers]

    messages, _, row = await compacted(wants_scores, scorer=scorer)
    assert messages[:2] == [user("pinned"), user("go")]
    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ["c6", "c7", "c8"]
    assert row.fallback is None


def raises(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    raise ZeroDivisionError("by zero")


def nothing(visible: Visible, budget: Budget, state: PolicyState) -> None:
    return None


def strangers(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    return keep_only(visible, [1, 4_000])


def ghosts(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    made = last_three(visible, budget, state)
    return Proposal({**made.dispositions, 4_000: ("kept", "custom")})


def half_a_round(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    made = last_three(visible, budget, state)
    return Proposal({**made.dispositions, 19: ("dropped", "custom")})


def no_message(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
    made = last_three(visible, budget, state)
    return Proposal(made.dispositions, insertions=(NewInsertion("notice", {"text": "?"}),))


def asks_forever(visible: Visible, budget: Budget, state: PolicyState) -> AskScores:
    return AskScores("s", (0,))


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (raises, "ZeroDivisionError: by zero"),
        (nothing, "expected a Proposal or a question, found NoneType"),
        (strangers, "not in view"),
        (ghosts, "not in view"),
        (half_a_round, "a tool round stands or falls as one"),
        (no_message, "role"),
        (asks_forever, "scorer"),
        (lambda visible: None, "TypeError"),
    ],
)
async def test_whatever_the_function_does_wrong_the_ladder_decides_and_the_log_says_why(
    function: Any, problem: str
) -> None:
    messages, event, row = await compacted(function)
    assert messages[:2] == [user("pinned"), user("go")]
    assert (event.strategy, row.fallback, row.outcome) == ("custom", "ladder", "applied")
    assert problem in row.error


def asks_anew(visible: Visible, budget: Budget, state: PolicyState) -> AskScores:
    return AskScores(f"s{len(state.answers)}", (0,))


@pytest.mark.parametrize(("function", "questions"), [(asks_forever, 1), (asks_anew, MAX_QUESTIONS)])
async def test_a_function_that_goes_on_asking_is_stopped(function: Any, questions: int) -> None:
    asked = 0

    async def scorer(request: Any) -> list[float]:
        nonlocal asked
        asked += 1
        assert asked <= MAX_QUESTIONS
        return [0.5]

    _, _, row = await compacted(function, scorer=scorer)
    assert (row.fallback, row.outcome, asked) == ("ladder", "applied", questions)
    assert "again and again" in row.error


# -- a policy that fails is told -------------------------------------------------------------------


def breaks_a_rule(visible: Any, budget: Any, state: Any) -> Proposal:
    return Proposal({})


async def down(request: Any) -> Any:
    raise ConnectionError("the model is down")


async def too_slow(request: Any) -> Any:
    await asyncio.Event().wait()


CASES: list[tuple[dict[str, Any], str]] = [
    ({"policy": breaks_a_rule}, "InvalidPlan"),
    ({"policy": "summarize", "summarizer": down}, "ConnectionError"),
    ({"policy": "summarize", "summarizer": too_slow, "adviser_timeout": 0.1}, "TimeoutError"),
]


@pytest.mark.parametrize(("given", "kind"), CASES)
async def test_a_policy_that_fails_is_told_in_the_log_line_on_the_span_and_in_the_audit(
    given: dict[str, Any], kind: str
) -> None:
    logger = CapturingLogger()
    async with eventctx.open() as engine:
        engine.on("*", LogSink(structlog.wrap_logger(logger, processors=[])))
        context = await engine.session("s", max_tokens=3_000, **given)
        for number in range(20):
            await context.add_message({"role": "user", "content": f"{number} " + "word " * 50})
            await context.add_message({"role": "assistant", "content": "fine " * 60})
        await context.get_messages_for_request()
        records = [record async for record in engine.records("s")]
        audit = await engine.audit("s")
        found = [span async for span in spans(engine.store, "s")]

    (event,) = [one for one in map(read, records) if isinstance(one, PostCompact)]
    assert (event.outcome, event.fallback) == ("applied", "ladder")
    assert (event.error or "").startswith(f"{kind}: ")

    (line,) = [call for call in logger.calls if "fallback" in call.kwargs]
    assert line.method_name == "warning"
    assert line.kwargs["strategy"] == event.strategy
    assert line.kwargs["error"] == event.error
    (replayed,) = [one for one in lines(records) if "fallback" in one]
    assert replayed["error"] == event.error

    (row,) = audit.compactions
    assert (row.fallback, row.error) == ("ladder", event.error)
    shown = "".join(part if isinstance(part, str) else part[0] for part in compaction_line(row))
    assert f"ladder decided, as {event.strategy} failed: {event.error}" in shown

    (span,) = [one for one in found if one.name.startswith("compact ")]
    assert span.status == "unset"  # the compaction itself succeeded
    assert span.attributes["error.type"] == kind
    assert span.attributes["eventctx.compaction.fallback"] == "ladder"
    (ended,) = [one for one in span.events if one.name == "context:post_compact"]
    assert ended.attributes["eventctx.error"] == event.error


def test_the_line_of_a_compaction_is_a_warning_only_where_the_policy_failed() -> None:
    applied = {"event": "context:post_compact", "outcome": "applied"}
    assert level_of(applied) == "info"
    assert level_of({**applied, "fallback": "ladder"}) == "warning"
