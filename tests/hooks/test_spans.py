from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from eventctx.log import events as ev
from eventctx.log.ids import derive_trace_id, is_span_id, is_trace_id
from eventctx.log.plan import Insertion, Run
from eventctx.projections.trace.fold import evolve, fold, initial, unfinished
from eventctx.projections.trace.spans import MAX_EVENTS, Span
from eventctx.projections.trace.steps import MAX_OPEN
from tests.hooks.given import (
    HOST_SPAN,
    HOST_TRACE,
    PRE,
    SECOND,
    START,
    E,
    Session,
    compacted,
    prepared,
    span,
    spans,
    whole_turn,
)
from tests.how_much import some


def only(session: Session) -> Span:
    (one,) = fold(session.records)
    return one


def test_a_turn_becomes_one_tree_with_the_records_ids_and_times():
    session = Session()
    records = whole_turn(session)
    found = spans(session)
    tools = ["execute_tool grep", "execute_tool read"]
    named = ["compact sliding", "chat m1", *tools, "chat m1", "invoke_agent helper"]
    assert [one.name for one in found.values()] == named
    kinds = {"chat m1": "client"}
    assert [o.kind for o in found.values()] == [kinds.get(name, "internal") for name in named]
    *others, root = found.values()
    assert (root.span_id, root.parent_span_id) == (span(0x100), None)
    assert (root.start, root.end) == (records[0].time, records[-1].time)
    assert {one.parent_span_id for one in others} == {root.span_id}
    assert {one.trace_id for one in found.values()} == {derive_trace_id("s1", "t1")}
    assert derive_trace_id("session", "turn") == "2b437e014114f9f8e752f97bce207c39"


@pytest.mark.parametrize("given", [HOST_TRACE, "", "0" * 32, "A" * 32, "abc"])
def test_an_ambient_trace_and_parent_are_kept_but_for_a_trace_id_that_is_none(given: str):
    session = Session()
    session.add(ev.PromptSubmit(number=1, trace_id=given), span(1), HOST_SPAN)
    found = spans(session.tell((E.USE, 2, 1), (E.USED, 2, 1), (E.DONE, 1)))
    taken = given if given == HOST_TRACE else derive_trace_id("s1", "t1")
    assert {one.trace_id for one in found.values()} == {taken}
    assert found[span(1)].parent_span_id == HOST_SPAN


def test_usage_goes_to_its_chat_and_is_summed_on_the_turn_whether_before_or_after_the_answer():
    session = Session().tell((E.SUBMIT, 1))
    for own in (2, 3):
        rows = [(E.ANSWER, own, 1), (ev.UsageReported(prompt=10, output=own), own, 1)]
        session.tell((E.ASK, own, 1), *(rows if own == 3 else reversed(rows)), iteration=own)
    found = spans(session.tell((E.DONE, 1)))
    lead, names = "gen_ai.usage.", ("input_tokens", "output_tokens")
    usage = [[one.attributes.get(lead + name) for name in names] for one in found.values()]
    assert usage == [[10, 2], [10, 3], [20, 5]]
    assert found[span(3)].attributes["gen_ai.usage.cache_read.input_tokens"] == 0
    assert found[span(3)].end == START + 5 * SECOND


def test_errors_cancellation_and_skipping_are_told_apart():
    cancelled = ev.ToolError(name="x", error_type="CancelledError", status="cancelled")
    disk = ev.ToolError(name="x", error_type="OSError", message="no disk")
    no_plan = ev.PlanEnd(status="error", error="mine.NoPlan: it says: nothing")
    ends: list[tuple[ev.Event, ev.Event, tuple[str, str, str | None]]] = [
        (E.USE, E.USED, ("unset", "ok", None)),
        (E.USE, disk, ("error", "error", "OSError")),
        (E.USE, cancelled, ("unset", "cancelled", "CancelledError")),
        (E.ASK, ev.ProviderError(error_type="429"), ("error", "error", "429")),
        (PRE, compacted("applied"), ("unset", "ok", None)),
        (PRE, compacted("skipped"), ("unset", "skipped", None)),
        (PRE, compacted("failed", error="it gave up"), ("error", "failed", "_OTHER")),
        (PRE, compacted("cancelled"), ("unset", "cancelled", "cancelled")),
        (ev.PlanStart(), no_plan, ("error", "error", "mine.NoPlan")),
    ]
    session = Session().tell((E.SUBMIT, 1))
    for number, (begin, end, _) in enumerate(ends, 2):
        session.tell((begin, number, 1), (end, number, 1))
    session.tell((ev.PromptComplete(status="cancelled"), 1))
    names = ("eventctx.outcome", "error.type")
    shown = [(o.status, *[o.attributes.get(n) for n in names]) for o in fold(session.records)]
    assert shown == [*[told for _, _, told in ends], ("unset", "cancelled", "cancelled")]


def test_a_compaction_says_what_it_did_on_its_span_and_its_records_are_events_there_alone():
    session = Session()
    whole_turn(session)
    found = spans(session)
    one = found.pop(span(0x101))
    lead = "eventctx.compaction."
    tokens = [f"estimated_tokens.{name}" for name in ("before", "after", "reclaimed")]
    values = {k.removeprefix(lead): v for k, v in one.attributes.items() if k.startswith(lead)}
    assert "summarised.numbers" not in values
    told: dict[str, object] = {"id": 3, "sequence": 1, "outcome": "applied", "ratio": 0.4}
    told |= zip(tokens, (1000, 400, 600), strict=True)
    told |= {"messages.before": 10, "messages.after": 4, "messages.removed": 6}
    told |= {"dropped.count": 6, "dropped.numbers": "0-5", "dropped.reasons": "older=6"}
    told |= {"kept.count": 4, "kept.numbers": "6-9", "kept.reasons": "recent=4"}
    told["summarised.count"] = 0
    assert {name: values[name] for name in told} == told
    assert one.attributes["verify.record"] == session.records[3].digest.hex()
    names = ["context:pre_compact", "context:post_compact"]
    assert [event.name for event in one.events] == names
    assert not {event.name for other in found.values() for event in other.events} & set(names)


def test_a_compaction_in_a_list_sorted_by_name_begins_with_its_sentence_and_ends_with_digests():
    session = Session().tell((E.SUBMIT, 1), (prepared(None), 1))
    session.tell((PRE, 3, 1), (compacted("failed", error="E: no"), 3, 1), iteration=1)
    one = spans(session)[span(3)]
    # Jaeger and its file have these tags next to the attributes, and sort all by name.
    beside = ["error", "otel.status_code", "otel.scope.name", "span.kind", "internal.span.format"]
    names = sorted([*one.attributes, *beside])
    assert (names[0], *names[-2:]) == ("compaction", "verify.record", "verify.view_before")
    # Its GenAI view has those of the conventions' namespace alone.
    shown = next(name for name in names if name.startswith("gen_ai."))
    assert one.attributes[shown] == one.attributes["compaction"]


def as_adk(one: Span) -> dict[str, object]:
    lead = "gen_ai.compaction."
    found = {k.removeprefix(lead): v for k, v in one.attributes.items() if k.startswith(lead)}
    del found["description"]  # the sentence is ours
    return found


def test_a_compaction_has_googles_names_for_what_is_true_of_it_and_no_others():
    session = Session()
    begun = replace(PRE, threshold=900, settings={"keep_recent": 4, "older": 1})
    session.add(begun, span(2))
    run = Run(2, 5, "merged", "duplicate")
    plan = replace(compacted().plan, runs=(Run(0, 1, "dropped", "older"), run))
    record = session.add(replace(compacted(), threshold=900, plan=plan), span(2))
    told = {"trigger": "threshold", "token_threshold": 900, "event_retention_size": 4}
    told |= {"event_count": 6, "result_event_id": record.id.hex()}
    assert as_adk(only(session)) == told

    def summarizer(at: int | None, **more: object) -> object:
        session = Session()
        plan = replace(compacted().plan, insertions=(Insertion("summary", 0, at),))
        session.add(replace(compacted(), plan=plan, **more), span(2))
        return as_adk(only(session)).get("summarizer_type")

    assert summarizer(None) == "sliding"
    assert summarizer(None, fallback="ladder") == "ladder"
    assert summarizer(0) is None
    assert summarizer(None, trigger="imported") is None


def test_compacted_is_true_on_every_chat_under_a_plan_and_never_false():
    session = Session().tell((E.SUBMIT, 1))

    def chat(own: int, *, parent: int = 1, request: int | None = None) -> str:
        asked, failed = ev.ProviderRequest(prepared=request), ev.ProviderError(error_type="E")
        session.tell((asked, own, parent), (failed, own, parent), iteration=own)
        return span(own)

    before = chat(2)
    session.tell((PRE, 3, 1))
    summariser = chat(4, parent=3)
    plan = session.add(compacted(), span(3), span(1)).position
    after = chat(5)
    requesting = chat(6, request=session.add(prepared(plan), span(1)).position)
    session.tell((PRE, 7, 1), (compacted("skipped"), 7, 1))
    still = chat(8)
    session.tell((ev.Cleared(messages=4), 1))
    cleared = chat(9)
    off = chat(10, request=session.add(prepared(None), span(1)).position)
    found = spans(session)
    compact = {"gen_ai.conversation.compacted": True, "eventctx.request.plan": plan}
    for own in (after, requesting, still):
        assert compact.items() <= found[own].attributes.items()
    for own in (before, summariser, cleared, off, span(7)):
        assert not compact.keys() & found[own].attributes.keys()
    assert found[span(3)].attributes["gen_ai.conversation.compacted"] is True


def test_a_prepared_request_is_found_by_span_by_iteration_or_shown_on_the_turn():
    request = prepared()
    session = Session().tell((E.SUBMIT, 1), (request, 2, 1), (E.ASK, 2, 1))
    session.tell((request, None, 1), (E.ASK, 3, 1), iteration=2)
    session.tell((E.ASK, 4, 1), (request, 4, 1))
    session.tell((request, None, 1), iteration=7).tell((E.DONE, 1))
    found = spans(session)
    asked = [found[span(own)].attributes["eventctx.request.seq"] for own in (2, 3, 4)]
    assert asked == [1, 3, 6]
    assert [tick.name for tick in found[span(1)].events] == ["context:request_prepared"]


def test_parallel_tools_and_parallel_chats_never_mix():
    tools, chats = range(2, 22), (100, 101)
    session = Session().tell((E.SUBMIT, 1))
    session.tell(*[(ev.ToolPre(name=f"tool{n}", call_id=f"c{n}"), n, 1) for n in tools])
    session.tell(
        *[(ev.ProviderRequest(model=f"m{n}"), n, 1) for n in chats],
        *[(ev.ProviderResponse(model=f"m{n}"), n, 1) for n in reversed(chats)],
        *[(ev.UsageReported(prompt=n), n, 1) for n in chats],
        iteration=1,
    )
    session.tell(*[(ev.ToolPost(name=f"tool{n}"), n, 1) for n in reversed(tools)])
    found = spans(session)
    for n in tools:
        told = {"gen_ai.tool.name": f"tool{n}", "gen_ai.tool.call.id": f"c{n}"}
        assert told.items() <= found[span(n)].attributes.items()
    for n in chats:
        told = {"gen_ai.response.model": f"m{n}", "gen_ai.usage.input_tokens": n}
        assert told.items() <= found[span(n)].attributes.items()


def test_what_no_record_ended_is_unfinished_when_it_was_last_heard_of():
    for behind, later in [([(ev.MessageAdded(), 1)], 0), ([], 1)]:
        session = Session().tell((E.SUBMIT, 1), (E.USE, 2, 1), *behind)
        heard = session.records[-1].time + later  # every span has a length
        for name, own in (("t2", 20), ("t3", 30)):
            session.tell((E.SUBMIT, own), (E.DONE, own), turn=name)
        found = list(fold(session.records))
        assert [one.span_id for one in found] == [span(own) for own in (20, 30, 2, 1)]
        for one in found[2:]:
            assert (one.status, one.attributes["eventctx.outcome"]) == ("unset", "unfinished")
            assert one.end == heard


def test_open_spans_and_events_of_one_are_bounded_but_none_is_dropped_for_added_messages():
    session = Session().tell(*[(E.USE, number) for number in range(1, MAX_OPEN + 3)])
    state = initial()
    given_up = []
    for record in session.records:
        state = evolve(state, record)
        given_up += state.finished
    assert [one.span_id for one in given_up] == [span(1), span(2)]
    assert len(state.open) == MAX_OPEN
    added, pinned = ev.MessageAdded(), ev.Pinned(numbers=(1,))
    session = Session().tell((E.SUBMIT, 1), (E.ASK, 2, 1))
    session.tell(*[(added, 1), (added, 2, 1)] * (MAX_EVENTS + 1), (pinned, 2))
    session.tell((ev.ProviderError(error_type="E"), 2, 1)).tell((added, 3, 2), turn=None)
    session.tell(*[(pinned, 1)] * (MAX_EVENTS + 15), (E.DONE, 1))
    chat, turn = fold(session.records)
    assert [event.name for event in chat.events] == ["context:pinned"]
    assert {event.name for event in turn.events} == {"context:pinned"}
    assert "eventctx.events.dropped" not in chat.attributes
    assert (len(turn.events), turn.attributes["eventctx.events.dropped"]) == (MAX_EVENTS, 15)


def test_unknown_types_and_ends_of_others_are_events_and_second_beginnings_make_no_spans():
    session = Session().tell((E.SUBMIT, 1))
    session.raw("later:event", b"junk", span(1), None, "t1")
    session.raw("tool:pre", b"{}", span(2), span(1), "t1")
    one = only(session.tell((E.DONE, 1)))
    assert [tick.name for tick in one.events] == ["later:event", "tool:pre"]
    session = Session().tell((E.USED, 2, 1), (E.DONE, 1), (E.SUBMIT, 3), (E.SUBMIT, 3))
    assert only(session.tell((E.USED, 3), (E.DONE, 3))).span_id == span(3)
    found = only(Session().tell((E.USE, 2), (E.ANSWER, 2), (E.USED, 2)))
    assert "gen_ai.response.model" not in found.attributes
    assert [event.name for event in found.events] == ["provider:response"]


EVENTS = st.sampled_from(
    [
        *(E.SUBMIT, E.DONE, E.ASK, E.ANSWER, E.USE, ev.ToolError(name="x", error_type="E")),
        *(PRE, compacted(), compacted("failed"), prepared(0), ev.UsageReported(prompt=1)),
        *(ev.MessageAdded(), ev.Cleared(messages=0), ev.SessionEnd()),
    ]
)
IDS = st.none() | st.integers(1, 4).map(span)


@settings(max_examples=some(50, 200))
@given(st.lists(st.tuples(EVENTS, IDS, IDS, st.sampled_from([None, "t1", "t2"])), max_size=30))
def test_any_order_of_records_folds_to_sound_spans_without_an_error(records):
    session = Session()
    for event, own, parent, turn in records:
        session.add(event, own, parent, turn=turn, iteration=1)
    state, found = initial(), []
    for record in session.records:
        state = evolve(state, record)
        found += state.finished
    found += unfinished(state)
    assert found == list(fold(session.records))
    for one in found:
        assert one.start <= one.end
        assert is_span_id(one.span_id)
        assert is_trace_id(one.trace_id)
        assert one.attributes.get("gen_ai.conversation.compacted", True) is True
        assert all(type(v) in (str, int, float, bool, tuple) for v in one.attributes.values())


def test_a_plan_is_named_by_its_agent_a_provider_by_conventions_and_a_failure_by_reason() -> None:
    begun, failed = ev.PlanStart(name="outline"), ev.ProviderError(error_type="Overloaded")
    session = Session().tell((ev.PromptSubmit(number=1, agent="coder"), 1), (begun, 2, 1))
    session.tell((E.ASK, 3, 2), (failed, 3, 2), (ev.PlanEnd(), 2, 1), (E.DONE, 1))
    chat, plan, _ = fold(session.records)
    named = {"gen_ai.agent.name": "coder", "eventctx.plan.name": "outline"}
    assert plan.name == "plan coder"
    assert named.items() <= plan.attributes.items()
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("error",)
    for said, name in [
        ("openai", "openai"),
        ("amazon_bedrock", "aws.bedrock"),
        ("google-gla", "gcp.gemini"),
        ("google_vertexai", "gcp.vertex_ai"),
        ("Azure", "azure.ai.openai"),
        ("mistralai", "mistral_ai"),
        ("xai", "x_ai"),
        ("My_House", "My_House"),
    ]:
        session = Session().tell((ev.ProviderRequest(model="m", provider=said), 1))
        session.tell((ev.ProviderResponse(model="m", provider=said), 1), (ev.SessionEnd(),))
        assert only(session).attributes["gen_ai.provider.name"] == name


def test_a_compaction_begins_when_it_was_begun_in_its_turn_or_else_in_a_trace_of_its_own():
    session = Session().tell((E.SUBMIT, 1), (PRE, 2, 1), (compacted(), 2, 1))
    session.tell((replace(compacted(), duration=60 * SECOND), 3, 1))
    first, second, *_ = fold(session.records)
    turn, pre, *_ = session.records
    assert first.start == pre.time
    assert (second.start < turn.time, second.span_id) == (False, span(3))
    session = Session().tell((PRE, 1), (E.ASK, 2, 1), (E.USE, 3, 2), (E.USED, 3, 2), turn=None)
    found = spans(session.tell((E.ANSWER, 2, 1), (compacted(), 1), turn=None))
    assert len(found) == 3
    assert {one.trace_id for one in found.values()} == {derive_trace_id("s1", span(1))}
