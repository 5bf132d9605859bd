"""The timeline of a session: one fold for all that screens and questions ask of a log.

It holds no text. All that grows with the log is a ``Series``, so the state at every position can be
kept (a key frame) for the price of its view, and an answer about the past folds a few records from
there instead of the whole log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from eventctx.log.codec import decode_known
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
    """What the first records say: the file that a mirror copies, its format, and a fork's parent.

    ``began`` and ``active`` are the times of the first and the last record that an activity of the
    session made, in UTC nanoseconds, 0 without one; ``undated`` is the time of the import of a file
    without times.
    """

    source: str | None = None
    format: str | None = None
    parent: tuple[str, int] | None = None
    began: int = 0
    active: int = 0
    undated: int | None = None


class TimelineState(NamedTuple):
    """The timeline after some record.

    ``changes`` and ``audit`` share their view and their numbering. ``models`` are the names of all
    models, in the order in which requests first named them. ``cached`` are pairs of a
    request's position and the tokens that its provider read from its cache. ``forms`` are pairs of
    a request's position and the form in which it was sent.
    """

    changes: ChangesState
    audit: AuditState
    usage: UsageState
    views: ViewsState
    runs: RunsState
    models: Series[str]
    cached: Series[tuple[int, int]]
    forms: Series[tuple[int, WireForm]]
    contents: Series[SentContent]
    links: Series[Link]
    tools: int
    about: About
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
    return TimelineState(
        changes.initial(),
        audit.initial(),
        usage.initial(),
        views.initial(),
        runs.initial(),
        Series(),
        Series(),
        Series(),
        Series(),
        Series(),
        0,
        About(),
        b"",
    )


def evolve(state: TimelineState, record: Record) -> TimelineState:
    """The timeline after ``record``."""
    (
        before,
        audited,
        used,
        shown,
        changed,
        models,
        cached,
        forms,
        contents,
        links,
        tools,
        about,
        _,
    ) = state
    view = request_view.evolve(before.view, record)
    time = numbering.evolve(before.time, record)
    after = changes.advanced(before, record, view, time)
    audited = audit.advanced(audited, record, view, time)
    if after.changes is not before.changes:
        fresh = after.changes[len(before.changes) :]
        changed = runs.following(changed, fresh, after.origins)
    match record.type:
        case "context:message_added":
            pass  # the most frequent type by far
        case "tool:pre":
            tools += 1
        case "context:request_prepared":
            event: Any = decode_known(record)
            shown = views.following(shown, before.view, event, record)
            models = _named(models, event.model)
            if event.wire is not None:
                forms = forms.append((record.position, event.wire))
        case "provider:request":
            event = decode_known(record)
            if event.prepared is not None:
                models = _named(models, event.model)
        case "usage:reported":
            used = usage.evolve(used, record)
            event = decode_known(record)
            if event.prepared is not None:
                cached = cached.append((event.prepared, event.cache_read))
        case "context:request_content":
            event = decode_known(record)
            place = (record.position, 0)
            content = SentContent(place, event.kind, event.digest, event.numbers, event.injected)
            contents = contents.append(content)
        case "session:start" | "session:fork" | "session:linked" | "session:taken_over":
            links, about = _about(links, about, record)
            if record.type == "session:fork":
                used, shown, tools = usage.evolve(used, record), views.restarted(shown), 0
    return TimelineState(
        after,
        audited,
        used,
        shown,
        changed,
        models,
        cached,
        forms,
        contents,
        links,
        tools,
        about,
        record.digest,
    )


def _named(models: Series[str], model: str | None) -> Series[str]:
    return models if model is None or model in models else models.append(model)


def _about(links: Series[Link], about: About, record: Record) -> tuple[Series[Link], About]:
    event: Any = decode_known(record)
    match record.type:
        case "session:start":
            source = None if event.imported_at is None else event.source or "a file"
            return links, about._replace(source=source, format=event.format)
        case "session:fork":
            own = About(parent=(event.parent, event.at), format=about.format)
            return Series(), own
        case "session:taken_over":
            return links, about._replace(source=None)
        case _:
            link = Link(record.position, event.session, event.relation, event.kind, event.call_id)
            return links.append(link), about
