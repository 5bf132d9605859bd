from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
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
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.log import events as ev
from eventctx.log.ids import derive_trace_id
from tests.hooks.given import Session, publish, span, whole_turn


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


SCRIPT = """
import sys
from opentelemetry import metrics, trace as otel
from eventctx.hooks.metrics import MetricsSink
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from tests.hooks.given import Session, whole_turn, span
session, sink, measures, hooks = Session(), TraceSink(), MetricsSink(), Hooks()
assert "opentelemetry.sdk" not in sys.modules
measures.attach(hooks)
for record in whole_turn(session):
    sink(record)
    measures(record)
sink.resume(session.records)
measures.resume(session.records)
sink.flush()
measures.appended(0.1, 1)
assert not sink._states and not measures._states
token = sink.enter("s1", "a" * 32, span(1))
assert sink.ambient() == ("a" * 32, span(1))
# An unsampled span here would make every service downstream drop its own.
assert not otel.get_current_span().get_span_context().is_valid
sink.exit(token)
assert sink.ambient() is None
hooks._errors["failing"] = 1
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.hooks.measured import Gathered
exporter, provider, gathered = InMemorySpanExporter(), TracerProvider(), Gathered()
provider.add_span_processor(SimpleSpanProcessor(exporter))
otel.set_tracer_provider(provider)
metrics.set_meter_provider(gathered.provider)
for record in whole_turn(session, "t2", 0x200):
    sink(record)
    measures(record)
found = gathered.metrics()
named = "eventctx.request.estimated_tokens" in found
print(len(exporter.get_finished_spans()), named, "eventctx.hook.errors" in found)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disabled", "sent"), [("false", "6 True True"), ("true", "0 False False")]
)
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
