"""Spans that a set-up loses are counted, once each, whatever it is that loses them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import TraceFlags

from eventctx.hooks import counting as module
from eventctx.hooks.counting import CountingExporter, configure_tracing
from eventctx.hooks.otlp import exporter_for
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.hooks.tracer import span_context
from tests.hooks.given import Session, whole_turn
from tests.hooks.observing import receiver as receiver
from tests.services.receiver import Partial, Receiver, Refuse

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
        if isinstance(self.answer, Exception):
            raise self.answer
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
    plain = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(plain))
    beside = TraceSink(provider)
    for record in whole_turn(Session("s0")):
        beside(record)
    beside.flush()
    return len(plain.get_finished_spans())


@pytest.fixture
def providers() -> Iterator[list[TracerProvider]]:
    made: list[TracerProvider] = []
    yield made
    for provider in made:
        provider.shutdown()


@pytest.mark.parametrize(
    "answer", [SpanExportResult.FAILURE, ConnectionError("gone")], ids=["fails", "raises"]
)
@pytest.mark.parametrize("processor", [BatchSpanProcessor, SimpleSpanProcessor])
def test_spans_of_a_failed_export_are_counted(
    answer: Any, processor: Any, providers: list[TracerProvider]
) -> None:
    counting = CountingExporter(Answering(answer))
    providers.append(TracerProvider())
    providers[0].add_span_processor(processor(counting))
    hooks, sink = Hooks(), TraceSink(providers[0], exporter=counting)
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert spans > 3
    assert hooks.stats().dropped == {NAME: spans}
    assert hooks.stats().errors == {}


def test_nothing_is_counted_when_all_arrives_and_results_are_passed_on() -> None:
    exporter = Answering()
    counting = CountingExporter(exporter)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(counting))
    hooks, sink = Hooks(), TraceSink(provider, exporter=counting)
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert len(exporter.got) == spans
    assert hooks.stats().dropped == {}
    assert counting.export([]) is SpanExportResult.SUCCESS
    exporter.answer = SpanExportResult.FAILURE
    assert counting.export([]) is SpanExportResult.FAILURE
    exporter.answer = ValueError("a bug")
    assert counting.export([]) is SpanExportResult.FAILURE
    counting.shutdown()


def test_what_a_full_queue_throws_away_is_counted(providers: list[TracerProvider]) -> None:
    exporter = Answering()
    counting = CountingExporter(exporter)
    providers.append(TracerProvider())
    providers[0].add_span_processor(
        BatchSpanProcessor(counting, max_queue_size=16, max_export_batch_size=8)
    )
    hooks, sink = Hooks(), TraceSink(providers[0], exporter=counting)
    exporter.free.clear()
    spans = traced(hooks, sink, turns=20) * 20
    exporter.free.set()
    sink.detach(hooks)
    assert 0 < len(exporter.got) < spans
    assert hooks.stats().dropped == {NAME: spans - len(exporter.got)}


def test_what_arrives_after_it_was_given_up_is_not_counted_again(
    providers: list[TracerProvider], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.trace.FLUSH_TIMEOUT", 0.2)
    exporter = Answering(SpanExportResult.FAILURE)
    counting = CountingExporter(exporter)
    providers.append(TracerProvider())
    providers[0].add_span_processor(BatchSpanProcessor(counting))
    hooks, sink = Hooks(), TraceSink(providers[0], exporter=counting)
    exporter.free.clear()
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert hooks.stats().dropped == {NAME: spans}
    exporter.free.set()
    providers[0].force_flush()
    assert hooks.stats().dropped == {NAME: spans}
    later = Hooks()
    counting.attach(later)
    assert later.stats().dropped == {}


def told(receiver: Receiver, protocol: str) -> str:
    return receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_that_a_collector_rejects_of_a_batch_are_counted_with_its_reason(
    receiver: Receiver, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.always(Partial(2, "too old"))
    hooks, sink = Hooks(), configure_tracing(told(receiver, protocol))
    spans = traced(hooks, sink)
    sink.detach(hooks)
    assert hooks.stats().dropped == {NAME: 2 * len(receiver.exports)}
    assert len(receiver.spans) == spans - 2 * len(receiver.exports) > 0
    assert caplog.messages == [f"2 not delivered, hook {NAME}: too old"]


def test_lost_spans_of_other_libraries_are_not_counted_but_logged(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.always(Refuse(400))
    counting, hooks = CountingExporter(exporter_for(receiver.http)), Hooks()
    counting.attach(hooks)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(counting))
    caplog.set_level(logging.DEBUG, "eventctx.hooks")
    for _ in range(2):
        provider.get_tracer("http").start_span("GET").end()
    provider.shutdown()
    assert hooks.stats().dropped == {}
    logged = [(one.levelname, one.getMessage()) for one in caplog.records if "eventctx" in one.name]
    why = "1 spans of other libraries not delivered: 400 Bad Request: refused by the test"
    assert logged == [("WARNING", why), ("DEBUG", why)]


def test_spans_of_others_and_spans_that_are_not_sampled_are_not_ours_to_count() -> None:
    counting = CountingExporter(Answering(SpanExportResult.FAILURE))
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(counting))
    hooks = Hooks()
    counting.attach(hooks)
    with provider.get_tracer("http").start_as_current_span("GET"):
        pass
    unsampled = TracerProvider(sampler=ALWAYS_OFF)
    unsampled.add_span_processor(SimpleSpanProcessor(counting))
    sink = TraceSink(unsampled, exporter=counting)
    traced(hooks, sink)
    sink.detach(hooks)
    assert hooks.stats().dropped == {}


def test_an_exporter_that_raises_at_its_flush_or_end_is_counted_as_an_error() -> None:
    counting, hooks = CountingExporter(Answering(OSError("no"))), Hooks()
    counting.attach(hooks)
    counting.shutdown()
    assert hooks.stats().errors == {NAME: 1}


def test_more_spans_under_way_than_any_queue_holds_are_counted_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_AWAITED", 2)
    counting, hooks = CountingExporter(Answering()), Hooks()
    counting.attach(hooks)
    for span_id in range(1, 6):
        counting.expect(span_context("a" * 32, f"{span_id:016x}", TraceFlags(1)))
    assert hooks.stats().dropped == {NAME: 3}
    counting.settle(counting.under_way())
    assert hooks.stats().dropped == {NAME: 5}


def test_losses_before_an_engine_is_open_are_told_to_the_first_one() -> None:
    counting = CountingExporter(Answering(SpanExportResult.FAILURE))
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(counting))
    sink = TraceSink(provider, exporter=counting)
    for record in whole_turn(Session("s")):
        sink(record)
    sink.flush()
    hooks = Hooks()
    counting.attach(hooks)
    assert hooks.stats().dropped[NAME] > 3
