"""Where a span hangs: tools beside the model call that asked for them, all else as in the log."""

from __future__ import annotations

import pytest

from eventctx.log import events as ev
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.identity import MAX_CALLS
from eventctx.projections.trace.spans import Span
from tests.hooks.given import PRE, Session, compacted, span

TURN, CALL, TOOL, OTHER = (span(number) for number in range(1, 5))
LOGGED = "eventctx.parent_span_id"


def spans(session: Session) -> dict[str, Span]:
    return {one.span_id: one for one in fold(session.records)}


def call(session: Session, own: str, parent: str | None, turn: str | None = "t1") -> None:
    session.add(ev.ProviderRequest(model="m"), own, parent, turn=turn)
    session.add(ev.ProviderResponse(model="m"), own, parent, turn=turn)


def tool(session: Session, own: str, parent: str | None, turn: str | None = "t1") -> None:
    session.add(ev.ToolPre(name="grep", call_id="c"), own, parent, turn=turn)
    session.add(ev.ToolPost(name="grep", call_id="c"), own, parent, turn=turn)


def test_a_tool_hangs_beside_the_call_that_asked_for_it_and_names_it():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    call(session, CALL, TURN)
    tool(session, TOOL, CALL)
    session.add(ev.PromptComplete(), TURN)
    found = spans(session)
    assert found[TOOL].parent_span_id == found[CALL].parent_span_id == TURN
    assert found[TOOL].attributes[LOGGED] == CALL
    assert not any(LOGGED in one.attributes for one in found.values() if one.span_id != TOOL)


def test_a_tool_of_a_call_in_a_plan_or_a_compaction_hangs_in_that():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    for begin, end in ((ev.PlanStart(), ev.PlanEnd()), (PRE, compacted())):
        session.add(begin, OTHER, TURN)
        call(session, CALL, OTHER)
        tool(session, TOOL, CALL)
        session.add(end, OTHER, TURN)
    found = list(fold(session.records))
    assert [one.parent_span_id for one in found if one.span_id == TOOL] == [OTHER, OTHER]


def test_a_tool_hangs_where_its_record_says_if_that_is_no_model_call():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    tool(session, TOOL, TURN)
    session.add(ev.PlanStart(), OTHER, TURN)
    tool(session, CALL, OTHER)
    found = spans(session)
    assert (found[TOOL].parent_span_id, found[CALL].parent_span_id) == (TURN, OTHER)
    assert not any(LOGGED in one.attributes for one in found.values())


def test_a_tool_of_a_call_that_nobody_knows_hangs_in_its_turn():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    tool(session, TOOL, OTHER)
    assert spans(session)[TOOL].parent_span_id == TURN
    assert spans(session)[TOOL].attributes[LOGGED] == OTHER


def test_a_tool_of_a_call_outside_a_turn_stands_beside_it_in_its_trace():
    session = Session()
    call(session, CALL, None, turn=None)
    tool(session, TOOL, CALL, turn=None)
    found = spans(session)
    assert (found[TOOL].parent_span_id, found[CALL].parent_span_id) == (None, None)
    assert found[TOOL].attributes[LOGGED] == CALL
    assert found[TOOL].trace_id == found[CALL].trace_id


def test_a_tool_that_begins_behind_its_turn_hangs_in_that_turn():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    call(session, CALL, TURN)
    session.add(ev.PromptComplete(), TURN)
    tool(session, TOOL, CALL)
    assert spans(session)[TOOL].parent_span_id == TURN


def test_the_calls_that_are_remembered_are_bounded_and_the_latest_stay():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    session.add(ev.PlanStart(), OTHER, TURN)
    own = [span(0x100 + number) for number in range(MAX_CALLS + 1)]
    for one in own:
        call(session, one, OTHER)
    for number, one in enumerate(own):
        tool(session, span(0x200 + number), one)
    found = spans(session)
    hung = [found[span(0x200 + number)].parent_span_id for number in range(len(own))]
    assert hung == [TURN, *[OTHER] * MAX_CALLS]


@pytest.mark.parametrize("imported_at", [None, 5])
def test_imported_spans_end_before_the_next_one_begins_since_both_are_at_the_time_of_one_line(
    imported_at: int | None,
):
    session = Session()
    session.add(ev.SessionStart(library="x", imported_at=imported_at), turn=None)
    session.add(ev.PromptSubmit(number=1), TURN)
    session.add(ev.ProviderRequest(), CALL, TURN)
    one = session.add(ev.ProviderResponse(), CALL, TURN).time
    session.add(ev.ToolPre(name="grep"), TOOL, CALL, at=one)
    two = session.add(ev.ToolPost(name="grep"), TOOL, CALL).time
    session.add(ev.PromptComplete(), TURN, at=two)
    earlier = 0 if imported_at is None else 1
    ends = {own: found.end for own, found in spans(session).items()}
    assert ends == {CALL: one - earlier, TOOL: two - earlier, TURN: two}


@pytest.mark.parametrize("ended", [(), (OTHER, TURN), (TOOL, OTHER, TURN), (TOOL,)])
def test_no_span_of_no_length_outlasts_the_span_around_it(ended: tuple[str, ...]):
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    session.add(ev.PlanStart(), OTHER, TURN)
    began = session.add(ev.ToolPre(name="grep"), TOOL, OTHER)
    ends: dict[str, ev.Event] = {
        TOOL: ev.ToolPost(name="grep"), OTHER: ev.PlanEnd(), TURN: ev.PromptComplete()
    }  # fmt: skip
    for own in ended:
        session.add(ends[own], own, at=began.time)
    found = spans(session)
    assert {one.end for one in found.values()} == {began.time + 1}
