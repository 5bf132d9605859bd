"""The points of an SDK and the measurements of a fold, in one form that can be compared."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pytest import approx

from eventctx.log.record import Record
from eventctx.projections.metrics.fold import Measurement, evolve, initial
from eventctx.projections.metrics.names import INSTRUMENTS, sent_instruments

Point = dict[str, Any]
Points = dict[tuple[str, frozenset[tuple[str, str]]], Point]
OPERATIONAL = frozenset(one.name for one in INSTRUMENTS if one.operational)


def exporting(**options: Any) -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(shutdown_on_exit=False, **options), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


class Gathered:
    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        resources = data.resource_metrics if data else ()
        scopes = [scope for resource in resources for scope in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self) -> Points:
        """All points, in the form of ``summed``."""
        found: Points = {}
        for name, metric in self.metrics().items():
            for point in metric.data.data_points:
                key = (name, frozenset(point.attributes.items()))
                if not hasattr(point, "bucket_counts"):
                    found[key] = {"sum": point.value}
                    continue
                found[key] = {name: getattr(point, name) for name in ("sum", "count", "min", "max")}
                found[key]["bounds"] = tuple(point.explicit_bounds)
                found[key]["buckets"] = tuple(point.bucket_counts)
        return found


def summed(measurements: Iterable[Measurement], *, latest: bool = False) -> Points:
    """The points that an SDK should make of the measurements."""
    values: dict[tuple[str, frozenset[tuple[str, str]]], list[float]] = {}
    sent = sent_instruments(latest)
    for one in measurements:
        if one.instrument in sent:
            key = (one.instrument.name, frozenset(one.attributes.items()))
            values.setdefault(key, []).append(one.value)
    by_name = {one.name: one for one in INSTRUMENTS}
    return {key: _point(by_name[key[0]], found) for key, found in values.items()}


def _point(instrument: Any, values: list[float]) -> Point:
    total = sum(values[1:], values[0])
    if instrument.kind == "counter":
        return {"sum": total}
    buckets = [0] * (len(instrument.boundaries) + 1)
    for value in values:
        buckets[bisect_left(instrument.boundaries, value)] += 1
    # The sum depends on the order, in which sessions take turns.
    sums = {"sum": approx(total), "count": len(values), "min": min(values), "max": max(values)}
    return {**sums, "bounds": instrument.boundaries, "buckets": tuple(buckets)}


def by_position(records: Iterable[Record], name: str) -> dict[int, float]:
    state, found = initial(), {}
    for record in records:
        state = evolve(state, record)
        for one in state.measured:
            if one.instrument.name == name:
                found[record.position] = one.value
    return found
