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
    assert [(one.name, one.kind) for one in found.values()] == [
        ("compact sliding", "internal"),
        ("chat m1", "client"),
        ("execute_tool grep", "internal"),
        ("execute_tool read", "internal"),
        ("chat m1", "client"),
        ("invoke_agent helper", "internal"),
    ]
    root = found[span(0x100)]
    assert root.parent_span_id is None
    assert (root.start, root.end) == (records[0].time, records[-1].time)
    assert {one.parent_span_id for one in found.values() if one is not root} == {root.span_id}
    assert {one.trace_id for one in found.values()} == {derive_trace_id("s1", "t1")}


def test_an_ambient_trace_and_parent_are_kept():
    session = Session()
    session.add(ev.PromptSubmit(number=1, trace_id=HOST_TRACE), span(1), HOST_SPAN)
    session.add(ev.ToolPre(name="x"), span(2), span(1))
    session.add(ev.ToolPost(name="x"), span(2), span(1))
    session.add(ev.PromptComplete(), span(1), HOST_SPAN)
    found = spans(session)
    assert {one.trace_id for one in found.values()} == {HOST_TRACE}
    assert found[span(1)].parent_span_id == HOST_SPAN


@pytest.mark.parametrize("wrong", ["", "0" * 32, "A" * 32, "abc"])
def test_a_trace_id_that_is_none_is_not_taken(wrong: str):
    session = Session()
    session.add(ev.PromptSubmit(number=1, trace_id=wrong), span(1))
    assert only(session).trace_id == derive_trace_id("s1", "t1")


def test_usage_goes_to_its_chat_and_is_summed_on_the_turn_whether_before_or_after_the_answer():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    for own, late in ((2, False), (3, True)):
        session.add(ev.ProviderRequest(model="m"), span(own), span(1), iteration=own)
        answer = (ev.ProviderResponse(), span(own), span(1))
        if late:
            session.add(*answer, iteration=own)
        session.add(ev.UsageReported(prompt=10, output=own), span(own), span(1), iteration=own)
        if not late:
            session.add(*answer, iteration=own)
    session.add(ev.PromptComplete(), span(1))
    found = spans(session)
    assert found[span(2)].attributes["gen_ai.usage.output_tokens"] == 2
    assert found[span(3)].attributes["gen_ai.usage.output_tokens"] == 3
    assert found[span(3)].attributes["gen_ai.usage.cache_read.input_tokens"] == 0
    assert found[span(3)].end == START + 5 * SECOND
    assert found[span(1)].attributes["gen_ai.usage.input_tokens"] == 20
    assert found[span(1)].attributes["gen_ai.usage.output_tokens"] == 5


def test_errors_cancellation_and_skipping_are_told_apart():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    ends: list[tuple[ev.Event, ev.Event]] = [
        (ev.ToolPre(name="x"), ev.ToolPost(name="x")),
        (ev.ToolPre(name="x"), ev.ToolError(name="x", error_type="OSError", message="no disk")),
        (
            ev.ToolPre(name="x"),
            ev.ToolError(name="x", error_type="CancelledError", status="cancelled"),
        ),
        (ev.ProviderRequest(), ev.ProviderError(error_type="429")),
        (PRE, compacted("applied")),
        (PRE, compacted("skipped")),
        (PRE, compacted("failed", error="the summariser gave up")),
        (PRE, compacted("cancelled")),
        (ev.PlanStart(), ev.PlanEnd(status="error", error="ValueError")),
        (ev.PlanStart(), ev.PlanEnd(status="error", error="mine.NoPlan: it says: nothing")),
    ]
    for number, (begin, end) in enumerate(ends, 2):
        session.add(begin, span(number), span(1))
        session.add(end, span(number), span(1))
    session.add(ev.PromptComplete(status="cancelled"), span(1))
    shown = [
        (one.status, one.attributes["eventctx.outcome"], one.attributes.get("error.type"))
        for one in fold(session.records)
    ]
    assert shown == [
        ("unset", "ok", None),
        ("error", "error", "OSError"),
        ("unset", "cancelled", "CancelledError"),
        ("error", "error", "429"),
        ("unset", "ok", None),
        ("unset", "skipped", None),
        ("error", "failed", "_OTHER"),
        ("unset", "cancelled", "cancelled"),
        ("error", "error", "ValueError"),
        ("error", "error", "mine.NoPlan"),
        ("unset", "cancelled", "cancelled"),
    ]


def test_a_compaction_says_what_it_did_on_its_span_and_its_records_are_events_there_alone():
    session = Session()
    whole_turn(session)
    found = spans(session)
    one = found[span(0x101)]
    values = {
        name.removeprefix("eventctx.compaction."): value
        for name, value in one.attributes.items()
        if name.startswith("eventctx.compaction.")
    }
    assert values["id"] == 3
    assert values["sequence"] == 1
    assert values["outcome"] == "applied"
    assert [values[f"estimated_tokens.{name}"] for name in ("before", "after", "reclaimed")] == [
        1000,
        400,
        600,
    ]
    assert (values["messages.before"], values["messages.after"], values["messages.removed"]) == (
        10,
        4,
        6,
    )
    assert values["ratio"] == 0.4
    assert (values["dropped.count"], values["dropped.numbers"]) == (6, "0-5")
    assert values["dropped.reasons"] == "older=6"
    assert (values["kept.count"], values["kept.numbers"]) == (4, "6-9")
    assert values["kept.reasons"] == "recent=4"
    assert values["summarised.count"] == 0
    assert "summarised.numbers" not in values
    assert one.attributes["verify.record"] == session.records[3].digest.hex()
    names = ["context:pre_compact", "context:post_compact"]
    assert [event.name for event in one.events] == names
    above = {event.name for other in found.values() if other is not one for event in other.events}
    assert not above & set(names)


def test_a_compaction_in_a_list_sorted_by_name_begins_with_its_sentence_and_ends_with_digests():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(prepared(None), span(1))
    session.add(PRE, span(3), span(1), iteration=1)
    session.add(compacted("failed", error="E: no"), span(3), span(1), iteration=1)
    one = spans(session)[span(3)]
    # Jaeger and its file have these tags next to the attributes, and sort all by name.
    beside = ["error", "otel.status_code", "otel.scope.name", "span.kind", "internal.span.format"]
    names = sorted([*one.attributes, *beside])
    assert names[0] == "compaction"
    assert names[-2:] == ["verify.record", "verify.view_before"]
    # Its GenAI view has those of the conventions' namespace alone.
    shown = [name for name in names if name.startswith("gen_ai.")]
    assert one.attributes[shown[0]] == one.attributes["compaction"]


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
    assert as_adk(only(session)) == {
        "trigger": "threshold",
        "token_threshold": 900,
        "event_retention_size": 4,
        "event_count": 6,
        "result_event_id": record.id.hex(),
    }


def test_the_policy_is_named_as_the_summarizer_where_it_put_in_a_new_summary():
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
    session = Session()

    def chat(own: int, *, parent: int = 1, request: int | None = None) -> str:
        session.add(ev.ProviderRequest(prepared=request), span(own), span(parent), iteration=own)
        session.add(ev.ProviderError(error_type="E"), span(own), span(parent), iteration=own)
        return span(own)

    session.add(ev.PromptSubmit(number=1), span(1))
    before = chat(2)
    session.add(PRE, span(3), span(1))
    summariser = chat(4, parent=3)
    plan = session.add(compacted(), span(3), span(1)).position
    after = chat(5)
    requesting = chat(6, request=session.add(prepared(plan), span(1)).position)
    session.add(PRE, span(7), span(1))
    session.add(compacted("skipped"), span(7), span(1))
    still = chat(8)
    session.add(ev.Cleared(messages=4), span(1))
    cleared = chat(9)
    off = chat(10, request=session.add(prepared(None), span(1)).position)
    found = spans(session)
    compact = {"gen_ai.conversation.compacted", "eventctx.request.plan"}
    for own in (after, requesting, still):
        assert found[own].attributes["gen_ai.conversation.compacted"] is True
        assert found[own].attributes["eventctx.request.plan"] == plan
    for own in (before, summariser, cleared, off, span(7)):
        assert not compact & set(found[own].attributes)
    assert found[span(3)].attributes["gen_ai.conversation.compacted"] is True


def test_a_prepared_request_is_found_by_span_by_iteration_or_shown_on_the_turn():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(prepared(), span(2), span(1))
    session.add(ev.ProviderRequest(), span(2), span(1))
    by_span = session.records[-2].position
    session.add(prepared(), None, span(1), iteration=2)
    session.add(ev.ProviderRequest(), span(3), span(1), iteration=2)
    by_iteration = session.records[-2].position
    session.add(ev.ProviderRequest(), span(4), span(1))
    session.add(prepared(), span(4), span(1))
    while_open = session.records[-1].position
    session.add(prepared(), None, span(1), iteration=7)
    session.add(ev.PromptComplete(), span(1))
    found = spans(session)
    assert found[span(2)].attributes["eventctx.request.seq"] == by_span
    assert found[span(3)].attributes["eventctx.request.seq"] == by_iteration
    assert found[span(4)].attributes["eventctx.request.seq"] == while_open
    assert [tick.name for tick in found[span(1)].events] == ["context:request_prepared"]


def test_parallel_tools_and_parallel_chats_never_mix():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    for number in range(2, 22):
        session.add(ev.ToolPre(name=f"tool{number}", call_id=f"c{number}"), span(number), span(1))
    for number in (100, 101):
        session.add(ev.ProviderRequest(model=f"m{number}"), span(number), span(1), iteration=1)
    for number in (101, 100):
        session.add(ev.ProviderResponse(model=f"m{number}"), span(number), span(1), iteration=1)
    for number in (100, 101):
        session.add(ev.UsageReported(prompt=number), span(number), span(1), iteration=1)
    for number in reversed(range(2, 22)):
        session.add(ev.ToolPost(name=f"tool{number}"), span(number), span(1))
    found = spans(session)
    for number in range(2, 22):
        one = found[span(number)]
        assert one.name == f"execute_tool tool{number}"
        assert one.attributes["gen_ai.tool.call.id"] == f"c{number}"
    for number in (100, 101):
        assert found[span(number)].attributes["gen_ai.response.model"] == f"m{number}"
        assert found[span(number)].attributes["gen_ai.usage.input_tokens"] == number


def test_a_compaction_outside_a_turn_is_a_trace_of_its_own_with_its_chat_and_tool_in_it():
    session = Session()
    session.add(PRE, span(1), turn=None)
    session.add(ev.ProviderRequest(), span(2), span(1), turn=None)
    session.add(ev.ToolPre(name="x"), span(3), span(2), turn=None)
    session.add(ev.ToolPost(name="x"), span(3), span(2), turn=None)
    session.add(ev.ProviderResponse(), span(2), span(1), turn=None)
    session.add(compacted(), span(1), turn=None)
    found = spans(session)
    assert len(found) == 3
    assert {one.trace_id for one in found.values()} == {derive_trace_id("s1", span(1))}


def test_what_no_record_ended_is_unfinished_as_of_when_it_was_last_heard_of():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1), turn="t1")
    session.add(ev.ToolPre(name="x"), span(2), span(1), turn="t1")
    last = session.add(ev.MessageAdded(), span(1), turn="t1")
    session.add(ev.PromptSubmit(number=2), span(3), turn="t2")
    session.add(ev.PromptComplete(), span(3), turn="t2")
    found = list(fold(session.records))
    assert [one.span_id for one in found] == [span(3), span(2), span(1)]
    for one in found[1:]:
        assert (one.end, one.status) == (last.time, "unset")
        assert one.attributes["eventctx.outcome"] == "unfinished"


def test_ends_without_a_beginning_and_second_beginnings_make_no_spans():
    session = Session()
    session.add(ev.ToolPost(name="x"), span(2), span(1))
    session.add(ev.PromptComplete(), span(1))
    session.add(ev.PromptSubmit(number=1), span(3))
    session.add(ev.PromptSubmit(number=1), span(3))
    session.add(ev.ToolPost(name="x"), span(3))
    session.add(ev.PromptComplete(), span(3))
    assert only(session).span_id == span(3)


def test_a_span_has_a_bounded_number_of_events_and_counts_the_rest():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    for _ in range(MAX_EVENTS + 15):
        session.add(ev.Unpinned(numbers=(1,)), span(1))
    session.add(ev.PromptComplete(), span(1))
    one = only(session)
    assert len(one.events) == MAX_EVENTS
    assert one.attributes["eventctx.events.dropped"] == 15


def test_open_spans_are_bounded_and_the_oldest_is_given_up():
    session = Session()
    for number in range(1, MAX_OPEN + 3):
        session.add(ev.ToolPre(name="x"), span(number))
    state = initial()
    given_up = []
    for record in session.records:
        state = evolve(state, record)
        given_up += state.finished
    assert [one.span_id for one in given_up] == [span(1), span(2)]
    assert len(state.open) == MAX_OPEN


def test_unknown_types_and_broken_payloads_are_events_on_the_span_they_name():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.raw("later:event", b"junk", span(1), None, "t1")
    session.raw("tool:pre", b"{}", span(2), span(1), "t1")
    session.add(ev.PromptComplete(), span(1))
    assert [tick.name for tick in only(session).events] == ["later:event", "tool:pre"]


EVENTS = st.sampled_from(
    [
        ev.PromptSubmit(number=1),
        ev.PromptComplete(),
        ev.ProviderRequest(),
        ev.ProviderResponse(),
        ev.UsageReported(prompt=1),
        ev.ToolPre(name="x"),
        ev.ToolError(name="x", error_type="E"),
        PRE,
        compacted(),
        compacted("failed"),
        prepared(0),
        ev.MessageAdded(),
        ev.Cleared(messages=0),
        ev.SessionEnd(),
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


def test_the_derived_trace_id_is_fixed_for_all_time():
    assert derive_trace_id("session", "turn") == "2b437e014114f9f8e752f97bce207c39"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("openai", "openai"),
        ("amazon_bedrock", "aws.bedrock"),
        ("google-gla", "gcp.gemini"),
        ("google_vertexai", "gcp.vertex_ai"),
        ("Azure", "azure.ai.openai"),
        ("mistralai", "mistral_ai"),
        ("xai", "x_ai"),
        ("My_House", "My_House"),
    ],
)
def test_a_provider_has_the_name_of_the_conventions_or_its_own(said: str, name: str) -> None:
    session = Session()
    session.add(ev.ProviderRequest(model="m", provider=said), span(1))
    session.add(ev.ProviderResponse(model="m", provider=said), span(1))
    session.add(ev.SessionEnd())
    (chat,) = fold(session.records)
    assert chat.attributes["gen_ai.provider.name"] == name


def test_a_planning_phase_is_named_after_its_agent_and_a_failed_call_has_a_reason() -> None:
    session = Session()
    session.add(ev.PromptSubmit(number=1, agent="coder"), span(1))
    session.add(ev.PlanStart(name="outline"), span(2), span(1))
    session.add(ev.ProviderRequest(model="m"), span(3), span(2))
    session.add(ev.ProviderError(error_type="Overloaded"), span(3), span(2))
    session.add(ev.PlanEnd(), span(2), span(1))
    session.add(ev.PromptComplete(), span(1))
    chat, plan, _ = fold(session.records)
    assert plan.name == "plan coder"
    assert plan.attributes["gen_ai.agent.name"] == "coder"
    assert plan.attributes["eventctx.plan.name"] == "outline"
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("error",)


def test_a_span_that_a_crash_left_open_ended_before_the_first_turn_after_it_not_a_later_one():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    last = session.add(ev.ToolPre(name="x"), span(2), span(1))
    for number in (2, 3):
        session.add(ev.PromptSubmit(number=number), span(number * 10), turn=f"t{number}")
        session.add(ev.PromptComplete(), span(number * 10), turn=f"t{number}")
    left = [one for one in fold(session.records) if one.attributes["eventctx.turn.id"] == "t1"]
    assert [one.attributes["eventctx.outcome"] for one in left] == ["unfinished"] * 2
    assert [one.end for one in left] == [last.time + 1] * 2


def test_a_compaction_begins_when_it_was_begun_but_not_before_its_turn():
    session = Session()
    turn = session.add(ev.PromptSubmit(number=1), span(1))
    pre = session.add(PRE, span(2), span(1))
    session.add(replace(compacted(), duration=SECOND // 2), span(2), span(1))
    session.add(replace(compacted(), duration=60 * SECOND), span(3), span(1))
    first, second, *_ = fold(session.records)
    assert first.start == pre.time
    assert (second.start < turn.time, second.span_id) == (False, span(3))


def test_the_end_of_another_operation_does_not_end_a_span_of_the_same_id():
    session = Session()
    session.add(ev.ToolPre(name="x"), span(2))
    session.add(ev.ProviderResponse(model="m"), span(2))
    session.add(ev.ToolPost(name="x"), span(2))
    found = only(session)
    assert "gen_ai.response.model" not in found.attributes
    assert [event.name for event in found.events] == ["provider:response"]


def test_added_messages_are_no_events_and_none_is_dropped_for_them():
    session = Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(ev.ProviderRequest(), span(2), span(1))
    for _ in range(MAX_EVENTS + 1):
        session.add(ev.MessageAdded(), span(1))
        session.add(ev.MessageAdded(), span(2), span(1))
    session.add(ev.ProviderError(error_type="E"), span(2), span(1))
    session.add(ev.MessageAdded(), span(3), span(2), turn=None)
    session.add(ev.Pinned(numbers=(1,)), span(1))
    session.add(ev.PromptComplete(), span(1))
    chat, turn = fold(session.records)
    assert [event.name for event in (*chat.events, *turn.events)] == ["context:pinned"]
    assert "eventctx.events.dropped" not in chat.attributes | turn.attributes
