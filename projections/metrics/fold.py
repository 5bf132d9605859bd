"""Metrics as a fold over a session's records: each record gives measurements, live or from the log.

Only a stream's own records are measured; a fork's inherited records only set the state. A payload
that cannot be read gives no measurement. If records are missing (a fold that begins in the middle),
the reused share of the prefix is not measured until the view is known again.

Only a prepared request needs the request view. So records wait for their fold until one comes, and
are never folded here if a caller that has folded them already lends the view (``with_view``).

The reused prefix of a request is the part that the next one begins with, which a provider's cache
can serve again. Entries are compared by the bodies that they show and how they show them, not by
their text. Every body has a digest of its own, so a message that was taken out and added again
counts as another one, though the provider receives the same bytes: our share is never more than the
provider's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

from eventctx.log import events
from eventctx.log.codec import Unknown
from eventctx.log.events import Event
from eventctx.log.plan import Insertion
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.metrics import names
from eventctx.projections.metrics.names import Instrument
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import error_of
from eventctx.projections.view import request_view
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.planned import with_insertions
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState

# -- the reused prefix of a request --------------------------------------------------------------

Erased = frozenset[tuple[int, int]]
"""Addresses ``(position, index)`` of erased bodies."""


class RequestPrefix(NamedTuple):
    """A prepared request: the view, and ``own``, the insertions of this request alone.

    ``view`` is None if it is not known. ``carrier`` is the record that holds the insertions'
    bodies, None if there are no insertions.
    """

    view: ViewState | None
    own: tuple[Insertion, ...] = ()
    carrier: Record | None = None

    def entries(self) -> list[Entry]:
        """All entries in order, in time proportional to the view's length."""
        assert self.view is not None  # noqa: S101 - callers have checked it
        view = self.view
        if self.carrier is not None:
            view = with_insertions(view, self.own, self.carrier)
        return view.layout.entries()


def reused_share(before: RequestPrefix, after: RequestPrefix, erased: Erased) -> float | None:
    """The share, 0 to 1, of the estimated tokens of ``before`` with which ``after`` begins.

    Only whole messages count. ``erased`` are the bodies erased in between. None if a view is not
    known.
    """
    if before.view is None or after.view is None:
        return None
    old, new = before.entries(), after.entries()
    total = sum([entry.tokens for entry in old])
    if not total:
        return 1.0
    return sum([entry.tokens for entry in _same(old, new, erased)]) / total


def _same(old: list[Entry], new: list[Entry], erased: Erased) -> Iterable[Entry]:
    for one, other in zip(old, new, strict=False):
        if _shown(one) != _shown(other) or _place(one) in erased:
            return
        yield one


def _shown(entry: Entry) -> tuple[object, ...]:
    """The parts of an entry that decide the message that a model sees: no counts, no places."""
    kind, ref, call_id, omit, end = entry
    if kind == "synthetic":
        known = None if end is None else (end.ended, end.digest)
        return kind, call_id, entry.dialect, known
    if ref is None:
        return (kind,)
    return ref.digest, isinstance(ref, MessageRef) and ref.stripped, omit


def _place(entry: Entry) -> tuple[int, int] | None:
    # A synthetic result shows nothing of its call's body, only an answer that was kept.
    if entry.end is not None and entry.end.position is not None:
        return entry.end.position, 0
    if entry.ref is None or entry.kind == "synthetic":
        return None
    return entry.ref.position, entry.ref.index


Attributes = dict[str, str]

MAX_CALLS: Final = 64
"""Most model calls of a session that are kept; a call that ended may still get its usage."""
MAX_UNFOLDED: Final = 64
"""Records that may wait for their fold until a request is prepared."""
MAX_UNFOLDED_BYTES: Final = 65_536
"""Bytes of their bodies, at most."""
MAX_NAME: Final = 128
"""Longest value of an attribute, in characters; a longer text is no name."""

_SECOND: Final = 1_000_000_000


class Measurement(NamedTuple):
    """One value for one instrument, in its unit. Callers must not change ``attributes``."""

    instrument: Instrument
    value: int | float
    attributes: Attributes


class Call(NamedTuple):
    """A model call, by the span of its records; ``start`` in UTC nanoseconds."""

    span_id: str
    start: int
    attributes: Attributes
    ended: bool = False


class MetricState(NamedTuple):
    """The state of the fold.

    ``measured`` are the measurements of the last record, ``position`` its position (-1: none).
    ``view`` is the request view before ``unfolded``, the last records; None if it is not known.
    ``unfolded_bytes`` is the size of their bodies. ``sent`` is the last request, None if there was
    none or one may be missing; ``erased`` are the bodies erased since. ``calls`` are the last model
    calls, newest last. ``lent`` is a view of later records than those folded so far.
    """

    measured: tuple[Measurement, ...]
    position: int
    view: ViewState | None
    sent: RequestPrefix | None
    erased: Erased
    calls: tuple[Call, ...]
    unfolded: tuple[Record, ...] = ()
    unfolded_bytes: int = 0
    lent: ViewState | None = None


def initial() -> MetricState:
    """The state before a stream's first record."""
    return MetricState((), -1, request_view.initial(), None, frozenset(), ())


def evolve(state: MetricState, record: Record) -> MetricState:
    """The state after ``record``; its ``measured`` are the measurements of the record.

    A record at position 0 begins a new stream, whatever was folded before.
    """
    if record.position == 0:
        state = initial()
    _, before, view, sent, erased, calls, unfolded, size, lent = state
    position = record.position
    if position != before + 1:
        view = sent = None
    if view is None:
        unfolded, size = (), 0
    elif position > view.position:
        unfolded = (*unfolded, record)
        if record.bodies:
            size += sum([len(body.data or b"") for body in record.bodies])
        if len(unfolded) > MAX_UNFOLDED or size > MAX_UNFOLDED_BYTES:
            view, unfolded, size = _fold_view(view, unfolded), (), 0
    state = MetricState((), position, view, sent, erased, calls, unfolded, size, lent)
    step = _STEPS.get(record.type)
    return state if step is None else step(state, record, read(record))


def with_view(state: MetricState, view: ViewState) -> MetricState:
    """The state with a view lent by a caller that has folded the records that follow.

    It is used for the prepared request that is its last one, and must show it as it was prepared.
    """
    return state._replace(lent=view)


def fold(records: Iterable[Record]) -> Iterator[Measurement]:
    """The measurements of one stream's own records, in order; none of those a fork inherits."""
    state, found = initial(), list[Measurement]()
    for record in records:
        state = evolve(state, record)
        if record.type == "session:fork":
            found.clear()
        found.extend(state.measured)
    return iter(found)


def _fold_view(view: ViewState, records: Sequence[Record]) -> ViewState | None:
    try:
        return request_view.evolve_all(view, records)
    except Exception:
        # A damaged record may raise any error; ``verify`` reports damage, metrics go on.
        return None


# -- the steps -----------------------------------------------------------------------------------


def _with_request(state: MetricState, record: Record) -> MetricState:
    """The state with the view of a prepared request: the lent one, if it is that, else folded."""
    view, lent = state.view, state.lent
    if view is not None:
        view = (
            lent if lent is not None and _shows(lent, record) else _fold_view(view, state.unfolded)
        )
    return state._replace(view=view, unfolded=(), unfolded_bytes=0, lent=None)


def _shows(view: ViewState, record: Record) -> bool:
    """Whether the last request of a view is the one of ``record``."""
    last = view.calibration.requests[-1:]
    return bool(last) and last[0].position == record.position


def _fork(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    # A call that was open at the fork ends in the parent.
    return state._replace(calls=())


def _erase(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.Erased):
        return state._replace(sent=None)  # an unknown part of the last request was erased
    return state._replace(erased=state.erased.union(event.bodies))


def _measure_compaction(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.PostCompact) or events.takes_back(event):
        return state
    strategy = {names.STRATEGY: _short_name(event.strategy)}
    outcome: Attributes = {names.COMPACTION_OUTCOME: event.outcome}
    trigger: Attributes = {names.TRIGGER: event.trigger}
    found = [Measurement(names.COMPACTIONS, 1, trigger | strategy | outcome)]
    if event.outcome == "applied":
        before, after = event.tokens_before, event.tokens_after
        found.append(Measurement(names.TOKENS_BEFORE, before, trigger | strategy))
        found.append(Measurement(names.TOKENS_AFTER, after, trigger | strategy))
    if event.trigger != "imported":  # an imported one has no recorded duration
        took = event.duration / _SECOND
        found.append(Measurement(names.COMPACTION_DURATION, took, strategy | outcome))
    return state._replace(measured=_sound(found))


def _measure_request(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    state = _with_request(state, record)
    if not isinstance(event, events.RequestPrepared):
        # It was sent although we cannot read it, so the request before it is not the last one.
        return state._replace(sent=None)
    model = _model(event.model)
    found = [Measurement(names.REQUEST_TOKENS, event.tokens, model)]
    if event.budget is not None and event.budget > 0:
        found.append(Measurement(names.BUDGET_USED, event.tokens / event.budget, model))
    if event.demands_absent is not None:
        found.append(Measurement(names.INSTRUCTIONS_ABSENT, event.demands_absent, model))
    carrier = record if event.insertions else None
    sent = RequestPrefix(state.view, event.insertions, carrier)
    share = _measure_prefix(state, event, sent)
    if share is not None:
        found.append(Measurement(names.PREFIX_REUSED, share, model))
    found += [Measurement(names.BREAKS, 1, {names.BREAK: reason}) for reason in event.breaks]
    return state._replace(measured=_sound(found), sent=sent, erased=frozenset())


def _measure_prefix(
    state: MetricState, event: events.RequestPrepared, sent: RequestPrefix
) -> float | None:
    before = state.sent
    if before is None:
        return None
    if not event.breaks and before.carrier is None and sent.carrier is None:
        return 1.0  # between breaks, views only grow at their end
    try:
        return reused_share(before, sent, state.erased)
    except Exception:
        # The body of an insertion is missing or damaged.
        return None


def _begin_call(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    span_id = record.span_id
    if not isinstance(event, events.ProviderRequest) or span_id is None:
        return state
    known = _call(state, span_id)
    if known is not None and not known.ended:
        return state
    attributes: Attributes = {conv.OPERATION: conv.CHAT, **_model(event.model)}
    if event.provider is not None:
        attributes[conv.PROVIDER_NAME] = _short_name(event.provider)
    others = tuple([call for call in state.calls if call.span_id != span_id])
    return state._replace(calls=(*others[1 - MAX_CALLS :], Call(span_id, record.time, attributes)))


def _end_call(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    call = _call(state, record.span_id)
    if call is None or call.ended or isinstance(event, Unknown):
        return state
    if isinstance(event, events.ProviderError) and event.status == "lost":
        return state  # its duration is not known
    attributes = call.attributes
    if isinstance(event, events.ProviderError):
        attributes = attributes | {conv.ERROR_TYPE: _error_type(event)}
    elif isinstance(event, events.ProviderResponse) and event.provider is not None:
        attributes = attributes | {conv.PROVIDER_NAME: _short_name(event.provider)}
    took = (record.time - call.start) / _SECOND
    calls = tuple([one._replace(ended=True) if one is call else one for one in state.calls])
    found = [Measurement(names.OPERATION_DURATION, took, attributes)]
    return state._replace(measured=_sound(found), calls=calls)


def _measure_usage(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.UsageReported):
        return state
    call = _call(state, record.span_id)
    known: Attributes = {conv.OPERATION: conv.CHAT} if call is None else dict(call.attributes)
    known |= _model(event.model)
    found: list[Measurement] = []
    # A count that the provider does not report is recorded as 0.
    if event.prompt > 0:
        found.append(Measurement(names.TOKEN_USAGE, event.prompt, known | {_TYPE: "input"}))
    if event.output > 0 and event.output_exact:
        found.append(Measurement(names.TOKEN_USAGE, event.output, known | {_TYPE: "output"}))
    if event.prompt > 0 and event.cache_read <= event.prompt:
        by = {name: value for name, value in known.items() if name != conv.OPERATION}
        share = event.cache_read / event.prompt
        found.append(Measurement(names.PROMPT_CACHED, share, by))
    return state._replace(measured=_sound(found))


_TYPE: Final = names.TOKEN_TYPE

_STEPS: Final[dict[str, Callable[[MetricState, Record, Event | Unknown], MetricState]]] = {
    "session:fork": _fork,
    "context:erased": _erase,
    "context:post_compact": _measure_compaction,
    "context:request_prepared": _measure_request,
    "provider:request": _begin_call,
    "provider:response": _end_call,
    "provider:error": _end_call,
    "usage:reported": _measure_usage,
}


# -- parts ---------------------------------------------------------------------------------------


def _sound(found: list[Measurement]) -> tuple[Measurement, ...]:
    """The measurements that instruments accept; a record may hold negative or infinite values."""
    return tuple([one for one in found if one.value >= 0 and isfinite(one.value)])


def _call(state: MetricState, span_id: str | None) -> Call | None:
    for call in reversed(state.calls):
        if call.span_id == span_id:
            return call
    return None


def _model(model: str | None) -> Attributes:
    return {} if model is None else {conv.REQUEST_MODEL: _short_name(model)}


def _short_name(name: str) -> str:
    return name if len(name) <= MAX_NAME else conv.ERROR_OTHER


def _error_type(event: events.ProviderError) -> str:
    otherwise = "cancelled" if event.status == "cancelled" else conv.ERROR_OTHER
    return error_of(event.error_type, event.message, otherwise).type
