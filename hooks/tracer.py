"""Sends finished spans through the host's own OpenTelemetry set-up, with the ids of the log.

A copy of one tracer gets its own id generator and sampler; the provider and every other tracer stay
as they are. The host's sampler decides once per trace, before its first span ends, and all spans of
the trace follow that decision, so that no child is sent without its root. Without an SDK all of
this is skipped.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from eventctx.hooks.handlers import renew_after_fork
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.spans import OpenSpan, Span, SpanLink
from eventctx.version import __version__

MAX_TRACES: Final = 4096
"""Most traces whose sampling decision is kept; the least recently used is dropped first."""

_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)


class _Decision(NamedTuple):
    """A sampler's decision on a trace: the SDK's Decision, added attributes, the trace state."""

    decision: Any
    added: dict[str, Any]
    trace_state: Any


class _Script(threading.local):
    """The id generator and sampler of our tracer: gives the ids and decision that ``send`` sets.

    Thread-local is enough, because a span starts within one call.
    """

    trace_id: int = 0
    span_id: int = 0
    decision: _Decision | None = None

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return False

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> Any:
        from opentelemetry.sdk.trace.sampling import SamplingResult

        made = self.decision
        assert made is not None  # noqa: S101 - set before every start_span
        return SamplingResult(made.decision, {**made.added, **(attributes or {})}, made.trace_state)

    def get_description(self) -> str:
        return "eventctx: as decided for the whole trace"


class RecordTracer:
    """Sends spans with the records' ids and times.

    ``provider``: by default the global one, which is looked up again until there is one. With a
    tracer that is not the SDK's, spans are sent with that tracer's own span ids. ``expect`` is
    called with the context of every span to be exported, before the provider gets the span.
    """

    def __init__(
        self,
        provider: otel.TracerProvider | None = None,
        expect: Callable[[SpanContext], None] | None = None,
    ) -> None:
        self._provider = provider
        self._expect = expect
        self._seen: otel.TracerProvider | None = None
        self._tracer: otel.Tracer | None = None
        self._sampler: Any = None
        self._script = _Script()
        self._decisions: OrderedDict[str, _Decision] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Take a new lock in a forked child."""
        self._lock = threading.Lock()

    def ready(self) -> bool:
        """Whether a span would go anywhere: there is a provider, and it is not a no-op."""
        provider = self._provider or otel.get_tracer_provider()
        if provider is self._seen:
            return self._tracer is not None
        if isinstance(provider, otel.ProxyTracerProvider):
            return False
        tracer = provider.get_tracer(conv.SCOPE, __version__, conv.SCHEMA_URL)
        with self._lock:
            self._tracer = None if isinstance(tracer, otel.NoOpTracer) else self._adopt(tracer)
            self._seen = provider
            self._decisions.clear()  # another provider may have another sampler
        return self._tracer is not None

    def _adopt(self, tracer: otel.Tracer) -> otel.Tracer:
        """Copy an SDK's tracer, since other libraries may use the same one."""
        if not (hasattr(tracer, "id_generator") and hasattr(tracer, "sampler")):
            self._sampler = None
            return tracer
        ours: Any = copy.copy(tracer)
        self._sampler = ours.sampler
        ours.id_generator = ours.sampler = self._script
        found: otel.Tracer = ours
        return found

    # -- sampling --------------------------------------------------------------------------------

    def decide(self, span: OpenSpan | Span) -> _Decision | None:
        """The decision for the span's whole trace, made now if this is its first span."""
        known = self._known_decision(span.trace_id)
        if known is None and self._sampler is not None:
            kind, own = _KINDS[span.kind], dict(span.attributes)
            known = self._sample(self._context_of(span), span.trace_id, span.name, kind, own)
        return known

    def _sample(
        self, context: Context, trace_id: str, name: str, kind: SpanKind, own: dict[str, Any]
    ) -> _Decision:
        """Call the host's sampler; the attributes that it adds go to every span of the trace."""
        result = self._sampler.should_sample(context, int(trace_id, 16), name, kind, own, ())
        added = {key: value for key, value in (result.attributes or {}).items() if key not in own}
        with self._lock:
            made = _Decision(result.decision, added, result.trace_state)
            made = self._decisions.setdefault(trace_id, made)
            if len(self._decisions) > MAX_TRACES:
                self._decisions.popitem(last=False)
            return made

    def _known_decision(self, trace_id: str) -> _Decision | None:
        with self._lock:
            known = self._decisions.get(trace_id)
            if known is not None:
                self._decisions.move_to_end(trace_id)
            return known

    def _context_of(self, span: OpenSpan | Span) -> Context:
        """The context for the sampler: the host's, if the trace is the host's, else an empty one.

        A child may come first (if a sink is added in the middle of a turn). It must not look like
        the child of a sampled parent, since its root gets the same decision later.
        """
        current = otel.get_current_span().get_span_context()
        if current.is_valid and current.trace_id == int(span.trace_id, 16):
            return otel.set_span_in_context(NonRecordingSpan(current), Context())
        if span.parent_span_id is None or not span.name.startswith(conv.INVOKE_AGENT):
            return Context()
        parent = span_context(span.trace_id, span.parent_span_id, _SAMPLED)
        return otel.set_span_in_context(NonRecordingSpan(parent), Context())

    def flags(self, trace_id: str) -> TraceFlags:
        """The flags of a trace; decides on it if the engine enters a span before its record."""
        known = self._known_decision(trace_id)
        if known is None:
            current = otel.get_current_span().get_span_context()
            if current.is_valid and current.trace_id == int(trace_id, 16):
                return current.trace_flags
            if not self.ready():
                return _UNSAMPLED
            if self._sampler is None:
                return _SAMPLED
            known = self._sample(Context(), trace_id, conv.INVOKE_AGENT, SpanKind.INTERNAL, {})
        return _SAMPLED if known.decision.is_sampled() else _UNSAMPLED

    # -- sending ---------------------------------------------------------------------------------

    def send(self, span: Span) -> None:
        """Give a span to the host's set-up; call it only when ``ready``."""
        made = self.decide(span)
        if made is not None and not made.decision.is_recording():
            return
        tracer = self._tracer
        assert tracer is not None  # noqa: S101 - ready() was true
        script = self._script
        script.decision = made
        script.trace_id, script.span_id = int(span.trace_id, 16), int(span.span_id, 16)
        context = Context()
        if span.parent_span_id is not None:
            flags = self.flags(span.trace_id)
            parent = NonRecordingSpan(span_context(span.trace_id, span.parent_span_id, flags))
            context = otel.set_span_in_context(parent, context)
        sent = tracer.start_span(
            span.name,
            context,
            _KINDS[span.kind],
            attributes=span.attributes,
            links=[_link(one) for one in span.links],
            start_time=span.start,
        )
        for event in span.events:
            sent.add_event(event.name, event.attributes, event.time)
        if span.status == "error":
            sent.set_status(Status(StatusCode.ERROR, span.message))
        context_of = sent.get_span_context()
        if self._expect is not None and context_of.trace_flags.sampled:
            self._expect(context_of)
        sent.end(span.end)

    def force_flush(self) -> None:
        """Let the provider send the spans that it holds. Blocks as long as its processors do."""
        flush = getattr(self._provider or otel.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush()


def _link(link: SpanLink) -> otel.Link:
    return otel.Link(span_context(link.trace_id, link.span_id, _SAMPLED), link.attributes)


def span_context(trace_id: str, span_id: str, flags: TraceFlags) -> SpanContext:
    """The context of a local span, from hex ids."""
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags)
