"""Where a span hangs, what it links to, when it is sent, and the type of its error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.log import events as ev
from eventctx.log.ids import derive_trace_id
from eventctx.projections.trace.attributes import error_of
from eventctx.projections.trace.fold import OpenTurns, fold
from eventctx.projections.trace.identity import MAX_CALLS
from eventctx.projections.trace.spans import Span, SpanLink
from eventctx.queries import spans as queries
from tests.hooks.given import PRE, E, Session, call_model, compacted, span, spans, whole_turn

TURN, CALL, TOOL, OTHER = (span(number) for number in range(1, 5))
LOGGED, KIND = "eventctx.parent_span_id", "eventctx.link.kind"


def call(own: int, parent: int | None = 1) -> list[Any]:
    return [(E.ASK, own, parent), (E.ANSWER, own, parent)]


def tool(own: int, parent: int) -> list[Any]:
    return [(E.USE, own, parent), (E.USED, own, parent)]


def test_a_tool_hangs_beside_the_call_that_asked_for_it_and_links_to_it_as_long_as_it_is_kept():
    session = Session().tell((E.SUBMIT, 1), *call(2), *tool(3, 2), *tool(4, 1), (E.DONE, 1))
    found = spans(session)
    assert found[TOOL].parent_span_id == found[CALL].parent_span_id == TURN
    assert found[TOOL].attributes[LOGGED] == CALL
    assert found[TOOL].links == (SpanLink(found[CALL].trace_id, CALL, {KIND: "model_call"}),)
    for own in (TURN, CALL, OTHER):
        assert (found[own].links, LOGGED in found[own].attributes) == ((), False)
    session = Session().tell((E.SUBMIT, 1), (ev.PlanStart(), 4, 1))
    for number in range(MAX_CALLS + 1):
        session.tell(*call(0x100 + number, 4))
    for number in range(MAX_CALLS + 1):
        session.tell(*tool(0x200 + number, 0x100 + number))
    found = spans(session)
    hung = [found[span(0x200 + number)].parent_span_id for number in range(MAX_CALLS + 1)]
    assert hung == [TURN, *[OTHER] * MAX_CALLS]


def test_a_tool_of_a_call_in_a_plan_or_compaction_hangs_in_that_and_outside_a_turn_beside_it():
    session = Session().tell((E.SUBMIT, 1))
    for begin, end in ((ev.PlanStart(), ev.PlanEnd()), (PRE, compacted())):
        session.tell((begin, 4, 1), *call(2, 4), *tool(3, 2), (end, 4, 1))
    found = list(fold(session.records))
    assert [one.parent_span_id for one in found if one.span_id == TOOL] == [OTHER, OTHER]
    beside = spans(Session().tell(*call(2, None), *tool(3, 2), turn=None))
    assert (beside[TOOL].parent_span_id, beside[CALL].parent_span_id) == (None, None)
    assert beside[TOOL].attributes[LOGGED] == CALL
    assert beside[TOOL].trace_id == beside[CALL].trace_id


@pytest.mark.parametrize("imported_at", [None, 5])
def test_imported_spans_end_before_the_next_one_that_begins_at_one_time(imported_at: int | None):
    session = Session().tell((ev.SessionStart(library="x", imported_at=imported_at),), turn=None)
    session.tell((E.SUBMIT, 1), *call(2))
    one = session.records[-1].time
    session.add(E.USE, TOOL, CALL, at=one)
    two = session.add(E.USED, TOOL, CALL).time
    session.add(E.DONE, TURN, at=two)
    earlier = 0 if imported_at is None else 1
    ends = {own: found.end for own, found in spans(session).items()}
    assert ends == {CALL: one - earlier, TOOL: two - earlier, TURN: two}


@pytest.mark.parametrize("ended", [(), (OTHER, TURN), (TOOL, OTHER, TURN), (TOOL,)])
def test_no_span_of_no_length_outlasts_the_span_around_it(ended: tuple[str, ...]):
    session = Session().tell((E.SUBMIT, 1), (ev.PlanStart(), 4, 1), (E.USE, 3, 4))
    began, ends = session.records[-1].time, {TOOL: E.USED, OTHER: ev.PlanEnd(), TURN: E.DONE}
    for own in ended:
        session.add(ends[own], own, at=began)
    assert {one.end for one in spans(session).values()} == {began + 1}


def turn(session: Session, name: str, own: int, *calls: int) -> None:
    session.tell((E.SUBMIT, own), *[row for one in calls for row in call(one, own)], turn=name)
    session.tell((E.DONE, own), turn=name)


def test_calls_link_to_a_compaction_in_another_trace_and_turns_of_a_fork_to_where_it_left():
    session = Session().tell((E.SUBMIT, 1), (PRE, 4, 1), (compacted(), 4, 1), *call(2), (E.DONE, 1))
    turn(session, "t2", 9, 10)
    session.tell((ev.Cleared(messages=4),))
    turn(session, "t3", 11, 12)
    found = spans(session)
    link = SpanLink(found[OTHER].trace_id, OTHER, {KIND: "compaction", "eventctx.event.seq": 2})
    assert (found[CALL].links, found[span(10)].links, found[span(12)].links) == ((), (link,), ())
    session = Session("child")
    turn(session, "t1", 1, 2)
    at = session.records[-1].position
    session.tell((ev.SessionFork(parent="mother", at=at),), turn=None)
    turn(session, "t2", 11, 12, 13)
    turn(session, "t3", 21, 22)
    found = spans(session)
    words = {KIND: "fork", "eventctx.link.session": "mother", "eventctx.event.seq": at}
    link = SpanLink(derive_trace_id("mother", "t1"), CALL, words)
    linked = {own: one.links for own, one in found.items() if one.links}
    assert linked == {span(12): (link,), span(22): (link,)}
    fork = {"eventctx.fork.parent": "mother", "eventctx.fork.at": at}
    for root in (span(11), span(21)):
        assert fork.items() <= found[root].attributes.items()


async def told(engine: eventctx.Engine, name: str) -> list[Span]:
    return [span async for span in queries.spans(engine.store, name)]


async def worked(engine: eventctx.Engine, name: str) -> int:
    """A turn and a message behind it; the position of the last record."""
    ctx = await engine.session(name)
    async with ctx.turn() as one, one.iteration() as cycle:
        await call_model(cycle)
    await ctx.add_message({"role": "user", "content": "Go on."})
    info = await engine.store.head(name)
    assert info is not None
    return info.head


async def test_the_link_of_a_fork_leads_to_its_parent_also_if_that_is_a_fork(
    tmp_path: Path,
) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        await engine.fork("a", await worked(engine, "a"), "b")
        await engine.fork("b", await worked(engine, "b"), "c")
        await engine.fork("c", (await engine.store.head("c")).head, "d")  # type: ignore[union-attr]
        await worked(engine, "c")
        await worked(engine, "d")
        found = {name: await told(engine, name) for name in "abcd"}
    for name, parent in (("b", "a"), ("c", "b"), ("d", "b")):
        (link,) = [link for one in found[name] for link in one.links]
        assert (link.trace_id, link.span_id) in {(s.trace_id, s.span_id) for s in found[parent]}


@pytest.mark.parametrize("call_id", ["c1", None, "another"])
async def test_a_subagents_turn_links_to_the_call_that_started_it_if_known(
    call_id: str | None,
) -> None:
    async with eventctx.open() as engine:
        main, _ = await engine.session("main"), await engine.session("child")
        async with main.turn() as one, one.iteration() as cycle, cycle.tool_call("task", "c1"):
            await engine.link("main", "child", call_id=call_id)
        await worked(engine, "child")
        (task, _), (chat, root) = await told(engine, "main"), await told(engine, "child")
    words = {KIND: "subagent", "eventctx.link.session": "main"}
    known = (SpanLink(task.trace_id, task.span_id, words),) if call_id == "c1" else ()
    assert (task.name, chat.links, root.links) == ("execute_tool task", known, ())
    assert root.attributes["eventctx.parent.session"] == "main"
    assert root.attributes.get("eventctx.parent.call_id") == call_id


def sent(*sessions: Session) -> tuple[list[Span], int]:
    turns, out = OpenTurns(), list[Span]()
    for session in sessions:
        for one in fold(session.records):
            out += turns.ready([one])
    return [*out, *turns.rest()], turns.left_out


def begun(session: Session, turn: str, base: int) -> None:
    rows = [(E.SUBMIT, base), *call(base + 1, base), (ev.ToolPre(name="slow"), base + 2, base + 1)]
    session.tell(*rows, turn=turn)


def test_a_turn_is_sent_at_its_end_and_so_is_what_a_crash_left_open_ends_late_or_is_in_none():
    session = Session()
    whole_turn(session)
    begun(session, "t2", 0x200)
    out, left_out = sent(session)
    assert {one.attributes["eventctx.turn.id"] for one in out} == {"t1"}
    assert left_out == 1
    session.tell((E.DONE, 0x200), turn="t2")
    assert sent(session) == (list(fold(session.records)), 0)
    session = Session()
    begun(session, "t1", 0x100)
    whole_turn(session, "t2", 0x200)
    assert ids(sent(session)[0]) == ids(fold(session.records))
    assert sent(session)[1] == 0
    session = Session()
    begun(session, "t1", 0x100)
    session.tell((E.DONE, 0x100), (ev.ToolPost(name="slow"), 0x102, 0x101))
    session.tell((E.ASK, 0x300), turn=None)
    assert ids(sent(session)[0]) == ids(fold(session.records))
    session = Session().tell((E.SUBMIT, 1))
    session.tell((ev.SessionFork(parent="mother", at=0),), turn=None).tell(*tool(2, 1))
    assert [one.span_id for one in sent(session)[0]] == [span(2)]


def ids(found: Iterable[Span]) -> set[str]:
    return {one.span_id for one in found}


# -- types of errors -------------------------------------------------------------------------------


def test_the_type_is_the_recorded_one_or_the_one_that_the_message_names() -> None:
    for recorded, message, found in [
        ("OSError", "no disk", ("OSError", "no disk")),
        ("OSError", "OSError: no disk", ("OSError", "no disk")),
        ("429", "slow down", ("429", "slow down")),
        ("httpx.ReadTimeout", "", ("httpx.ReadTimeout", None)),
        ("", "ValueError: no", ("ValueError", "no")),
        ("Error", "mine.NoPlan: it says: nothing", ("mine.NoPlan", "it says: nothing")),
        ("Error", "it broke", ("_OTHER", "it broke")),
        ("could not reach 10.0.0.7", "", ("_OTHER", "could not reach 10.0.0.7")),
        ("could not reach it", "TimeoutError: 5 s", ("TimeoutError", "5 s")),
        ("KeyError: 'a'", None, ("KeyError", "'a'")),
        (None, "gaierror: unknown name", ("gaierror", "unknown name")),
        (None, "exit_cost", ("exit_cost", None)),
        (None, "LimitsExceeded", ("LimitsExceeded", None)),
        (None, "terminated", ("_OTHER", "terminated")),
        (None, "Stopped", ("_OTHER", "Stopped")),
        (None, "fatal: not a repository", ("_OTHER", "fatal: not a repository")),
        (None, "the tool raised ValueError: no", ("_OTHER", "the tool raised ValueError: no")),
        (None, None, ("_OTHER", None)),
        ("x" * 129, "", ("_OTHER", "x" * 129)),
    ]:
        assert error_of(recorded, message) == found


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_type_is_short_without_a_space_whatever_was_recorded(recorded: str, message: str) -> None:
    kind, words = error_of(recorded, message)
    assert 0 < len(kind) <= 128
    assert not any(one.isspace() for one in kind)
    assert words is None or words in message or words == recorded


def test_a_failed_span_tells_type_and_words_once() -> None:
    for begins, ends in [
        (E.USE, ev.ToolError(name="x", error_type="OSError", message="no disk")),
        (E.ASK, ev.ProviderError(error_type="Error", message="OSError: no disk")),
        (E.SUBMIT, ev.PromptComplete(status="error", error="OSError: no disk")),
        (ev.PlanStart(), ev.PlanEnd(status="error", error="OSError: no disk")),
        (PRE, compacted("failed", error="OSError: no disk")),
    ]:
        (one,) = fold(Session().tell((begins, 1), (ends, 1)).records)
        failed = ("error", "OSError", "no disk")
        assert (one.status, one.attributes["error.type"], one.message) == failed
        found: list[Any] = [one.message, *one.attributes.values()]
        for event in one.events:
            found += event.attributes.values()
        for word in ("no disk", "OSError"):
            assert [text for text in found if isinstance(text, str) and word in text] == [word]
