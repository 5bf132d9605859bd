"""Where a span hangs, what it links to, when it is sent, and the type of its error."""

from __future__ import annotations

import asyncio
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
from tests.hooks.given import PRE, Session, compacted, span, spans, whole_turn

TURN, CALL, TOOL, OTHER = (span(number) for number in range(1, 5))
LOGGED = "eventctx.parent_span_id"


def call(session: Session, own: str, parent: str | None = TURN, turn: str | None = "t1") -> None:
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


def test_a_tool_of_a_call_outside_a_turn_stands_beside_it_in_its_trace():
    session = Session()
    call(session, CALL, None, turn=None)
    tool(session, TOOL, CALL, turn=None)
    found = spans(session)
    assert (found[TOOL].parent_span_id, found[CALL].parent_span_id) == (None, None)
    assert found[TOOL].attributes[LOGGED] == CALL
    assert found[TOOL].trace_id == found[CALL].trace_id


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


KIND = "eventctx.link.kind"


def turn(session: Session, name: str, own: str, *calls: str, trace: str | None = None) -> None:
    session.add(ev.PromptSubmit(number=1, trace_id=trace), own, turn=name)
    for one in calls:
        call(session, one, own, name)
    session.add(ev.PromptComplete(), own, turn=name)


def test_a_tool_links_to_the_call_that_asked_for_it():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    call(session, CALL)
    session.add(ev.ToolPre(name="grep"), TOOL, CALL)
    session.add(ev.ToolPre(name="grep"), OTHER, TURN)
    found = spans(session)
    assert found[TOOL].links == (SpanLink(found[CALL].trace_id, CALL, {KIND: "model_call"}),)
    assert not any(one.links for one in found.values() if one.span_id != TOOL)


def test_a_call_links_to_the_compaction_of_its_view_if_that_is_in_another_trace():
    session = Session()
    session.add(ev.PromptSubmit(number=1), TURN)
    session.add(PRE, OTHER, TURN)
    plan = session.add(compacted(), OTHER, TURN).position
    call(session, CALL)
    session.add(ev.PromptComplete(), TURN)
    turn(session, "t2", span(9), span(10))
    session.add(ev.Cleared(messages=4))
    turn(session, "t3", span(11), span(12))
    found = spans(session)
    link = SpanLink(found[OTHER].trace_id, OTHER, {KIND: "compaction", "eventctx.event.seq": plan})
    assert (found[CALL].links, found[span(10)].links, found[span(12)].links) == ((), (link,), ())


def test_the_first_span_in_each_turn_of_a_fork_links_to_where_it_left_its_parent():
    session = Session("child")
    turn(session, "t1", TURN, CALL)
    at = session.records[-1].position
    session.add(ev.SessionFork(parent="mother", at=at), turn=None)
    turn(session, "t2", span(11), span(12), span(13))
    turn(session, "t3", span(21), span(22))
    found = spans(session)
    words = {KIND: "fork", "eventctx.link.session": "mother", "eventctx.event.seq": at}
    link = SpanLink(derive_trace_id("mother", "t1"), CALL, words)
    assert {one.span_id for one in found.values() if one.links} == {span(12), span(22)}
    assert found[span(12)].links == found[span(22)].links == (link,)
    for root in (span(11), span(21)):
        attributes = found[root].attributes
        assert (attributes["eventctx.fork.parent"], attributes["eventctx.fork.at"]) == (
            "mother",
            at,
        )


async def test_the_link_of_a_fork_leads_to_a_span_of_its_parent_also_if_that_is_a_fork(
    tmp_path: Path,
) -> None:
    async def worked(name: str) -> int:
        ctx = await engine.session(name)
        async with ctx.turn() as one, one.iteration() as cycle, cycle.provider_call("m"):
            await asyncio.sleep(0)
        await ctx.add_message({"role": "user", "content": "Go on."})
        info = await engine.store.head(name)
        assert info is not None
        return info.head

    async with eventctx.open(tmp_path / "s.db") as engine:
        await engine.fork("a", await worked("a"), "b")
        await engine.fork("b", await worked("b"), "c")
        await engine.fork("c", (await engine.store.head("c")).head, "d")  # type: ignore[union-attr]
        await worked("c")
        await worked("d")
        told = {name: [span async for span in queries.spans(engine.store, name)] for name in "abcd"}
    for name, parent in (("b", "a"), ("c", "b"), ("d", "b")):
        (link,) = [link for one in told[name] for link in one.links]
        assert (link.trace_id, link.span_id) in {(s.trace_id, s.span_id) for s in told[parent]}


async def test_a_subagents_turn_links_to_the_call_that_started_it() -> None:
    async with eventctx.open() as engine:
        main, child = await engine.session("main"), await engine.session("child")
        async with main.turn() as one, one.iteration() as cycle, cycle.tool_call("task", "c1"):
            await engine.link("main", "child", call_id="c1")
        async with child.turn() as one, one.iteration() as cycle, cycle.provider_call("m"):
            pass
        await child.add_message({"role": "user", "content": "Go on."})
        (task, _) = [span async for span in queries.spans(engine.store, "main")]
        (chat, root) = [span async for span in queries.spans(engine.store, "child")]
    words = {KIND: "subagent", "eventctx.link.session": "main"}
    assert task.name == "execute_tool task"
    assert chat.links == (SpanLink(task.trace_id, task.span_id, words),)
    assert root.links == ()
    assert root.attributes["eventctx.parent.session"] == "main"
    assert root.attributes["eventctx.parent.call_id"] == "c1"


@pytest.mark.parametrize("call_id", [None, "another"])
async def test_a_session_that_no_known_call_started_names_its_parent_without_a_link(
    call_id: str | None,
) -> None:
    async with eventctx.open() as engine:
        main, child = await engine.session("main"), await engine.session("child")
        async with main.turn() as one, one.iteration() as cycle, cycle.tool_call("task", "c1"):
            await engine.link("main", "child", call_id=call_id)
        async with child.turn() as one, one.iteration() as cycle, cycle.provider_call("m"):
            pass
        await child.add_message({"role": "user", "content": "Go on."})
        (chat, root) = [span async for span in queries.spans(engine.store, "child")]
    assert chat.links == ()
    assert root.attributes["eventctx.parent.session"] == "main"


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


# -- types of errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recorded", "message", "found"),
    [
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
    ],
)
def test_the_type_is_the_recorded_one_or_the_one_that_the_message_names(
    recorded: str | None, message: str | None, found: tuple[str, str | None]
) -> None:
    assert error_of(recorded, message) == found


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_type_is_short_and_has_no_space_whatever_was_recorded(
    recorded: str, message: str
) -> None:
    kind, words = error_of(recorded, message)
    assert 0 < len(kind) <= 128
    assert not any(one.isspace() for one in kind)
    assert words is None or words in message or words == recorded


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (ev.ToolPre(name="x"), ev.ToolError(name="x", error_type="OSError", message="no disk")),
        (ev.ProviderRequest(), ev.ProviderError(error_type="Error", message="OSError: no disk")),
        (ev.PromptSubmit(number=1), ev.PromptComplete(status="error", error="OSError: no disk")),
        (ev.PlanStart(), ev.PlanEnd(status="error", error="OSError: no disk")),
        (PRE, compacted("failed", error="OSError: no disk")),
    ],
)
def test_a_failed_span_tells_type_and_words_once(begins: ev.Event, ends: ev.Event) -> None:
    session = Session()
    session.add(begins, span(1))
    session.add(ends, span(1))
    (one,) = fold(session.records)
    assert (one.status, one.attributes["error.type"], one.message) == (
        "error",
        "OSError",
        "no disk",
    )
    assert [text for text in texts(one) if "no disk" in text] == ["no disk"]
    assert [text for text in texts(one) if "OSError" in text] == ["OSError"]


def texts(one: Span) -> list[str]:
    """Every text of a span: its message, its attributes, and those of its events."""
    found: list[Any] = [one.message, *one.attributes.values()]
    for event in one.events:
        found += event.attributes.values()
    return [text for text in found if isinstance(text, str)]
