"""Drafts of one session: events in their envelopes, with times that never run backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.record import Body, Draft
from eventctx.session.appends.pending import Clock
from eventctx.session.scope import Scope, scope_of


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

    def follow(self, time: int) -> None:
        """Let no later draft have an earlier time than a record of the store has."""
        self._made = max(self._made, time)
        self._sent = max(self._sent, time)

    def placed(self, draft: Draft) -> Draft:
        """The draft as it goes to its place: times do not run backwards along the log."""
        if draft.time < self._sent:
            draft = msgspec.structs.replace(draft, time=self._sent)
        self._sent = draft.time
        return draft
