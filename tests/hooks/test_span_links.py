"""Links of spans: what they lead to, which span has them, and that sending keeps them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import eventctx
from eventctx.hooks.redact import DEFAULT
from eventctx.log import events as ev
from eventctx.log.ids import derive_trace_id
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.identity import CallSpans
from eventctx.projections.trace.spans import Span, SpanLink
from eventctx.queries import spans as queries
from tests.hooks.given import HOST_TRACE, PRE, Session, compacted, span

TURN, CALL, TOOL, OTHER = (span(number) for number in range(1, 5))
KIND = "eventctx.link.kind"


def spans(session: Session) -> dict[str, Span]:
    return {one.span_id: one for one in fold(session.records)}


def call(session: Session, own: str, parent: str | None = TURN, turn: str | None = "t1") -> None:
    session.add(ev.ProviderRequest(model="m"), own, parent, turn=turn)
    session.add(ev.ProviderResponse(model="m"), own, parent, turn=turn)


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


def test_a_tool_outside_a_turn_has_no_link_since_jaeger_would_draw_it_as_a_child():
    session = Session()
    call(session, CALL, None, None)
    session.add(ev.ToolPre(name="grep"), TOOL, CALL, turn=None)
    assert spans(session)[TOOL].links == ()


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


def test_a_fork_links_to_the_trace_of_the_host_if_its_parent_was_in_one():
    session = Session("child")
    turn(session, "t1", TURN, CALL, trace=HOST_TRACE)
    session.add(ev.SessionFork(parent="mother", at=3), turn=None)
    turn(session, "t2", span(11), span(12))
    assert [link.trace_id for link in spans(session)[span(12)].links] == [HOST_TRACE]


def test_a_fork_of_a_session_without_spans_has_no_link_but_says_what_it_left():
    session = Session("child")
    session.add(ev.MessageAdded(), turn=None)
    session.add(ev.SessionFork(parent="mother", at=0), turn=None)
    turn(session, "t1", TURN, CALL)
    found = spans(session)
    assert not any(one.links for one in found.values())
    assert found[TURN].attributes["eventctx.fork.parent"] == "mother"


def test_secrets_in_what_a_link_says_are_redacted():
    link = SpanLink("a" * 32, "b" * 16, {"x": "sk-ant-api03-" + "a1B2" * 12})
    one = Span("n", "internal", "c" * 32, "d" * 16, None, 1, 2, "unset", None, {}, (), (link,))
    assert "a1B2" not in str(DEFAULT.span(one).links)
    assert DEFAULT.span(one).links[0].span_id == "b" * 16


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


def test_a_call_is_not_known_from_records_that_begin_inside_its_turn() -> None:
    session, whole, late = Session(), CallSpans(), CallSpans()
    session.add(ev.PromptSubmit(number=1, trace_id=HOST_TRACE), TURN)
    session.add(ev.ToolPre(name="task", call_id="c1"), TOOL, TURN)
    for record in session.records:
        whole.see(record)
    late.see(session.records[-1])
    assert (whole.calls, late.calls) == ({"c1": (HOST_TRACE, TOOL)}, {})
