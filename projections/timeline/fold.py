"""The timeline of a session: one fold for all that screens and questions ask of a log.

It holds no text. All that grows with the log is a ``Series``, so the state at every position can be
kept (a key frame) for the price of its view, and an answer about the past folds a few records from
there instead of the whole log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from eventctx.log.codec import decode_known, stored_harness_bodies
from eventctx.log.record import Record
from eventctx.log.wire import BodyAt, Injected, WireForm
from eventctx.projections import audit, numbering, usage
from eventctx.projections.audit import AuditState
from eventctx.projections.explain import changes
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.timeline import runs, views
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


class Link(NamedTuple):
    """Another session that belongs to this one, or to which this one does (``relation``)."""

    position: int
    session: str
    relation: str
    kind: str
    call_id: str | None


class About(NamedTuple):
    """The file that a mirror copies, its format, and the session and position a fork left."""

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


class Beside(NamedTuple):
    """What a timeline holds beside views and changes; most records change none of it.

    ``models`` are the names of all models, in the order in which requests first named them.
    ``cached`` are pairs of a request's position and the tokens that its provider read from its
    cache. ``forms`` are pairs of a request's position and the form in which it was sent.
    ``harness`` are the places of messages that a harness wrote, as their events say, and whether
    each is an observation. ``tools`` counts tool calls.
    """

    usage: UsageState
    models: Series[str]
    cached: Series[tuple[int, int]]
    forms: Series[tuple[int, WireForm]]
    harness: Series[tuple[BodyAt, bool]]
    contents: Series[SentContent]
    links: Series[Link]
    tools: int
    about: About


class TimelineState(NamedTuple):
    """The timeline after the record with ``digest``.

    ``changes`` and ``audit`` share their view. ``recounts`` are in order.
    """

    changes: ChangesState
    audit: AuditState
    views: ViewsState
    runs: RunsState
    recounts: Series[Recount]
    beside: Beside
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
    beside = Beside(
        usage.initial(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
        0,
        About(),
    )
    return TimelineState(
        changes.initial(),
        audit.initial(),
        views.initial(),
        runs.initial(),
        Series(),
        beside,
        b"",
    )


def evolve(state: TimelineState, record: Record) -> TimelineState:
    """The timeline after ``record``."""
    before, audited, shown, changed, recounts, beside, _ = state
    view = request_view.evolve(before.view, record)
    time = numbering.evolve(before.time, record)
    after = changes.advanced(before, record, view, time)
    if len(after.changes) != len(before.changes):
        fresh = after.changes[len(before.changes) :]
        changed = runs.following(changed, fresh, after.origins)
    if record.type == "context:request_prepared":
        shown = views.following(shown, before.view, decode_known(record), record)
    elif record.type == "session:fork":
        shown = views.restarted(shown)
        recounts = Series([one._replace(first=0) for one in recounts[-1:]])
    if view.calibration.family != before.view.calibration.family:
        recount = Recount(len(shown.shown), view.next_number, view.calibration.family)
        recounts = recounts.append(recount)
    step = _STEPS.get(record.type)
    if step is not None:
        beside = step(beside, record)
    audited = audit.advanced(audited, record, view, time)
    return TimelineState(after, audited, shown, changed, recounts, beside, record.digest)


# -- steps ---------------------------------------------------------------------------------------


def _messages(beside: Beside, record: Record) -> Beside:
    origins = stored_harness_bodies(record.type, record.payload)
    if not origins.harness:
        return beside  # nearly all
    found = [
        ((record.position, index), index in origins.observations)
        for index in sorted(origins.harness)
    ]
    return beside._replace(harness=beside.harness.extend(found))


def _tool(beside: Beside, record: Record) -> Beside:
    return beside._replace(tools=beside.tools + 1)


def _prepared(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    models = _named(beside.models, event.model)
    if event.wire is not None:
        form = (record.position, event.wire)
        return beside._replace(models=models, forms=beside.forms.append(form))
    return beside if models is beside.models else beside._replace(models=models)


def _called(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    if event.prepared is None:
        return beside
    models = _named(beside.models, event.model)
    return beside if models is beside.models else beside._replace(models=models)


def _named(models: Series[str], model: str | None) -> Series[str]:
    return models if model is None or model in models else models.append(model)


def _reported(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    used = usage.evolve(beside.usage, record)
    if event.prepared is None:
        return beside._replace(usage=used)
    cached = beside.cached.append((event.prepared, event.cache_read))
    return beside._replace(usage=used, cached=cached)


def _content(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    content = SentContent(
        (record.position, 0), event.kind, event.digest, event.numbers, event.injected
    )
    return beside._replace(contents=beside.contents.append(content))


def _started(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    source = None if event.imported_at is None else event.source or "a file"
    return beside._replace(about=beside.about._replace(source=source, format=event.format))


def _forked(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    about = About(parent=(event.parent, event.at), format=beside.about.format)
    used = usage.evolve(beside.usage, record)
    return beside._replace(usage=used, about=about, links=Series(), tools=0)


def _taken_over(beside: Beside, record: Record) -> Beside:
    return beside._replace(about=beside.about._replace(source=None))


def _linked(beside: Beside, record: Record) -> Beside:
    event: Any = decode_known(record)
    link = Link(record.position, event.session, event.relation, event.kind, event.call_id)
    return beside._replace(links=beside.links.append(link))


_STEPS: Final[dict[str, Callable[[Beside, Record], Beside]]] = {
    "context:message_added": _messages,
    "context:messages_set": _messages,
    "tool:pre": _tool,
    "context:request_prepared": _prepared,
    "provider:request": _called,
    "usage:reported": _reported,
    "context:request_content": _content,
    "session:start": _started,
    "session:fork": _forked,
    "session:taken_over": _taken_over,
    "session:linked": _linked,
}
