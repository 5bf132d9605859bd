"""The scope: the running task's place in a session, and the drafts of events that are made there.

A context variable carries it. Only the ``async with`` blocks of ``session/turns.py`` set the
variable, never a listener, and no block spans a ``yield``. Parallel tool calls are separate tasks,
so each sees its own span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar

import msgspec

from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, RecordIds
from eventctx.log.record import Body, Draft
from eventctx.session.pending import Clock


class Scope(msgspec.Struct, frozen=True):
    """A place in a session, with its ids. ``outer`` is the scope around it, of any session."""

    session_id: str
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None
    trace_id: str | None = None
    outer: Scope | None = None

    @property
    def ids(self) -> RecordIds:
        """The ids of a record that is made here."""
        return RecordIds(self.turn_id, self.span_id, self.parent_span_id, self.iteration)

    def at(self, ids: RecordIds) -> Scope:
        """Another place in the same session and trace."""
        return Scope(self.session_id, *ids, self.trace_id)


_current: ContextVar[Scope | None] = ContextVar("eventctx_scope", default=None)


def current_scope() -> Scope | None:
    """The innermost scope of the running task, of whichever session; None outside of any."""
    return _current.get()


def scope_of(session_id: str) -> Scope:
    """The innermost scope of this session; one with null ids outside of any."""
    scope = _current.get()
    while scope is not None:
        if scope.session_id == session_id:
            return scope
        scope = scope.outer
    return Scope(session_id)


def enter_scope(scope: Scope, span: CurrentSpan | None = None) -> Callable[[], None]:
    """Make this the running task's scope and, with ``span``, its span the host's current one.

    Returns a function that restores both.
    """
    before = _current.get()
    token = _current.set(msgspec.structs.replace(scope, outer=before))
    entered: object = None
    if span is not None and scope.trace_id is not None and scope.span_id is not None:
        entered = span.enter(scope.session_id, scope.trace_id, scope.span_id)

    def leave() -> None:
        if span is not None and entered is not None:
            span.exit(entered)
        try:
            _current.reset(token)
        except ValueError:
            # The block was closed in the context of another task than the one that opened it.
            _current.set(before)

    return leave


class Drafts:
    """Makes the drafts of one session.

    ``held`` is the scope that a host reported, for tasks that are in no turn of their own.
    """

    def __init__(self, stream: str, clock: Clock, random: Callable[[int], bytes]) -> None:
        self._stream = stream
        self._clock = clock
        self._random = random
        self._made = self._sent = 0
        self.held: Scope | None = None

    @property
    def scope(self) -> Scope:
        """The running task's scope in this session; outside of turns the one a host reported."""
        scope = scope_of(self._stream)
        return self.held if scope.turn_id is None and self.held is not None else scope

    def make(
        self,
        event: Event,
        bodies: Sequence[Body] = (),
        scope: Scope | None = None,
        time: int | None = None,
    ) -> Draft:
        """Put an event into its envelope, in ``scope`` or the present one.

        Its ``time`` is else the clock's, and never before that of an earlier draft. Raises
        InvalidSetting for a value that the event's payload does not allow.
        """
        name, version, payload = encode_event(event)
        scope = self.scope if scope is None else scope
        self._made = max(self._made, self._clock() if time is None else time)
        return Draft(
            self._random(16),
            name,
            version,
            self._made,
            payload,
            tuple(bodies),
            scope.turn_id,
            scope.span_id,
            scope.parent_span_id,
            scope.iteration,
        )

    def now(self) -> int:
        """The clock's time, in UTC nanoseconds."""
        return self._clock()

    def follow(self, time: int) -> None:
        """Place the next draft after a record of ``time``, the last one of the store.

        What was placed before and was not written keeps its own time, as far as that allows.
        """
        self._made = max(self._made, time)
        self._sent = time

    def placed(self, draft: Draft) -> Draft:
        """The draft as it goes to its place: times do not run backwards along the log."""
        if draft.time < self._sent:
            draft = msgspec.structs.replace(draft, time=self._sent)
        self._sent = draft.time
        return draft
