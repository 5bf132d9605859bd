"""A session's transcript: adding to it, replacing it, and reading it whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.log import events
from eventctx.log.events import Event
from eventctx.log.record import Body, Draft, place
from eventctx.messages.encoding import decode_bodies, encode_message
from eventctx.messages.facts import decode_facts
from eventctx.messages.ordered_diff import match_in_order, runs_of_numbers
from eventctx.policies.planner import body_of
from eventctx.projections import transcript
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.render import ERASED
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import LiveSession
from eventctx.session.reconcile import reconcile

_ERASED: Final = encode_message({"role": "user", "content": ERASED})
"""What stands in a transcript for an erased message."""


class Transcript:
    """The transcript of one live session, and the drafts that change it."""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._state: transcript.TranscriptState | None = None

    # -- drafts ----------------------------------------------------------------------------------

    def body(self, message: dict[str, Any]) -> Body:
        """A new body for a message. Raises InvalidMessage."""
        return body_of(message, self._live.random, self._live.tokenizer)

    def draft(self, event: Event, bodies: Sequence[Body] = ()) -> Draft:
        """A draft of an event, where the session is now."""
        return self._live.draft(event, self._live.scope, bodies)

    def added(self, body: Body) -> events.MessageAdded:
        """The event of a message; a late result says whose thinking it takes the prefix from."""
        event = events.MessageAdded()
        results = decode_facts(body.facts).results
        if not results:
            return event
        view = self._live.view
        if view.layout.abandoned.isdisjoint(results):
            return event
        return events.MessageAdded(unbound=self.stripped(view, event, (body,)))

    def stripped(
        self, view: ViewState, event: Event, bodies: Sequence[Body]
    ) -> tuple[tuple[int, int], ...]:
        """Numbers whose thinking is bound to a prefix that ``event`` changes."""
        record = place(self.draft(event, bodies), self._live.stream, view.position + 1, -1, b"")
        return planned.stripped_by(view.layout, request_view.evolve(view, record).layout)

    # -- reading ---------------------------------------------------------------------------------

    async def messages(self) -> list[dict[str, Any]]:
        """The whole transcript, after what other processes wrote until now."""
        _, version = await self._live.synchronised()
        _, stored = await self._stored(version)
        return decode_bodies([_ERASED if data is None else data for data in stored])

    async def lines(self, head: int) -> transcript.TranscriptState:
        """The transcript's addresses at ``head``, folded on from where the last call left off."""
        state = self._state
        if state is None or state.position > head:
            state = transcript.initial()
        if state.position < head:
            async for record in self._live.store.read(
                self._live.stream, start=state.position + 1, stop=head, bodies=False
            ):
                state = transcript.evolve(state, record)
            self._state = state
        return state

    async def _stored(self, version: int) -> tuple[transcript.TranscriptState, list[bytes | None]]:
        """The transcript's lines at ``version``, and their stored bytes, None for erased ones."""
        state = await self.lines(version)
        bodies = await self._live.store.bodies(
            self._live.stream, [line.address for line in state.lines]
        )
        return state, [body.data for body in bodies]

    # -- replacing -------------------------------------------------------------------------------

    async def replace(self, messages: Sequence[dict[str, Any]]) -> None:
        """As ``Context.set_messages``."""
        made = [self.body(message) for message in messages]
        appended = None
        while appended is None:
            view, version = await self._live.settled()
            state, stored = await self._stored(version)
            matched = match_in_order(
                [data or _ERASED for data in stored], [body.data or b"" for body in made]
            )
            draft = self._set_to(view, state, list(zip(made, matched, strict=True)))
            appended = await self._live.append_exactly(version, draft)

    async def resume(self, messages: Sequence[dict[str, Any]]) -> bool:
        """As ``Context.resume_messages``."""
        made = [self.body(message) for message in messages]
        while True:
            view, version = await self._live.settled()
            state, stored = await self._stored(version)
            # An erased message comes back as it was shown, and is that one.
            known = decode_bodies([data or _ERASED for data in stored])
            found = reconcile(known, list(messages))
            if found.rows is None:
                event = events.SetIgnored(messages=len(messages), missing_roles=found.missing_roles)
                draft = self.draft(event)
            else:
                new = [None if given is None else made[given] for _, given in found.rows]
                places = [place_ for place_, _ in found.rows]
                draft = self._set_to(view, state, list(zip(new, places, strict=True)))
            if await self._live.append_exactly(version, draft) is not None:
                return found.rows is not None

    async def clear(self) -> None:
        """As ``Context.clear``."""
        appended = None
        while appended is None:
            view, version = await self._live.settled()
            draft = self.draft(events.Cleared(messages=view.messages))
            appended = await self._live.append_exactly(version, draft)

    def _set_to(
        self,
        view: ViewState,
        state: transcript.TranscriptState,
        rows: Sequence[tuple[Body | None, int | None]],
    ) -> Draft:
        """A set to ``rows``: the place of a stored message, else the body of a new one."""
        following = state.next_number
        numbers: list[int] = []
        for _, place_ in rows:
            numbers.append(following if place_ is None else state.lines[place_].number)
            following += place_ is None
        fresh = [body for body, place_ in rows if place_ is None and body is not None]
        event = events.MessagesSet(order=runs_of_numbers(numbers))
        stripped = self.stripped(view, event, fresh)
        # What the host brings anew it has from somewhere: only what stood elsewhere is unbound.
        newest = state.next_number - 1
        known = tuple([(a, min(b, newest)) for a, b in stripped if a <= newest])
        return self.draft(msgspec.structs.replace(event, unbound=known), fresh)
