"""Turns: each span begins and ends once; the counts of a call are read by one table."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.errors import InvalidSetting, TurnError
from eventctx.log import events
from eventctx.log import usage as usage_table
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
from eventctx.log.usage import ANTHROPIC, Usage, UsageForm, read_usage
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
    source = Counted()
    turn = TurnRecorder(source, "t")
    turn.enter("of-the-host")
    cycle = turn.iteration()
    plan, early, call = cycle.plan(), cycle.tool_call("a"), cycle.model_call()
    tool = cycle.tool_call("b")
    # The id source knows which record begins the span.
    begun = [events.PromptSubmit, events.PlanStart, events.ToolPre, events.ProviderRequest]
    assert source.asked == [*begun, events.ToolPre]
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
def test_every_span_of_a_turn_ends_once_and_begins_under_one_that_began(steps: list[str]) -> None:
    made = list(played(steps))
    check(made)
    assert kinds(made)[:: len(made) - 1] == ["prompt:submit", "prompt:complete"]


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

    async def has_open_calls(self, beside: str | None) -> bool:
        return False

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


# -- token counts, read by one table -------------------------------------------------------------

FORMS = [form for form in vars(usage_table).values() if isinstance(form, UsageForm)]
CALL = Usage(prompt=130, output=7, cache_read=100, cache_write=20, reasoning=3, cache_write_1h=5)


def nested(names: dict[str, Any]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    found: dict[str, Any] = {}
    for name, count in names.items():
        outer, _, inner = name.rpartition(".")
        (found.setdefault(outer, {}) if outer else found)[inner] = count
    return found


def in_form(usage: Usage, form: UsageForm) -> dict[str, Any]:
    """The usage as an API with this form reports it."""
    counts = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    counts["prompt"] -= sum(counts.get(name, 0) for name in form.outside_prompt)
    counts["output"] -= sum(counts.get(name, 0) for name in form.outside_output)
    return nested({getattr(form, name)[0]: n for name, n in counts.items() if getattr(form, name)})


@pytest.mark.parametrize("form", FORMS)
def test_one_call_reads_the_same_in_every_form(form: UsageForm) -> None:
    not_told = {name: 0 for name in Usage.__struct_fields__ if not getattr(form, name)}
    assert read_usage(in_form(CALL, form), form) == replace(CALL, **not_told)


@pytest.mark.parametrize("form", FORMS)
def test_what_counts_no_tokens_is_read_as_0(form: UsageForm) -> None:
    most = usage_table.MOST_TOKENS
    counts: list[Any] = [-5, most + 1, 2**63, 10**400, 1e308, True, "7", [7], None]
    for count in counts:
        read = read_usage(in_form(CALL, form) | {form.prompt[0]: count}, form)
        assert read is not None
        assert read.prompt == sum(getattr(read, name, 0) for name in form.outside_prompt), count
        assert read.output == CALL.output


def test_a_providers_own_counts_are_recognised_by_their_names() -> None:
    for form in (ANTHROPIC, usage_table.OPENAI_CHAT, usage_table.OPENAI_RESPONSES):
        assert usage_table.form_of_provider(in_form(CALL, form)) is form
    assert usage_table.form_of_host(in_form(CALL, usage_table.AMPLIFIER)) is usage_table.AMPLIFIER
    assert usage_table.form_of_host(in_form(CALL, ANTHROPIC)) is ANTHROPIC


ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just([]))


@settings(deadline=None)
@given(st.sampled_from(FORMS), st.lists(ODD, min_size=12, max_size=12))
def test_whatever_is_reported_is_read_as_counts(form: UsageForm, odd: list[Any]) -> None:
    names = [name for field in form[:5] for name in field]
    reported = nested(dict(zip(names, odd, strict=False)))
    for one in (reported, {name.partition(".")[0]: odd[0] for name in names}):
        usage = read_usage(one, form)
        assert usage and all(getattr(usage, name) >= 0 for name in Usage.__struct_fields__)


# LiteLLM reports Anthropic's names next to OpenAI's, whose prompt holds the caches.
BOTH = {"prompt_tokens": 130, "completion_tokens": 7, "cache_read_input_tokens": 100}
KERNEL = SimpleNamespace(input_tokens=100, output_tokens=5, cache_write_tokens=30)
FRAMEWORK = SimpleNamespace(
    prompt_token_count=100,
    tool_use_prompt_token_count=20,
    candidates_token_count=7,
    thoughts_token_count=3,
)
MOST = {"input_tokens": usage_table.MOST_TOKENS, "cache_read_input_tokens": 1}


def test_what_is_outside_or_beside_a_count_is_counted_once_and_never_too_much() -> None:
    for reported, form, usage in (
        (BOTH, usage_table.form_of_provider(BOTH), Usage(130, 7)),
        (KERNEL, usage_table.AMPLIFIER, Usage(130, 5, cache_write=30)),
        (FRAMEWORK, usage_table.GEMINI, Usage(120, 10, reasoning=3)),
        (MOST, ANTHROPIC, Usage(prompt=0, cache_read=1)),
    ):
        assert read_usage(reported, form) == usage
