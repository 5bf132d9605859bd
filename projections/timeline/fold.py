"""The timeline of a session: one fold for all that screens and questions ask of a log.

It holds no text. Invariant: all that grows with the log is a ``Series``, so the state at every
position can be kept (a key frame) for the price of its view, and an answer about the past folds a
few records from there instead of the whole log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known, stored_harness_bodies
from eventctx.log.record import Record
from eventctx.log.wire import BodyAt, Injected, WireForm
from eventctx.projections import audit, numbering, usage
from eventctx.projections.audit import AuditState
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.timeline import instructions, runs, views
from eventctx.projections.timeline.instructions import InstructionsState
from eventctx.projections.timeline.runs import RunsState
from eventctx.projections.timeline.views import ViewsState
from eventctx.projections.usage import UsageState
from eventctx.projections.view import request_view
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState


class SentContent(NamedTuple):
    """A content of requests, at ``place``: ``tools`` with their ``digest``, or a ``message``.

    ``numbers`` are the transcript's messages that a message carries, ``injected`` the texts in it
    that the client put there.
    """

    place: BodyAt
    kind: str
    digest: str
    numbers: tuple[int, ...] = ()
    injected: tuple[Injected, ...] = ()


class CacheReport(NamedTuple):
    """Tokens of the request at ``position`` that its provider read from its cache and wrote to it.

    ``write_1h`` is the part of ``write`` that lives an hour.
    """

    position: int
    read: int
    write: int = 0
    write_1h: int = 0


class Link(NamedTuple):
    """Another session that belongs to this one, or to which this one does (``relation``)."""

    position: int
    session: str
    relation: str
    kind: str
    call_id: str | None


class Provenance(NamedTuple):
    """Where a session comes from: a mirror's file and format, a fork's parent and position."""

    source: str | None = None
    format: str | None = None
    parent: tuple[str, int] | None = None


class Recount(NamedTuple):
    """From request ``first`` on, the first ``messages`` messages count as ``family`` has it.

    Another model was called, and its family's estimator counts them anew.
    """

    first: int
    messages: int
    family: str


class TimelineExtras(msgspec.Struct, frozen=True, gc=False):
    """The parts of a timeline other than views and changes; most records change none of them.

    ``models`` are the names of all models, in the order in which requests first named them.
    ``cached`` are the reports of each request's cache. ``forms`` are pairs of a request's position
    and the form in which it was sent. ``harness`` are the places of messages that a
    harness wrote, as their events say, and whether each is an observation. ``tools`` counts tool
    calls.
    """

    usage: UsageState
    models: Series[str]
    cached: Series[CacheReport]
    forms: Series[tuple[int, WireForm]]
    harness: Series[tuple[BodyAt, bool]]
    contents: Series[SentContent]
    links: Series[Link]
    tools: int
    provenance: Provenance


class TimelineState(msgspec.Struct, frozen=True, gc=False):
    """The timeline after the record with ``digest``.

    ``changes`` and ``audit`` share their view. ``recounts`` are in order.
    """

    changes: ChangesState
    audit: AuditState
    views: ViewsState
    runs: RunsState
    recounts: Series[Recount]
    extras: TimelineExtras
    instructions: InstructionsState
    digest: bytes

    @property
    def view(self) -> ViewState:
        """The request view."""
        return self.changes.view

    @property
    def position(self) -> int:
        """The position of the last record; -1 before the first one."""
        return self.changes.view.position


def initial() -> TimelineState:
    """The timeline of an empty stream."""
    extras = TimelineExtras(
        usage.initial(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
        0,
        Provenance(),
    )
    return TimelineState(
        changes.initial(),
        audit.initial(),
        views.initial(),
        runs.initial(),
        Series(),
        extras,
        instructions.initial(),
        b"",
    )


def evolve(state: TimelineState, record: Record) -> TimelineState:
    """The timeline after ``record``."""
    before, extras, kind = state.changes, state.extras, record.type
    shown, changed, recounts = state.views, state.runs, state.recounts
    demanded = state.instructions
    view = request_view.evolve(before.view, record)
    time = numbering.evolve(before.time, record)
    after = changes.advance(before, record, view, time)
    step = _STEPS.get(kind)
    extras = extras if step is None else step(extras, record)
    audited = audit.advance(state.audit, record, view, time)
    if kind not in _SPANS:  # half of all records change the view and figures alone
        if after.changes is not before.changes:
            fresh = after.changes[len(before.changes) :]
            changed = runs.add_changes(changed, fresh, after.origins) if fresh else changed
        if kind == "context:request_prepared":
            shown = views.add_request(shown, before.view, decode_known(record), record)
        elif kind == "session:fork":
            shown = views.restart(shown)
            recounts = Series([one._replace(first=0) for one in recounts[-1:]])
        demanded = instructions.advance(demanded, record, before, after)
    if view.calibration is not before.view.calibration:
        family = view.calibration.family
        if family != before.view.calibration.family:
            recounts = recounts.append(Recount(len(shown.shown), view.next_number, family))
    return TimelineState(after, audited, shown, changed, recounts, extras, demanded, record.digest)


def evolve_extras(extras: TimelineExtras, record: Record) -> TimelineExtras:
    """The extras after ``record``; they need neither views nor changes."""
    step = _STEPS.get(record.type)
    return extras if step is None else step(extras, record)


_SPANS: Final = frozenset(
    (
        *("prompt:submit", "prompt:complete", "plan:start", "plan:end", "provider:request"),
        *("provider:response", "provider:error", "tool:pre", "tool:post", "tool:error"),
        "usage:reported",
    )
)
"""Records that change no message, no request and no demand."""


# -- steps ---------------------------------------------------------------------------------------


def _note_harness(extras: TimelineExtras, record: Record) -> TimelineExtras:
    origins = stored_harness_bodies(record.type, record.payload)
    if not origins.harness:
        return extras  # nearly all
    found = [
        ((record.position, index), index in origins.observations)
        for index in sorted(origins.harness)
    ]
    return replace(extras, harness=extras.harness.extend(found))


def _count_tool(extras: TimelineExtras, record: Record) -> TimelineExtras:
    return replace(extras, tools=extras.tools + 1)


def _add_form(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    models = _with_model(extras.models, event.model)
    if event.wire is not None:
        form = (record.position, event.wire)
        return replace(extras, models=models, forms=extras.forms.append(form))
    return extras if models is extras.models else replace(extras, models=models)


def _add_model(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    if event.prepared is None:
        return extras
    models = _with_model(extras.models, event.model)
    return extras if models is extras.models else replace(extras, models=models)


def _with_model(models: Series[str], model: str | None) -> Series[str]:
    if model is None or models[-1:] == [model] or model in models:
        return models
    return models.append(model)


def _add_report(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    used = usage.evolve(extras.usage, record)
    if event.prepared is None:
        return replace(extras, usage=used)
    cached = extras.cached.append(
        CacheReport(event.prepared, event.cache_read, event.cache_write, event.cache_write_1h)
    )
    return replace(extras, usage=used, cached=cached)


def _add_content(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    content = SentContent(
        (record.position, 0), event.kind, event.digest, event.numbers, event.injected
    )
    return replace(extras, contents=extras.contents.append(content))


def _start(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    source = None if event.imported_at is None else event.source or "a file"
    return replace(
        extras, provenance=extras.provenance._replace(source=source, format=event.format)
    )


def _fork(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    provenance = Provenance(parent=(event.parent, event.at), format=extras.provenance.format)
    used = usage.evolve(extras.usage, record)
    return replace(extras, usage=used, provenance=provenance, links=Series(), tools=0)


def _take_over(extras: TimelineExtras, record: Record) -> TimelineExtras:
    return replace(extras, provenance=extras.provenance._replace(source=None))


def _add_link(extras: TimelineExtras, record: Record) -> TimelineExtras:
    event: Any = decode_known(record)
    link = Link(record.position, event.session, event.relation, event.kind, event.call_id)
    return replace(extras, links=extras.links.append(link))


_STEPS: Final[dict[str, Callable[[TimelineExtras, Record], TimelineExtras]]] = {
    "context:message_added": _note_harness,
    "context:messages_set": _note_harness,
    "tool:pre": _count_tool,
    "context:request_prepared": _add_form,
    "provider:request": _add_model,
    "usage:reported": _add_report,
    "context:request_content": _add_content,
    "session:start": _start,
    "session:fork": _fork,
    "session:taken_over": _take_over,
    "session:linked": _add_link,
}
