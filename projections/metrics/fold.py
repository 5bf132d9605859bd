"""Metrics as a fold over a session's records: each record gives measurements, live or from the log.

Only a stream's own records are measured; a fork's inherited records only set the state. A payload
that cannot be read gives no measurement. If records are missing (a fold that begins in the middle),
the reused share of the prefix is not measured until the view is known again.

Only a prepared request needs the request view. So records wait for their fold until one comes, and
are never folded here if a caller that has folded them already lends the view (``with_view``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from typing import Final, NamedTuple

from eventctx.log import events
from eventctx.log.codec import Unknown
from eventctx.log.events import Event
from eventctx.log.record import Record
from eventctx.projections.flat import read
from eventctx.projections.metrics import names
from eventctx.projections.metrics.names import Instrument
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import error_of, provider_name
from eventctx.projections.view import request_view
from eventctx.projections.view.planned import Addresses, RequestPrefix, reused_share
from eventctx.projections.view.request_view import ViewState

Attributes = dict[str, str | int]

MAX_CALLS: Final = 64
"""Most model calls of a session that are kept, since a call that ended may still get its usage; and
most turns and tool calls that are open."""
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
    """A model call, a tool call or a turn, by its records' span; ``start`` in UTC nanoseconds."""

    span_id: str
    start: int
    attributes: Attributes
    ended: bool = False
    turn_id: str | None = None


class MetricState(NamedTuple):
    """The state of the fold.

    ``measured`` are the measurements of the last record, ``position`` its position (-1: none).
    ``view`` is the request view before ``unfolded``, the last records; None if it is not known.
    ``unfolded_bytes`` is the size of their bodies. ``sent`` is the last request, None if there was
    none or one may be missing; ``erased`` are the bodies erased since. ``calls`` are the last model
    calls, ``open`` the open turns and tool calls, newest last. ``lent`` is a view of later records
    than those folded so far.
    """

    measured: tuple[Measurement, ...]
    position: int
    view: ViewState | None
    sent: RequestPrefix | None
    erased: Addresses
    calls: tuple[Call, ...]
    unfolded: tuple[Record, ...] = ()
    unfolded_bytes: int = 0
    lent: ViewState | None = None
    open: tuple[Call, ...] = ()


def initial() -> MetricState:
    """The state before a stream's first record."""
    return MetricState((), -1, request_view.initial(), None, frozenset(), ())


def evolve(state: MetricState, record: Record) -> MetricState:
    """The state after ``record``; its ``measured`` are the measurements of the record.

    A record at position 0 begins a new stream, whatever was folded before.
    """
    if record.position == 0:
        state = initial()
    _, before, view, sent, erased, calls, unfolded, size, lent, still_open = state
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
    state = MetricState((), position, view, sent, erased, calls, unfolded, size, lent, still_open)
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
    # What was open at the fork ends in the parent.
    return state._replace(calls=(), open=())


def _erase(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.Erased):
        return state._replace(sent=None)  # an unknown part of the last request was erased
    return state._replace(erased=state.erased.union(event.bodies))


def _measure_compaction(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.PostCompact) or events.takes_back(event):
        return state
    strategy: Attributes = {names.STRATEGY: _short_name(event.strategy)}
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
    known = _call(state.calls, span_id)
    if known is not None and not known.ended:
        return state
    attributes: Attributes = {conv.OPERATION: conv.CHAT, **_model(event.model)}
    if event.provider is not None:
        attributes[conv.PROVIDER_NAME] = _short_name(provider_name(event.provider))
    if event.server is not None:
        attributes[conv.SERVER_ADDRESS] = _short_name(event.server)
        if event.port is not None:
            attributes[conv.SERVER_PORT] = event.port
    others = tuple([call for call in state.calls if call.span_id != span_id])
    return state._replace(calls=(*others[1 - MAX_CALLS :], Call(span_id, record.time, attributes)))


def _end_call(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    call = _call(state.calls, record.span_id)
    if call is None or call.ended or isinstance(event, Unknown):
        return state
    if getattr(event, "status", None) == "lost":
        return state  # its duration is not known
    attributes = call.attributes
    if isinstance(event, events.ProviderError):
        attributes = attributes | _failure(event.status, event.error_type, event.message)
    elif isinstance(event, events.ProviderResponse):
        if event.provider is not None:
            name = provider_name(event.provider)
            attributes = attributes | {conv.PROVIDER_NAME: _short_name(name)}
        if event.model is not None:
            attributes = attributes | {conv.RESPONSE_MODEL: _short_name(event.model)}
    took = (record.time - call.start) / _SECOND
    calls = tuple(
        [one._replace(ended=True, attributes=attributes) if one is call else one
         for one in state.calls]
    )  # fmt: skip
    found = [_measured(one, took, attributes) for one in _DURATIONS]
    return state._replace(measured=_sound(found), calls=calls)


def _measure_usage(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    if not isinstance(event, events.UsageReported):
        return state
    call = _call(state.calls, record.span_id)
    known: Attributes = {conv.OPERATION: conv.CHAT} if call is None else dict(call.attributes)
    known |= _model(event.model)
    found: list[Measurement] = []
    # A count that the provider does not report is recorded as 0.
    counts = {"input": event.prompt, "output": event.output if event.output_exact else 0}
    for kind, per_call in _PER_CALL.items():
        if counts[kind] > 0:
            found.append(_measured(names.TOKEN_USAGE, counts[kind], known | {_TYPE: kind}))
            found.append(_measured(per_call, counts[kind], known))
    used = (*counts.values(), event.cache_read, event.cache_write, event.reasoning)
    by_modality = known | {names.TOKEN_MODALITY: names.UNKNOWN_MODALITY}
    found += [
        _measured(one, count, by_modality)
        for one, count in zip(_USED, used, strict=True)
        if count > 0
    ]
    if event.prompt > 0 and event.cache_read <= event.prompt:
        found.append(_measured(names.PROMPT_CACHED, event.cache_read / event.prompt, known))
    return state._replace(measured=_sound(found))


_TYPE: Final = names.TOKEN_TYPE
_DURATIONS: Final = (names.OPERATION_DURATION, names.INFERENCE_DURATION)
_PER_CALL: Final = {"input": names.INPUT_PER_CALL, "output": names.OUTPUT_PER_CALL}
_USED: Final = (
    *(names.INPUT_USED, names.OUTPUT_USED),
    *(names.CACHE_READ_USED, names.CACHE_WRITE_USED, names.REASONING_USED),
)


def _begin_operation(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    """Begin a turn or a tool call."""
    span_id, turn_id = record.span_id, record.turn_id
    if span_id is None or _call(state.open, span_id) is not None:
        return state
    if isinstance(event, events.PromptSubmit):
        attributes: Attributes = {conv.OPERATION: conv.INVOKE_AGENT}
        agent: str | int | None = event.agent
    elif isinstance(event, events.ToolPre):
        attributes = {conv.TOOL_NAME: _short_name(event.name), conv.TOOL_TYPE: conv.FUNCTION}
        turns = [one for one in state.open if one.turn_id == turn_id and turn_id is not None]
        agent = turns[0].attributes.get(conv.AGENT_NAME) if turns else None
    else:
        return state
    if agent is not None:
        attributes[conv.AGENT_NAME] = _short_name(str(agent))
    begun = Call(span_id, record.time, attributes, turn_id=turn_id)
    return state._replace(open=(*state.open[1 - MAX_CALLS :], begun))


def _end_operation(state: MetricState, record: Record, event: Event | Unknown) -> MetricState:
    call = _call(state.open, record.span_id)
    if call is None or getattr(event, "status", None) == "lost":
        return state
    attributes = call.attributes
    if isinstance(event, events.ToolError):
        attributes = attributes | _failure(event.status, event.error_type, event.message)
    elif isinstance(event, events.PromptComplete) and event.status != "ok":
        attributes = attributes | _failure(event.status, None, event.error)
    took = (record.time - call.start) / _SECOND
    instrument = names.AGENT_DURATION if conv.OPERATION in attributes else names.TOOL_DURATION
    left = tuple([one for one in state.open if one is not call])
    return state._replace(measured=_sound([_measured(instrument, took, attributes)]), open=left)


_STEPS: Final[dict[str, Callable[[MetricState, Record, Event | Unknown], MetricState]]] = {
    "session:fork": _fork,
    "context:erased": _erase,
    "context:post_compact": _measure_compaction,
    "context:request_prepared": _measure_request,
    "provider:request": _begin_call,
    "provider:response": _end_call,
    "provider:error": _end_call,
    "usage:reported": _measure_usage,
    "prompt:submit": _begin_operation,
    "prompt:complete": _end_operation,
    "tool:pre": _begin_operation,
    "tool:post": _end_operation,
    "tool:error": _end_operation,
}


# -- parts ---------------------------------------------------------------------------------------


def _sound(found: list[Measurement]) -> tuple[Measurement, ...]:
    """The measurements that instruments accept; a record may hold negative or infinite values."""
    return tuple([one for one in found if one.value >= 0 and isfinite(one.value)])


def _measured(instrument: Instrument, value: float, known: Attributes) -> Measurement:
    """A measurement with those of the ``known`` attributes that the instrument has."""
    has = instrument.attributes
    return Measurement(instrument, value, {name: known[name] for name in known if name in has})


def _call(calls: tuple[Call, ...], span_id: str | None) -> Call | None:
    for call in reversed(calls):
        if call.span_id == span_id:
            return call
    return None


def _model(model: str | None) -> Attributes:
    return {} if model is None else {conv.REQUEST_MODEL: _short_name(model)}


def _short_name(name: str) -> str:
    return name if len(name) <= MAX_NAME else conv.ERROR_OTHER


def _failure(status: str, kind: str | None, message: str | None) -> Attributes:
    otherwise = "cancelled" if status == "cancelled" else conv.ERROR_OTHER
    return {conv.ERROR_TYPE: error_of(kind, message, otherwise).type}
