"""Spans as a sink sends them, and those that a set-up loses: they are counted, once each."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import TraceFlags

from eventctx.hooks import counting as module
from eventctx.hooks import trace as sinks
from eventctx.hooks.counting import CountingExporter, configure_tracing
from eventctx.hooks.otlp import exporter_for
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.hooks.tracer import span_context
from eventctx.log import events as ev
from eventctx.log.ids import derive_trace_id
from eventctx.projections.trace.fold import fold
from tests.hooks.given import E, Session, publish, span, whole_turn
from tests.hooks.measured import exporting
from tests.hooks.observing import receiver as receiver
from tests.services.receiver import Partial, Receiver, Refuse


class Exported:
    def __init__(self, sampler: sampling.Sampler = sampling.ALWAYS_ON) -> None:
        self.provider, self.exporter = exporting(sampler=sampler)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def by_trace(self) -> Counter[int]:
        return Counter(one.context.trace_id for one in self.spans)


def test_the_hosts_generator_and_tracers_stay_as_they_are_and_a_late_processor_adds_to_ours():
    out, session = Exported(), Session()
    generator, sampler = out.provider.id_generator, out.provider.sampler
    whole_turn(session)
    for _ in range(2):
        publish(session, TraceSink(out.provider))
    assert (out.provider.id_generator, out.provider.sampler) == (generator, sampler)
    ours = {one.context.span_id for one in out.spans}
    out.exporter.clear()
    for name in ("host", "eventctx"):
        out.provider.get_tracer(name).start_span("other").end()
    assert not ours & {one.context.span_id for one in out.spans}

    class Enriching(SpanProcessor):
        def on_start(self, span, parent_context=None) -> None:
            span.set_attribute("tenant", "acme")

    out, session = Exported(), Session()
    sink = TraceSink(out.provider)
    for name, base in (("t1", 0x100), ("t2", 0x200)):
        for record in whole_turn(session, name, base):
            sink(record)
        out.provider.add_span_processor(Enriching())
    assert [one.attributes.get("tenant") for one in out.spans] == [None] * 6 + ["acme"] * 6


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
    ratio = sampling.TraceIdRatioBased(0.5)
    out = Exported(sampling.ParentBased(ratio) if parent_based else ratio)
    sink = TraceSink(out.provider)
    for number in range(60):
        session = Session(f"s{number}")
        whole_turn(session)
        if enter_first:
            sink.exit(sink.enter(session.name, derive_trace_id(session.name, "t1"), span(0x100)))
        publish(session, sink)
    assert set(out.by_trace.values()) == {6}
    assert 10 < len(out.by_trace) < 50


def test_a_sampler_that_never_agrees_twice_still_yields_whole_traces():
    answers = cycle([sampling.Decision.RECORD_AND_SAMPLE, sampling.Decision.DROP])

    def sample(*_: Any, attributes: Any = None, **__: Any) -> sampling.SamplingResult:
        return sampling.SamplingResult(next(answers), {**(attributes or {}), "sampled.by": "host"})

    flipping: Any = SimpleNamespace(should_sample=sample, get_description=lambda: "flipping")
    out = Exported(flipping)
    sink = TraceSink(out.provider)
    for number in range(10):
        session = Session(f"s{number}")
        whole_turn(session)
        publish(session, sink)
    assert list(out.by_trace.values()) == [6] * 5
    assert {one.attributes["sampled.by"] for one in out.spans} == {"host"}


def test_the_open_spans_of_a_session_that_is_forgotten_for_another_count_as_lost(monkeypatch):
    monkeypatch.setattr(sinks, "MAX_SESSIONS", 2)
    hooks, sink, lost = Hooks(), TraceSink(Exported().provider), []
    sink.attach(hooks)
    hooks.on("*", sink)
    start = ev.SessionStart(library="1")
    busy = Session("busy").tell((E.SUBMIT, 1), (E.USE, 2, 1))
    others = [Session(name).tell((start,), turn=None) for name in ("idle", "a", "b")]
    for session in (others[0], busy, *others[1:]):
        for record in session.records:
            hooks.publish(record)
        lost.append(sum(hooks.stats().dropped.values()))
    assert lost == [0, 0, 0, 2]


# -- history, ends, other set-ups ----------------------------------------------------------------


@pytest.mark.parametrize(
    "sampler", [sampling.ALWAYS_OFF, sampling.ParentBased(sampling.ALWAYS_OFF)]
)
def test_nothing_is_sent_where_the_host_samples_nothing(sampler: sampling.Sampler):
    out, session = Exported(sampler), Session()
    whole_turn(session)
    sink = TraceSink(out.provider)
    publish(session, sink)
    token = sink.enter("s1", derive_trace_id("s1", "t1"), span(1))
    assert not otel.get_current_span().get_span_context().trace_flags.sampled
    sink.exit(token)
    assert out.spans == ()


def test_a_turn_inside_a_hosts_unsampled_span_is_not_sent():
    out, session = Exported(sampling.ParentBased(sampling.ALWAYS_ON)), Session()
    sink = TraceSink(out.provider)
    context = otel.SpanContext(5, 6, is_remote=True, trace_flags=otel.TraceFlags(0))
    with otel.use_span(otel.NonRecordingSpan(context)):
        trace_id, parent = sink.ambient() or ("", "")
        sink(session.add(ev.PromptSubmit(number=1, trace_id=trace_id), span(1), parent))
    for event, own, above in ((E.USE, 2, span(1)), (E.USED, 2, span(1)), (E.DONE, 1, parent)):
        sink(session.add(event, span(own), above))
    assert out.spans == ()


def test_flush_sends_what_is_unfinished_once():
    out = Exported()
    sink = TraceSink(out.provider)
    publish(Session().tell((E.SUBMIT, 1), (E.USE, 2, 1)), sink)
    sink.flush("s1")
    sink.flush()
    assert [one.name for one in out.spans] == ["execute_tool x", "invoke_agent"]
    assert {one.attributes["eventctx.outcome"] for one in out.spans} == {"unfinished"}


def test_a_provider_that_is_not_the_sdks_gets_spans_of_its_own_ids():
    out, session = Exported(), Session()

    def tracer(*args: Any, **options: Any) -> Any:
        inner = out.provider.get_tracer(*args, **options)
        start, current = inner.start_span, inner.start_as_current_span
        return SimpleNamespace(start_span=start, start_as_current_span=current)

    whole_turn(session)
    foreign: Any = SimpleNamespace(get_tracer=tracer)
    publish(session, TraceSink(foreign))
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
from tests.hooks.measured import Gathered, exporting
(provider, exporter), gathered = exporting(), Gathered()
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
    env = os.environ | {"OTEL_SDK_DISABLED": disabled}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip().splitlines()[-1] == sent


# -- what could tell a finished span from one that is started and ended ----------------------------


# -- spans that a set-up loses ---------------------------------------------------------------------


NAME = "eventctx.hooks.counting.CountingExporter"


class Answering(SpanExporter):
    """An exporter that answers so, or raises it; holds a batch while it is told to."""

    def __init__(self, answer: Any = SpanExportResult.SUCCESS) -> None:
        self.answer = answer
        self.got: list[str] = []
        self.free = threading.Event()
        self.free.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        assert self.free.wait(60)
        self.shutdown()
        self.got.extend(span.name for span in spans)
        result: SpanExportResult = self.answer
        return result

    def shutdown(self) -> None:
        if isinstance(self.answer, Exception):
            raise self.answer


def traced(hooks: Hooks, sink: TraceSink, turns: int = 1) -> int:
    """Publish whole turns of a session each; returns how many spans a turn has."""
    sink.attach(hooks)
    hooks.on("*", sink)
    for number in range(turns):
        for record in whole_turn(Session(f"s{number}")):
            hooks.publish(record)
    return sum(1 for _ in fold(whole_turn(Session("s0"))))


@pytest.fixture
def sink_of() -> Iterator[Callable[..., TraceSink]]:
    """Makes a sink whose exporter is counted; its provider is shut down at the end."""
    made: list[TracerProvider] = []

    def make(exporter: SpanExporter, kind: Any = SimpleSpanProcessor, **options: Any) -> TraceSink:
        counting = CountingExporter(exporter)
        made.append(TracerProvider())
        made[-1].add_span_processor(kind(counting, **options))
        return TraceSink(made[-1], exporter=counting)

    yield make
    for provider in made:
        provider.shutdown()


@pytest.mark.parametrize(
    "answer", [SpanExportResult.FAILURE, ConnectionError("gone")], ids=["fails", "raises"]
)
@pytest.mark.parametrize("processor", [BatchSpanProcessor, SimpleSpanProcessor])
def test_spans_of_a_failed_export_are_counted(
    answer: Any, processor: Any, sink_of: Callable[..., TraceSink]
) -> None:
    hooks, sink = Hooks(), sink_of(Answering(answer), processor)
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert spans > 3
    assert (hooks.stats().dropped, hooks.stats().errors) == ({NAME: spans}, {})


def test_nothing_is_counted_when_all_arrives_and_results_are_passed_on(
    sink_of: Callable[..., TraceSink],
) -> None:
    exporter = Answering()
    hooks, sink, counting = Hooks(), sink_of(exporter), CountingExporter(exporter)
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert len(exporter.got) == spans
    assert hooks.stats().dropped == {}
    for answer in (SpanExportResult.SUCCESS, SpanExportResult.FAILURE):
        exporter.answer = answer
        assert counting.export([]) is answer
    exporter.answer = ValueError("a bug")
    assert counting.export([]) is SpanExportResult.FAILURE
    counting.shutdown()


def test_what_a_full_queue_throws_away_is_counted(sink_of: Callable[..., TraceSink]) -> None:
    exporter, hooks = Answering(), Hooks()
    sink = sink_of(exporter, BatchSpanProcessor, max_queue_size=16, max_export_batch_size=8)
    exporter.free.clear()
    spans = traced(hooks, sink, turns=20) * 20
    exporter.free.set()
    sink.detach(hooks)
    assert 0 < len(exporter.got) < spans
    assert hooks.stats().dropped == {NAME: spans - len(exporter.got)}


def test_what_arrives_after_it_was_given_up_is_not_counted_again(
    sink_of: Callable[..., TraceSink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.trace.FLUSH_TIMEOUT", 0.2)
    exporter = Answering(SpanExportResult.FAILURE)
    hooks, later, sink = Hooks(), Hooks(), sink_of(exporter, BatchSpanProcessor)
    exporter.free.clear()
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert hooks.stats().dropped == {NAME: spans}
    exporter.free.set()
    sink._tracer._provider.force_flush()  # type: ignore[union-attr]
    assert hooks.stats().dropped == {NAME: spans}
    sink.attach(later)
    assert later.stats().dropped == {}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_that_a_collector_rejects_of_a_batch_are_counted_with_its_reason(
    receiver: Receiver, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.always(Partial(2, "too old"))
    url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
    hooks, sink = Hooks(), configure_tracing(url)
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert hooks.stats().dropped == {NAME: 2 * len(receiver.exports)}
    assert len(receiver.spans) == spans - 2 * len(receiver.exports) > 0
    assert caplog.messages == [f"2 not delivered, hook {NAME}: too old"]


def test_lost_spans_of_other_libraries_or_not_sampled_are_not_counted_but_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.always(Refuse(400))
    counting, hooks = CountingExporter(exporter_for(receiver.http)), Hooks()
    provider, unsampled = TracerProvider(), TracerProvider(sampler=sampling.ALWAYS_OFF)
    for one in (provider, unsampled):
        one.add_span_processor(SimpleSpanProcessor(counting))
    sink = TraceSink(unsampled, exporter=counting)
    traced(hooks, sink)
    caplog.set_level(logging.DEBUG, "eventctx.hooks")
    for _ in range(2):
        provider.get_tracer("http").start_span("GET").end()
    sink.detach(hooks)
    provider.shutdown()
    assert hooks.stats().dropped == {}
    logged = [(one.levelname, one.getMessage()) for one in caplog.records if "eventctx" in one.name]
    why = "1 spans of other libraries not delivered: 400 Bad Request: refused by the test"
    assert logged == [("WARNING", why), ("DEBUG", why)]


def test_more_spans_under_way_than_a_queue_holds_are_counted_while_it_runs_and_an_error_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_AWAITED", 2)
    counting, hooks = CountingExporter(Answering(OSError("no"))), Hooks()
    counting.attach(hooks)
    for span_id in range(1, 6):
        counting.expect(span_context("a" * 32, f"{span_id:016x}", TraceFlags(1)))
    assert hooks.stats().dropped == {NAME: 3}
    counting.settle(counting.under_way())
    assert (hooks.stats().dropped, hooks.stats().errors) == ({NAME: 5}, {})
    counting.shutdown()
    assert hooks.stats().errors == {NAME: 1}


def test_losses_before_an_engine_is_open_are_the_first_ones(
    sink_of: Callable[..., TraceSink],
) -> None:
    hooks, sink = Hooks(), sink_of(Answering(SpanExportResult.FAILURE))
    for record in whole_turn(Session("s")):
        sink(record)
    sink.flush()
    sink.attach(hooks)
    assert hooks.stats().dropped[NAME] > 3
