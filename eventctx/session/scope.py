"""The scope: the running task's place in a session, carried by a context variable.

Only the ``async with`` blocks of ``session/turns.py`` set the variable, never a listener, and no
block spans a ``yield``. Parallel tool calls are separate tasks, so each sees its own span.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import msgspec

from eventctx.log.ids import CurrentSpan, RecordIds


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
