"""The recorder of turns: spans begin once and end once, in the order of the specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting, TurnError
from eventctx.log import events
from eventctx.log.events import Event
from eventctx.log.ids import RecordIds
from eventctx.log.turn_recorder import (
    SpanOutcome,
    SpanRecord,
    TurnRecorder,
    TurnSpan,
    outcome_of,
    usage_record,
)
from eventctx.log.usage import Usage
from eventctx.session.activity import SessionEmitter
from eventctx.session.host_turns import HostReporter
from eventctx.session.scope import Scope

ENDS: dict[type[Event], tuple[type[Event], ...]] = {
    events.PromptSubmit: (events.PromptComplete,),
    events.PlanStart: (events.PlanEnd,),
    events.ProviderRequest: (events.ProviderResponse, events.ProviderError),
    events.ToolPre: (events.ToolPost, events.ToolError),
}
ENDINGS = {end for ends in ENDS.values() for end in ends}


class Counted:
    """An id source: span ids in the order in which they were asked for."""

    def __init__(self) -> None:
        self.asked: list[type[Event]] = []

    def __call__(self, event: type[Event]) -> str:
        self.asked.append(event)
        return f"{len(self.asked):016x}"


def kinds(made: list[SpanRecord]) -> list[str]:
    return [str(one.event.__struct_config__.tag) for one in made]


def test_a_turn_with_a_plan_and_a_tool_makes_the_records_of_the_specification() -> None:
    turn = TurnRecorder(Counted(), "t", events.PromptSubmit(number=1))
    cycle = turn.iteration()
    plan = cycle.plan("how")
    made = [turn.span.begin(), plan.begin()]
    thought = cycle.inside(plan).model_call()
    made += [thought.begin(), thought.end(), plan.end()]
    call = cycle.model_call("m", "p")
    call.of.usage = Usage(10, 2)
    made += [call.begin(), usage_record(call), call.end()]
    tool = cycle.tool_call("read", "c1")
    made += [tool.begin(), tool.end(), turn.span.end()]
    assert kinds(made) == [
        *("prompt:submit", "plan:start", "provider:request", "provider:response", "plan:end"),
        *("provider:request", "usage:reported", "provider:response"),
        *("tool:pre", "tool:post", "prompt:complete"),
    ]
    assert [one.ids.iteration for one in made] == [None, *[1] * 9, None]
    assert {one.ids.turn_id for one in made} == {"t"}


def test_a_span_stands_under_what_it_is_made_in() -> None:
    turn = TurnRecorder(Counted(), "t")
    turn.enter("of-the-host")
    cycle = turn.iteration()
    plan, early, call = cycle.plan(), cycle.tool_call("a"), cycle.model_call()
    tool = cycle.tool_call("b")
    assert turn.ids.parent_span_id == "of-the-host"
    assert [one.ids.parent_span_id for one in (plan, early, call)] == [turn.ids.span_id] * 3
    assert tool.ids.parent_span_id == call.ids.span_id
    # The next iteration has no model call yet.
    assert turn.iteration().tool_call("c").ids.parent_span_id == turn.ids.span_id
    # Outside of a turn a model call has neither turn nor iteration nor parent.
    cycle = TurnRecorder(Counted()).iteration()
    call = cycle.model_call()
    assert call.ids == RecordIds(span_id=call.ids.span_id)
    assert cycle.tool_call("t").ids.parent_span_id == call.ids.span_id


def test_iterations_count_from_one_and_go_on_from_a_number_that_is_given() -> None:
    turn = TurnRecorder(Counted(), "t")
    numbers = [turn.iteration(given).ids.iteration for given in (None, None, 7, None, 0)]
    assert numbers == [1, 2, 7, 8, 0]
    for wrong in (-1, 2**31, True, "1"):
        with pytest.raises(InvalidSetting, match="iteration: expected an int from 0"):
            turn.iteration(wrong)  # type: ignore[arg-type]


def test_the_id_source_knows_which_record_begins_the_span() -> None:
    source = Counted()
    cycle = TurnRecorder(source, "t").iteration()
    cycle.plan(), cycle.model_call(), cycle.tool_call("x")
    assert source.asked == list(ENDS)


def test_what_failed_ends_with_its_error_and_what_was_cancelled_says_so() -> None:
    cycle = TurnRecorder(Counted(), "t").iteration()
    tool, call = cycle.tool_call("x", "c"), cycle.model_call()
    tool.begin(), call.begin()
    failed = events.ToolError(name="x", error_type="ValueError", call_id="c", message="no")
    assert tool.end(outcome_of(ValueError("no"))).event == failed
    left = events.ProviderError(error_type="Left", status="cancelled")
    assert call.end(SpanOutcome("cancelled", "Left")).event == left


def test_a_span_that_begins_or_ends_twice_is_an_error_that_says_what_to_do() -> None:
    call = TurnRecorder(Counted(), "t").iteration().model_call()
    with pytest.raises(TurnError, match="this model call has not begun"):
        call.end()
    call.begin()
    with pytest.raises(TurnError, match="make a new model call for every `async with`"):
        call.begin()
    call.end()
    with pytest.raises(TurnError, match="this model call has ended already"):
        call.end()


# -- any program of blocks -----------------------------------------------------------------------

STEPS = st.lists(st.sampled_from(["plan", "model", "tool", "iterate", "end", "fail"]), max_size=40)


def played(steps: list[str]) -> Iterator[SpanRecord]:
    """A turn in which spans are nested and left in any order that blocks can have."""
    source = Counted()
    turn = TurnRecorder(source, "t")
    yield turn.span.begin()
    cycle = turn.iteration()
    nested: list[TurnSpan[Any]] = []
    for step in steps:
        if step == "iterate":
            cycle = turn.iteration()
        elif step in ("end", "fail"):
            if nested:
                yield nested.pop().end(outcome_of(ValueError("x") if step == "fail" else None))
        else:
            make = {"plan": cycle.plan, "model": cycle.model_call, "tool": cycle.tool_call}[step]
            nested.append(make("x"))
            yield nested[-1].begin()
    while nested:
        yield nested.pop().end()
    yield turn.span.end()


def check(made: list[SpanRecord]) -> None:
    """What every reader of a log relies on."""
    opened: dict[str | None, SpanRecord] = {}
    ended: set[str | None] = set()
    turn: str | None = None
    for one in made:
        span_id, kind = one.ids.span_id, type(one.event)
        if kind in ENDS:
            assert span_id not in opened
            opened[span_id] = one
            if kind is events.PromptSubmit:
                turn = span_id
            else:
                # The parent has begun before, and the turn is not over.
                assert opened[one.ids.parent_span_id].ids.turn_id == one.ids.turn_id
                assert turn not in ended
        elif kind in ENDINGS:
            assert span_id not in ended
            assert kind in ENDS[type(opened[span_id].event)]
            assert one.ids == opened[span_id].ids
            ended.add(span_id)
    assert ended == set(opened)


@settings(deadline=None)
@given(STEPS)
def test_every_span_of_any_turn_ends_once_and_begins_under_one_that_began(
    steps: list[str],
) -> None:
    made = list(played(steps))
    check(made)
    assert kinds(made)[:: len(made) - 1] == ["prompt:submit", "prompt:complete"]


# -- any report of a host ------------------------------------------------------------------------


class Kept:
    """An emitter that keeps what it is given."""

    session_id = "s"
    current_span = None

    def __init__(self) -> None:
        self.made: list[SpanRecord] = []
        self._source = Counted()

    def new_span_id(self) -> str:
        return self._source(Event)

    def prepared_in(self, scope: Scope) -> int | None:
        return None

    async def begin_turn(self, scope: Scope, *_: str | None) -> int:
        self.note(events.PromptSubmit(number=1), scope)
        return 1

    def note(self, event: Event, scope: Scope, *_: Any, **__: Any) -> None:
        self.made.append(SpanRecord(event, scope.ids))


REPORTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["turn_began", "turn_ended", "request_prepared", "model_answered"], ()),
    "iteration_began": ("p",),
    "model_failed": ("E", "x"),
    "tool_began": ("t", None, 1),
    "tool_ended": (1,),
    "tool_failed": (1, "E", "x"),
}


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(REPORTS)), max_size=30))
async def test_whatever_a_host_reports_every_span_ends_once(reports: list[str]) -> None:
    emitter = Kept()
    host = HostReporter(cast(SessionEmitter, emitter), lambda scope: None, bytes)
    for name in reports:
        await getattr(host, name)(*REPORTS[name])
    await host.turn_ended()
    check(emitter.made)
