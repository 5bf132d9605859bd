"""Which spans are kept from being sent because their turn is still open."""

from __future__ import annotations

from eventctx.log import events as ev
from eventctx.projections.trace.fold import OpenTurns, fold
from eventctx.projections.trace.spans import Span
from tests.hooks.given import Session, span, whole_turn


def sent(*sessions: Session) -> tuple[list[Span], int]:
    turns, out = OpenTurns(), list[Span]()
    for session in sessions:
        for one in fold(session.records):
            out += turns.ready([one])
    return [*out, *turns.rest()], turns.left_out


def begun(session: Session, turn: str, base: int) -> None:
    session.add(ev.PromptSubmit(number=9), span(base), turn=turn)
    session.add(ev.ProviderRequest(), span(base + 1), span(base), turn=turn)
    session.add(ev.ProviderResponse(), span(base + 1), span(base), turn=turn)
    session.add(ev.ToolPre(name="slow"), span(base + 2), span(base + 1), turn=turn)


def test_a_turn_that_is_done_is_sent_whole_and_its_own_span_last():
    session = Session()
    whole_turn(session)
    out, left_out = sent(session)
    assert out == list(fold(session.records))
    assert left_out == 0


def test_nothing_of_the_last_turn_is_sent_while_it_has_no_end():
    session = Session()
    whole_turn(session)
    begun(session, "t2", 0x200)
    out, left_out = sent(session)
    assert {one.attributes["eventctx.turn.id"] for one in out} == {"t1"}
    assert left_out == 1
    session.add(ev.PromptComplete(), span(0x200), turn="t2")
    assert sent(session) == (list(fold(session.records)), 0)


def test_a_turn_that_a_crash_left_open_is_sent_once_another_has_begun():
    session = Session()
    begun(session, "t1", 0x100)
    whole_turn(session, "t2", 0x200)
    out, left_out = sent(session)
    assert {one.span_id for one in out} == {one.span_id for one in fold(session.records)}
    assert left_out == 0


def test_a_tool_that_ends_behind_its_turn_is_sent_and_so_is_what_is_in_no_turn():
    session = Session()
    begun(session, "t1", 0x100)
    session.add(ev.PromptComplete(), span(0x100))
    session.add(ev.ToolPost(name="slow"), span(0x102), span(0x101))
    session.add(ev.ProviderRequest(), span(0x300), turn=None)
    out, _ = sent(session)
    assert {one.span_id for one in out} == {one.span_id for one in fold(session.records)}


def test_the_rest_of_a_turn_whose_own_span_is_the_parents_is_sent_from_a_fork():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(ev.SessionFork(parent="mother", at=0), turn=None)
    session.add(ev.ToolPre(name="x"), span(2), span(1))
    session.add(ev.ToolPost(name="x"), span(2), span(1))
    assert [one.span_id for one in sent(session)[0]] == [span(2)]


def test_the_open_turns_of_several_sessions_are_counted_and_turns_of_one_name_kept_apart():
    first, second = Session("s1"), Session("s2")
    begun(first, "t1", 0x100)
    whole_turn(second, "t1", 0x200)
    begun(second, "t2", 0x300)
    out, left_out = sent(first, second)
    assert {one.attributes["session.id"] for one in out} == {"s2"}
    assert left_out == 2
