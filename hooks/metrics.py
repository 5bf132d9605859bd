"""The sink that sends metrics to OpenTelemetry through the host's own provider, readers and views.

The sink folds a session's records (``projections.metrics``) and passes the measurements on. It
measures itself what no record holds: the duration of appends, and the hooks' errors and drops.
Without an SDK all of this is skipped.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

from opentelemetry import metrics as otel
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, NoOpMeter, Observation

from eventctx.hooks.handlers import PerSession, renew_after_fork
from eventctx.hooks.redact import DEFAULT, Redactor
from eventctx.hooks.registry import Hooks, HookStats
from eventctx.hooks.sinks import History
from eventctx.log.record import Record
from eventctx.projections.metrics import names
from eventctx.projections.metrics.fold import MetricState, evolve, initial, with_view
from eventctx.projections.metrics.names import Instrument
from eventctx.projections.trace import semconv
from eventctx.projections.view.request_view import ViewState
from eventctx.version import __version__

MAX_SESSIONS: Final = 1024
"""Most sessions whose state a sink keeps, each about as large as its view; the least recently seen
is dropped first. Later records of a dropped session are measured, without the prefix reused at a
break."""

_log = logging.getLogger("eventctx.hooks")
_OBSERVED: Final = (names.HOOK_ERRORS, names.HOOK_DROPS)

Put = Callable[[int | float, Mapping[str, str | int]], None]


def latest_is_wanted() -> bool:
    """Whether the conventions' environment variable opts in to their newest names."""
    chosen = os.environ.get(semconv.OPT_IN, "").split(",")
    return semconv.LATEST in [one.strip().lower() for one in chosen]


class MetricsSink:
    """An observer of all records: ``hooks.on("*", MetricsSink())``. Never raises.

    ``meter_provider``: by default the global one, which is looked up again until there is one.
    ``redactor`` replaces secrets in the names of models, providers and errors; None for no
    redaction. The names of model calls and tokens are the older ones, unless the environment
    variable ``OTEL_SEMCONV_STABILITY_OPT_IN`` has ``gen_ai_latest_experimental``. Safe to call from
    several threads; one sink may serve several engines.
    """

    def __init__(
        self,
        meter_provider: MeterProvider | None = None,
        *,
        redactor: Redactor | None = DEFAULT,
    ) -> None:
        self._provider = meter_provider
        self._redactor = redactor
        self._latest = latest_is_wanted()
        self._seen: MeterProvider | None = None
        self._puts: dict[str, Put] | None = None
        self._registries: Registries | None = None
        self._hooks: list[Hooks] = []
        self._states = PerSession[MetricState](MAX_SESSIONS)
        self._warned = False
        self._lock = threading.Lock()
        renew_after_fork(self)

    def __call__(self, record: Record) -> None:
        """Fold the record and pass its measurements on."""
        try:
            puts = self._ready()
            if puts is None:
                return
            with self._lock:
                state = evolve(self._states.get(record.stream) or initial(), record)
                self._states.keep(record.stream, state)
            for one in state.measured:
                put = puts.get(one.instrument.name)
                if put is None:  # a name of the other conventions
                    continue
                attributes = one.attributes
                if self._redactor is not None:
                    attributes = self._redactor.fields(attributes)
                put(one.value, attributes)
        except Exception as error:
            self._failed(error)

    def history(self) -> History:
        """The records; "none" as long as there is no provider to measure for."""
        return "none" if self._ready() is None else "records"

    def resume(self, records: Iterable[Record]) -> None:
        """Fold a session's earlier records, from its first, without measuring anything.

        An engine that opens a session with a history calls this first, so that later records give
        the same measurements live as from the log.
        """
        try:
            if self._ready() is None:
                return
            state, stream = initial(), None
            for record in records:
                state, stream = evolve(state, record), record.stream
            if stream is not None:
                with self._lock:
                    self._states.keep(stream, state)
        except Exception as error:
            self._failed(error)

    def lend(self, session_id: str, view: ViewState) -> None:
        """Take the request view after the records that come next, so that none is folded here."""
        try:
            if self._ready() is not None:
                with self._lock:
                    state = self._states.get(session_id)
                    if state is not None:
                        self._states.keep(session_id, with_view(state, view))
        except Exception as error:
            self._failed(error)

    def appended(self, seconds: float, records: int) -> None:
        """Measure the duration of a durable append; may be called from any thread."""
        try:
            puts = self._ready()
            if puts is not None:
                puts[names.APPEND_DURATION.name](seconds, {})
        except Exception as error:
            self._failed(error)

    def attach(self, hooks: Hooks) -> None:
        """Report the errors and drops of these hooks, until ``detach`` or ``close``."""
        try:
            with self._lock:
                if hooks in self._hooks:
                    return
                # First, so that an error of the provider is counted.
                self._hooks.append(hooks)
            self._ready()
            with self._lock:
                if self._registries is not None:
                    self._registries.attach(hooks)
        except Exception as error:
            self._failed(error)

    def detach(self, hooks: Hooks) -> None:
        """Take the counts of these hooks as final; call it once they are closed."""
        try:
            with self._lock:
                if hooks in self._hooks:
                    self._hooks.remove(hooks)
                if hooks not in self._hooks:
                    self._states.take(number=hooks.number)
                if self._registries is not None:
                    self._registries.detach(hooks)
        except Exception as error:
            self._failed(error)

    def close(self) -> None:
        """Drop the states of all sessions, and take the hooks' counts as final.

        Measurements stay with the provider, which belongs to the host. May be called again, and the
        sink used again.
        """
        for hooks in list(self._hooks):
            self.detach(hooks)
        with self._lock:
            self._states.clear()

    def after_fork(self) -> None:
        """In a forked child: take a new lock, and leave the sessions to the parent."""
        self._lock = threading.Lock()
        self._states.clear()
        self._hooks.clear()

    def _ready(self) -> dict[str, Put] | None:
        """The functions that record a value, by instrument; None without a provider to send to."""
        provider = self._provider or otel.get_meter_provider()
        if provider is self._seen:
            return self._puts
        # The API's own providers stand in until there is an SDK. Measurements to them are lost, and
        # their proxies keep every instrument for good, so make none.
        stands_in = type(provider).__module__.partition("._")[0] == otel.__name__
        with self._lock:
            if provider is not self._seen:
                # Remember it first, so that a provider that fails is not tried for every record.
                self._seen, self._puts, self._registries = provider, None, None
                if not stands_in:
                    self._connect(provider)
            return self._puts

    def _connect(self, provider: MeterProvider) -> None:
        url = semconv.SCHEMA_URL if self._latest else names.SCHEMA_URL
        meter = provider.get_meter("eventctx", __version__, url)
        if isinstance(meter, NoOpMeter):
            return
        sent = names.sent_instruments(self._latest)
        puts = {one.name: _made(meter, one) for one in sent if one not in _OBSERVED}
        self._registries = Registries.of(provider, meter)
        for hooks in self._hooks:
            self._registries.attach(hooks)
        self._puts = puts

    def _failed(self, error: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        _log.log(level, "metrics: %s; further ones are logged at DEBUG", error, exc_info=error)
        for hooks in self._hooks[-1:]:
            hooks.count_error(self, error)


def _made(meter: Meter, one: Instrument) -> Put:
    if one.kind == "counter":
        return meter.create_counter(one.name, one.unit, one.description).add
    return meter.create_histogram(
        one.name,
        one.unit,
        one.description,
        explicit_bucket_boundaries_advisory=list(one.boundaries),
    ).record


class Registries:
    """The hooks whose counts one provider reports, for all sinks, as it reads an instrument once.

    The counts of detached hooks stay in the sums, since a counter must never fall.
    """

    _known: ClassVar[WeakKeyDictionary[MeterProvider, Registries]] = WeakKeyDictionary()
    _knowing: ClassVar = threading.Lock()

    def __init__(self) -> None:
        self._attached: list[Hooks] = []
        self._errors: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._settled: WeakKeyDictionary[Hooks, HookStats] = WeakKeyDictionary()
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: take a new lock, and leave all counts to the parent."""
        self._lock = threading.Lock()
        self._attached.clear()
        self._errors.clear()
        self._dropped.clear()
        self._settled.clear()

    @classmethod
    def of(cls, provider: MeterProvider, meter: Meter) -> Registries:
        """The registries of a provider; the first call registers their counters with ``meter``."""
        with cls._knowing:
            found = cls._known.get(provider)
            if found is None:
                found = cls._known[provider] = cls()
                for one, callback in zip(_OBSERVED, (found.errors, found.drops), strict=True):
                    meter.create_observable_counter(one.name, [callback], one.unit, one.description)
            return found

    def attach(self, hooks: Hooks) -> None:
        """Count these hooks, once for any number of sinks."""
        with self._lock:
            if hooks in self._attached:
                return
            self._attached.append(hooks)
            settled = self._settled.pop(hooks, None)
            if settled is not None:  # its own counts hold these again
                self._errors.subtract(settled.errors)
                self._dropped.subtract(settled.dropped)

    def detach(self, hooks: Hooks) -> None:
        """Move the counts of these hooks to the sums of detached ones."""
        with self._lock:
            if hooks not in self._attached:
                return
            self._attached.remove(hooks)
            self._settled[hooks] = stats = hooks.stats()
            self._errors.update(stats.errors)
            self._dropped.update(stats.dropped)

    def errors(self, options: CallbackOptions) -> Iterator[Observation]:
        """Errors so far, by handler."""
        with self._lock:
            sums = self._errors.copy()
            for hooks in self._attached:
                sums.update(hooks.stats().errors)
        return _observations(sums)

    def drops(self, options: CallbackOptions) -> Iterator[Observation]:
        """Records dropped so far, by handler."""
        with self._lock:
            sums = self._dropped.copy()
            for hooks in self._attached:
                sums.update(hooks.stats().dropped)
        return _observations(sums)


def _observations(sums: Counter[str]) -> Iterator[Observation]:
    for handler, count in sums.items():
        yield Observation(count, {names.HANDLER: handler})
