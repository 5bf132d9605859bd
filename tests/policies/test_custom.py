"""Policies of a user's own: from a function or its path, with whatever the function does wrong."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import CapturingLogger

from eventctx.cli.commands.audit import compaction_line
from eventctx.errors import CompactionError, InvalidPlan, InvalidSetting
from eventctx.hooks.log import LogSink, level_of, lines
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
from tests.policies.advisers import Scripted
from tests.policies.given import (
    DUE,
    ROOMY,
    Row,
    asks,
    compactions_of,
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
NO_MESSAGE = NewInsertion("notice", {"text": "?"})

# -- what authors are given ----------------------------------------------------------------------

ROWS = [
    *(system("s"), user("task"), asks("a", "b"), tells("a"), tells("b"), model("so")),
    *(user("on"), asks("c"), tells("c"), model("done")),
]


def test_a_choice_of_messages_takes_their_rounds_along_and_leaves_what_must_stay() -> None:
    proposal = keep_only(view(*ROWS, pins=(5,)), [3])
    assert staying(proposal) == [0, 2, 3, 4, 5, 6]
    fitted = fit(view(*ROWS, pins=(5,)), proposal, ROOMY).proposal
    assert fitted.dispositions[1] == ("kept", "task")
    reasons = [("kept", "same_round"), ("kept", "custom"), ("dropped", "custom")]
    assert [proposal.dispositions[number] for number in (2, 3, 9)] == reasons
    proposal = drop(view(*ROWS, pins=(8,)), [0, 3, 6, 7])
    assert staying(proposal) == [0, 1, 5, 6, 7, 8, 9]
    assert proposal.dispositions[2] == ("dropped", "custom")
    assert proposal.dispositions[1] == ("kept", "fits")
    for make in (keep_only, drop):
        with pytest.raises(InvalidPlan, match=r"in view.*\[77\]"):
            make(view(*ROWS), [1, 77])


@examples
@given(story=stories(), data=st.data())
def test_any_choice_of_messages_keeps_the_rules(story: Story, data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, len(story.messages) - 1)))
    visible = seen(story, tuple(data.draw(st.sets(st.integers(0, len(story.messages) - 1)))))
    for make in (keep_only, drop):
        keeps_the_rules(Custom(lambda v, b, s, make=make: make(v, numbers)), visible, ROOMY)


# -- finding the function ------------------------------------------------------------------------


def test_a_function_and_both_spellings_of_its_path_are_one_policy_recorded_by_its_path() -> None:
    sys.modules.setdefault(HERE, sys.modules[last_three.__module__])
    itself = policy_named("custom", {"function": last_three})
    assert itself == Custom(last_three) != Custom(without_the_oldest)
    visible = view(*ROWS)
    for path in (f"{HERE}:last_three", f"{HERE}.last_three"):
        named = policy_named("custom", {"function": path})
        assert named.propose(visible, ROOMY, DUE) == itself.propose(visible, ROOMY, DUE)
    for function, recorded in (
        (f"{HERE}:last_three", f"{HERE}:last_three"),
        (last_three, f"{HERE}:last_three"),
        (Own().propose, f"{HERE}:Own.propose"),
    ):
        assert recorded_settings(Custom(function))["function"] == recorded
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
    assert "expected" in str(caught.value) and "found" in str(caught.value)


def test_an_async_function_and_a_module_that_raises_when_imported_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waits(visible: Visible, budget: Budget, state: PolicyState) -> Proposal:
        return drop(visible, [])

    with pytest.raises(InvalidSetting, match="asks questions"):
        Custom(waits)
    with pytest.raises(CompactionError, match="found coroutine"):
        Custom(lambda v, b, s: waits(v, b, s)).propose(view(*ROWS), ROOMY, DUE)
    (tmp_path / "broken_policy.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSetting, match="RuntimeError: not today"):
        Custom("broken_policy:f")


# -- in a session --------------------------------------------------------------------------------


async def compacted(function: Any, **options: Any) -> tuple[list[Row], Any, Any]:
    """A request of a session that must be compacted, with the event and audit row of that."""
    options |= {"policy": "custom", "function": function, "max_tokens": 1_500}
    async with one_session(**options) as (engine, ctx):
        await ctx.add_messages([user("pinned"), user("go")])
        await ctx.pin(0)
        for n in range(9):
            await ctx.add_messages([asks(f"c{n}"), tells(f"c{n}", 600)])
        messages = await ctx.get_messages_for_request()
        assert len(await ctx.get_messages()) == 20
        (row,) = (await engine.audit("s")).compactions
        return messages, (await compactions_of(engine))[-1], row


def three_and(visible: Visible, changes: Any = None, **more: Any) -> Proposal:
    made = keep_only(visible, [ref.number for ref in visible.messages[-3:]])
    return Proposal({**made.dispositions, **(changes or {})}, **more)


def asks_forever(visible: Visible, budget: Budget, state: PolicyState) -> AskScores:
    return AskScores("s", (0,))


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda v, b, s: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda v, b, s: None, "expected a Proposal or a question, found NoneType"),
        (lambda v, b, s: keep_only(v, [1, 4_000]), "not in view"),
        (lambda v, b, s: three_and(v, changes={4_000: ("kept", "custom")}), "not in view"),
        (lambda v, b, s: three_and(v, changes={19: ("dropped", "custom")}), "a tool round stands"),
        (lambda v, b, s: three_and(v, insertions=(NO_MESSAGE,)), "role"),
        (asks_forever, "scorer"),
        (lambda visible: None, "TypeError"),
    ],
)
async def test_a_function_that_fails_leaves_it_to_the_ladder(function: Any, problem: str) -> None:
    messages, event, row = await compacted(function)
    assert messages[:2] == [user("pinned"), user("go")]
    assert (event.strategy, row.fallback, row.outcome) == ("custom", "ladder", "applied")
    assert problem in row.error


@pytest.mark.parametrize(
    ("function", "questions"),
    [(asks_forever, 1), (lambda v, b, s: AskScores(f"s{len(s.answers)}", (0,)), MAX_QUESTIONS)],
)
async def test_a_function_that_goes_on_asking_is_stopped(function: Any, questions: int) -> None:
    scorer = Scripted()
    _, _, row = await compacted(function, scorer=scorer)
    assert (row.fallback, row.outcome) == ("ladder", "applied")
    assert len(scorer.requests) == questions
    assert "again and again" in row.error


# -- a policy that fails is told -------------------------------------------------------------------


async def too_slow(request: Any) -> Any:
    await asyncio.Event().wait()


DOWN = Scripted(ConnectionError("the model is down"))
CASES: list[tuple[dict[str, Any], str]] = [
    ({"policy": lambda v, b, s: Proposal({})}, "InvalidPlan"),
    ({"policy": "summarize", "summarizer": DOWN}, "ConnectionError"),
    ({"policy": "summarize", "summarizer": too_slow, "adviser_timeout": 0.1}, "TimeoutError"),
]


@pytest.mark.parametrize(("given", "kind"), CASES)
async def test_a_failure_is_told_in_log_span_and_audit(given: dict[str, Any], kind: str) -> None:
    logger = CapturingLogger()
    async with one_session(max_tokens=3_000, **given) as (engine, context):
        engine.on("*", LogSink(structlog.wrap_logger(logger, processors=[])))
        for number in range(20):
            await context.add_message(user(f"{number} " + "word " * 50))
            await context.add_message(model("fine " * 60))
        await context.get_messages_for_request()
        records = [record async for record in engine.records("s")]
        (row,) = (await engine.audit("s")).compactions
        found = [span async for span in spans(engine.store, "s")]
    (event,) = [one for one in map(read, records) if isinstance(one, PostCompact)]
    assert (event.outcome, event.fallback) == ("applied", "ladder")
    assert (event.error or "").startswith(f"{kind}: ")

    (line,) = [call for call in logger.calls if "fallback" in call.kwargs]
    said = (line.method_name, line.kwargs["strategy"], line.kwargs["error"])
    assert said == ("warning", event.strategy, event.error)
    (replayed,) = [one for one in lines(records) if "fallback" in one]
    assert replayed["error"] == event.error
    assert level_of({"event": "context:post_compact", "outcome": "applied"}) == "info"

    assert (row.fallback, row.error) == ("ladder", event.error)
    shown = "".join(part if isinstance(part, str) else part[0] for part in compaction_line(row))
    assert f"ladder decided, as {event.strategy} failed: {event.error}" in shown

    (span,) = [one for one in found if one.name.startswith("compact ")]
    assert span.status == "unset"  # the compaction itself succeeded
    told = span.attributes["error.type"], span.attributes["eventctx.compaction.fallback"]
    assert told == (kind, "ladder")
    (ended,) = [one for one in span.events if one.name == "context:post_compact"]
    assert ended.attributes["eventctx.error"] == event.error
