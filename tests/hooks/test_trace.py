from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)

from eventctx.hooks import trace as sinks
from eventctx.hooks.log import lines
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.log import events as ev
from eventctx.log.ids import CurrentSpan, derive_trace_id
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span
from tests.hooks.given import PRE, Session, compacted, span, whole_turn


class Exported:
    """A provider with an in-memory exporter, and what came out of it."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(
            sampler=sampler, resource=Resource({"service.name": "host"}), shutdown_on_exit=False
        )
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def trace_ids(self) -> set[str]:
        return {otel.format_trace_id(one.context.trace_id) for one in self.spans}


def as_folded(sent: ReadableSpan) -> dict[str, object]:
    return {
        "name": sent.name,
        "kind": sent.kind.name.lower(),
        "trace_id": otel.format_trace_id(sent.context.trace_id),
        "span_id": otel.format_span_id(sent.context.span_id),
        "parent_span_id": sent.parent and otel.format_span_id(sent.parent.span_id),
        "start": sent.start_time,
        "end": sent.end_time,
        "status": sent.status.status_code.name.lower(),
        "attributes": dict(sent.attributes or {}),
        "events": [(one.name, one.timestamp, dict(one.attributes or {})) for one in sent.events],
        "links": [
            (
                otel.format_trace_id(one.context.trace_id),
                otel.format_span_id(one.context.span_id),
                dict(one.attributes or {}),
            )
            for one in sent.links
        ],
    }


def as_plain(one: Span) -> dict[str, object]:
    expected = {name: getattr(one, name) for name in one.__struct_fields__ if name != "message"}
    expected["events"] = [(event.name, event.time, event.attributes) for event in one.events]
    expected["links"] = [(link.trace_id, link.span_id, link.attributes) for link in one.links]
    return expected


def publish(session: Session, sink: TraceSink) -> None:
    hooks = Hooks()
    hooks.on("*", sink)
    for record in session.records:
        hooks.publish(record)
    assert not hooks.stats().errors


def test_live_spans_equal_those_folded_from_the_log():
    out, session = Exported(), Session()
    whole_turn(session)
    whole_turn(session, "t2", 0x200)
    publish(session, TraceSink(out.provider))
    assert [as_folded(one) for one in out.spans] == [as_plain(one) for one in fold(session.records)]
    assert {one.resource.attributes["service.name"] for one in out.spans} == {"host"}


def test_lines_and_spans_join_by_plain_equality():
    out, session = Exported(), Session()
    whole_turn(session)
    publish(session, TraceSink(out.provider))
    sent = {(as_folded(one)["trace_id"], as_folded(one)["span_id"]) for one in out.spans}
    assert sent == {(one["trace_id"], one["span_id"]) for one in lines(session.records)}


def test_parallel_sessions_never_mix():
    out, sink, hooks = Exported(), None, Hooks()
    sink = TraceSink(out.provider)
    hooks.on("*", sink)
    sessions = [Session(f"s{number}") for number in range(10)]
    for session in sessions:
        whole_turn(session)
    for row in zip(*[session.records for session in sessions], strict=True):
        for record in row:
            hooks.publish(record)
    for session in sessions:
        mine = [one for one in out.spans if one.attributes["session.id"] == session.name]
        assert [as_folded(one) for one in mine] == [as_plain(one) for one in fold(session.records)]


def test_the_hosts_generator_and_other_tracers_stay_as_they_are():
    out, session = Exported(), Session()
    generator, sampler = out.provider.id_generator, out.provider.sampler
    whole_turn(session)
    publish(session, TraceSink(out.provider))
    publish(session, TraceSink(out.provider))
    assert out.provider.id_generator is generator
    assert out.provider.sampler is sampler
    before = len(out.spans)
    for name in ("host", "eventctx"):
        out.provider.get_tracer(name).start_span("other").end()
    ours = {one.context.span_id for one in out.spans[:before]}
    assert not ours & {one.context.span_id for one in out.spans[before:]}


def test_an_error_has_its_status_and_message():
    out, session = Exported(), Session()
    whole_turn(session)
    publish(session, TraceSink(out.provider))
    (failed,) = [one for one in out.spans if one.status.status_code is otel.StatusCode.ERROR]
    assert failed.name == "execute_tool read"
    assert failed.status.description == "gone"
    assert failed.attributes["error.type"] == "OSError"


def test_a_turn_inside_a_hosts_span_belongs_to_the_hosts_trace():
    out, session = Exported(), Session()
    sink: CurrentSpan = TraceSink(out.provider)
    with out.provider.get_tracer("host").start_as_current_span("request") as request:
        ambient = sink.ambient()
        assert ambient is not None
        trace_id, parent = ambient
        session.add(ev.PromptSubmit(number=1, trace_id=trace_id), span(1), parent)
        session.add(ev.PromptComplete(), span(1), parent)
        publish(session, sink)
    turn, host = out.spans
    assert turn.context.trace_id == host.context.trace_id == request.get_span_context().trace_id
    assert turn.parent.span_id == host.context.span_id


def test_spans_of_an_instrumented_client_nest_under_ours_during_a_call():
    out = Exported()
    sink = TraceSink(out.provider)
    trace_id = derive_trace_id("s1", "t1")
    assert sink.ambient() is None
    outer = sink.enter("s1", trace_id, span(1))
    inner = sink.enter("s1", trace_id, span(2))
    out.provider.get_tracer("http").start_span("POST").end()
    sink.exit(inner)
    assert sink.ambient() == (trace_id, span(1))
    sink.exit(outer)
    assert sink.ambient() is None
    (sent,) = out.spans
    assert otel.format_trace_id(sent.context.trace_id) == trace_id
    assert otel.format_span_id(sent.parent.span_id) == span(2)


async def test_parallel_tasks_each_have_their_own_current_span():
    sink = TraceSink(Exported().provider)

    async def tool(number: int) -> bool:
        token = sink.enter("s1", "a" * 32, span(number))
        try:
            await asyncio.sleep(0.001 * (number % 3))
            return sink.ambient() == ("a" * 32, span(number))
        finally:
            sink.exit(token)

    assert all(await asyncio.gather(*[tool(number) for number in range(1, 30)]))
    assert sink.ambient() is None


# -- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("enter_first", [False, True])
@pytest.mark.parametrize("parent_based", [False, True])
def test_a_trace_is_sent_as_a_whole_or_not_at_all(parent_based: bool, enter_first: bool):
    ratio = TraceIdRatioBased(0.5)
    out = Exported(ParentBased(ratio) if parent_based else ratio)
    sink = TraceSink(out.provider)
    for number in range(60):
        session = Session(f"s{number}")
        whole_turn(session)
        if enter_first:
            sink.exit(sink.enter(session.name, derive_trace_id(session.name, "t1"), span(0x100)))
        publish(session, sink)
    by_trace: dict[int, int] = {}
    for one in out.spans:
        by_trace[one.context.trace_id] = by_trace.get(one.context.trace_id, 0) + 1
    assert set(by_trace.values()) == {6}
    assert 10 < len(by_trace) < 50


def test_a_sampler_that_never_agrees_twice_still_yields_whole_traces():
    class Flipping(Sampler):
        calls = 0

        def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):  # fmt: skip  # noqa: E501
            self.calls += 1
            keep = Decision.RECORD_AND_SAMPLE if self.calls % 2 else Decision.DROP
            return SamplingResult(keep, {**(attributes or {}), "sampled.by": "host"})

        def get_description(self) -> str:
            return "flipping"

    out = Exported(Flipping())
    sink = TraceSink(out.provider)
    for number in range(10):
        session = Session(f"s{number}")
        whole_turn(session)
        publish(session, sink)
    assert len(out.trace_ids) == 5
    assert len(out.spans) == 30
    assert {one.attributes["sampled.by"] for one in out.spans} == {"host"}


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF)])
def test_nothing_is_sent_where_the_host_samples_nothing(sampler: Sampler):
    out, session = Exported(sampler), Session()
    whole_turn(session)
    sink = TraceSink(out.provider)
    publish(session, sink)
    token = sink.enter("s1", derive_trace_id("s1", "t1"), span(1))
    assert not otel.get_current_span().get_span_context().trace_flags.sampled
    sink.exit(token)
    assert out.spans == ()


def test_a_turn_inside_a_hosts_unsampled_span_is_not_sent():
    out, session = Exported(ParentBased(ALWAYS_ON)), Session()
    sink, hooks = TraceSink(out.provider), Hooks()
    hooks.on("*", sink)
    context = otel.SpanContext(5, 6, is_remote=True, trace_flags=otel.TraceFlags(0))
    with otel.use_span(otel.NonRecordingSpan(context)):
        trace_id, parent = sink.ambient() or ("", "")
        session.add(ev.PromptSubmit(number=1, trace_id=trace_id), span(1), parent)
        hooks.publish(session.records[0])
    session.records.clear()
    session.add(ev.ToolPre(name="x"), span(2), span(1))
    session.add(ev.ToolPost(name="x"), span(2), span(1))
    session.add(ev.PromptComplete(), span(1), parent)
    for record in session.records:
        hooks.publish(record)
    assert out.spans == ()


def test_the_open_spans_of_a_session_that_is_forgotten_for_another_count_as_lost(monkeypatch):
    monkeypatch.setattr(sinks, "MAX_SESSIONS", 2)
    out, hooks = Exported(), Hooks()
    sink = TraceSink(out.provider)
    sink.attach(hooks)
    hooks.on("*", sink)
    idle, busy, *rest = [Session(name) for name in ("idle", "busy", "a", "b")]
    hooks.publish(idle.add(ev.SessionStart(library="1"), turn=None))
    hooks.publish(busy.add(ev.PromptSubmit(number=1), span(1)))
    hooks.publish(busy.add(ev.ToolPre(name="x"), span(2), span(1)))
    lost = []
    for session in rest:
        hooks.publish(session.add(ev.SessionStart(library="1"), turn=None))
        lost.append(sum(hooks.stats().dropped.values()))
    assert lost == [0, 2]


# -- history, ends, other set-ups ----------------------------------------------------------------


def test_a_resumed_session_goes_on_as_the_log_says():
    out, session = Exported(), Session()
    whole_turn(session)
    history = list(session.records)
    session.records.clear()
    session.add(PRE, span(1), turn=None)
    session.add(compacted(), span(1), turn=None)
    sink = TraceSink(out.provider)
    sink.resume(history)
    publish(session, sink)
    assert [as_folded(one) for one in out.spans] == [
        as_plain(one) for one in list(fold([*history, *session.records]))[-1:]
    ]
    assert out.spans[0].attributes["eventctx.compaction.sequence"] == 2


def test_flush_sends_what_is_unfinished_once():
    out, session = Exported(), Session()
    session.add(ev.PromptSubmit(number=1), span(1))
    session.add(ev.ToolPre(name="x"), span(2), span(1))
    sink = TraceSink(out.provider)
    publish(session, sink)
    sink.flush("s1")
    sink.flush()
    assert [one.name for one in out.spans] == ["execute_tool x", "invoke_agent"]
    assert {one.attributes["eventctx.outcome"] for one in out.spans} == {"unfinished"}


def test_unknown_types_and_broken_payloads_are_tolerated():
    out, session = Exported(), Session()
    session.raw("later:event", b"junk", span(1), None, "t1")
    session.raw("prompt:submit", b"junk", span(1), None, "t1")
    session.add(ev.PromptSubmit(number=1), span(2))
    session.add(ev.PromptComplete(), span(2))
    publish(session, TraceSink(out.provider))
    assert [one.name for one in out.spans] == ["invoke_agent"]


def test_a_provider_that_is_not_the_sdks_gets_spans_of_its_own_ids():
    class Foreign(otel.TracerProvider):
        def __init__(self, inner: TracerProvider) -> None:
            self.inner = inner

        def get_tracer(self, *args, **kwargs):
            tracer = self.inner.get_tracer(*args, **kwargs)

            class Wrapper(otel.Tracer):
                start_span = staticmethod(tracer.start_span)
                start_as_current_span = staticmethod(tracer.start_as_current_span)

            return Wrapper()

    out, session = Exported(), Session()
    whole_turn(session)
    publish(session, TraceSink(Foreign(out.provider)))
    assert len(out.spans) == 6


def test_a_no_op_provider_is_left_alone():
    session = Session()
    whole_turn(session)
    sink = TraceSink(otel.NoOpTracerProvider())
    publish(session, sink)
    sink.flush()


SCRIPT = """
import sys
from opentelemetry import trace as otel
from eventctx.hooks.trace import TraceSink
from tests.hooks.given import Session, whole_turn, span
session, sink = Session(), TraceSink()
assert "opentelemetry.sdk" not in sys.modules
for record in whole_turn(session):
    sink(record)
sink.resume(session.records)
sink.flush()
assert not sink._states
token = sink.enter("s1", "a" * 32, span(1))
assert sink.ambient() == ("a" * 32, span(1))
# An unsampled span here would make every service downstream drop its own.
assert not otel.get_current_span().get_span_context().is_valid
sink.exit(token)
assert sink.ambient() is None
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
otel.set_tracer_provider(provider)
for record in whole_turn(session, "t2", 0x200):
    sink(record)
print(len(exporter.get_finished_spans()))
"""


@pytest.mark.parametrize(("disabled", "sent"), [("false", "6"), ("true", "0")])
def test_without_an_sdk_nothing_happens_until_one_is_set_up(disabled: str, sent: str):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OTEL_SDK_DISABLED": disabled},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == sent
    assert done.stderr == ""


# -- what could tell a finished span from one that is started and ended ----------------------------


def test_a_processor_of_the_hosts_that_adds_to_spans_adds_to_ours_also_when_it_comes_late():
    class Enriching(SpanProcessor):
        def on_start(self, span, parent_context=None) -> None:
            span.set_attribute("tenant", "acme")

    out, sink, session = Exported(), None, Session()
    sink = TraceSink(out.provider)
    whole_turn(session)
    publish(session, sink)
    before = len(out.spans)
    out.provider.add_span_processor(Enriching())
    session.records.clear()
    whole_turn(session, "t2", 0x200)
    publish(session, sink)
    assert before == 6
    assert [one.attributes.get("tenant") for one in out.spans] == [None] * 6 + ["acme"] * 6


def test_the_hosts_limits_hold_for_our_spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        span_limits=SpanLimits(max_span_attribute_length=5), shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    session = Session()
    whole_turn(session)
    publish(session, TraceSink(provider))
    texts = [
        value
        for one in exporter.get_finished_spans()
        for value in one.attributes.values()
        if isinstance(value, str)
    ]
    assert max(map(len, texts)) == 5


def test_attributes_that_the_hosts_sampler_adds_are_on_our_spans():
    class Adding(Sampler):
        def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):  # fmt: skip  # noqa: E501
            return SamplingResult(Decision.RECORD_AND_SAMPLE, {**(attributes or {}), "rate": 1})

        def get_description(self) -> str:
            return "adding"

    out, session = Exported(Adding()), Session()
    whole_turn(session)
    publish(session, TraceSink(out.provider))
    assert [one.attributes["rate"] for one in out.spans] == [1] * 6
    assert all(one.context.trace_flags.sampled for one in out.spans)
