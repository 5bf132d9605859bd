"""Spans that a set-up loses are counted, once each, whatever it is that loses them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import TraceFlags

from eventctx.hooks import counting as module
from eventctx.hooks.counting import CountingExporter, configure_tracing
from eventctx.hooks.otlp import exporter_for
from eventctx.hooks.registry import Hooks
from eventctx.hooks.trace import TraceSink
from eventctx.hooks.tracer import span_context
from eventctx.projections.trace.fold import fold
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
    counting, hooks = CountingExporter(Answering(SpanExportResult.FAILURE)), Hooks()
    provider, unsampled = TracerProvider(), TracerProvider(sampler=ALWAYS_OFF)
    for one in (provider, unsampled):
        one.add_span_processor(SimpleSpanProcessor(counting))
    counting.attach(hooks)
    provider.get_tracer("http").start_span("GET").end()
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


def test_losses_before_an_engine_is_open_are_told_to_the_first_one(
    sink_of: Callable[..., TraceSink],
) -> None:
    hooks, sink = Hooks(), sink_of(Answering(SpanExportResult.FAILURE))
    for record in whole_turn(Session("s")):
        sink(record)
    sink.flush()
    sink.attach(hooks)
    assert hooks.stats().dropped[NAME] > 3
