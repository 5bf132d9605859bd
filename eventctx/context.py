"""The context manager: what an agent calls. It decides, appends, and only then returns.

``Context`` implements the ContextManager protocol of the Amplifier context contract 2.1.0
(``add_message``, ``get_messages_for_request``, ``get_messages``, ``set_messages``, ``clear``) and
the older guide's ``get_token_count`` and ``compact``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from eventctx import budget as budgets
from eventctx import events
from eventctx.codec import decode_bodies, encode_message
from eventctx.deciding import CompactionResult, Decided, Request, decide, ended_without_plan
from eventctx.diff import match_in_order, runs_of_numbers
from eventctx.emitting import SessionEmitter
from eventctx.errors import ContextOverflow, InvalidSetting, WrongExpectedVersion
from eventctx.events import Event, Located, Trigger
from eventctx.identity import CurrentSpan
from eventctx.live import LiveSession
from eventctx.messages import encode_facts, read_facts
from eventctx.policies.policy import Budget, Policy
from eventctx.policies.trigger import due, make_budget
from eventctx.projections import request_view, transcript
from eventctx.projections.render import addresses, render
from eventctx.projections.request_view import ViewState
from eventctx.record import Body, Draft, make_body
from eventctx.settings import Settings
from eventctx.store import Receipt
from eventctx.turns import Turn, check_turn_id, scope_of

MAX_CONFLICTS = 8
"""How often a request is decided again because another process wrote meanwhile."""


class Context:
    """One session's context manager. ``Engine.session`` makes it.

    Safe to call from several tasks, threads and event loops. Messages go in as dicts of any
    dialect and come out equal; what is returned is the caller's own.
    """

    def __init__(
        self,
        live: LiveSession,
        policy: Policy,
        settings: Settings,
        current_span: CurrentSpan | None = None,
    ) -> None:
        self._live = live
        self.policy = policy
        self.settings = settings
        self._emitter = SessionEmitter(live, current_span)
        self._transcript: transcript.TranscriptState | None = None
        self._overflowed_at = -1

    @property
    def session_id(self) -> str:
        """The session's id, which is the stream's name."""
        return self._live.stream

    # -- the protocol ----------------------------------------------------------------------------

    async def add_message(self, message: dict[str, Any]) -> Receipt:
        """Append a message; returns when it is on disk, with a receipt to keep.

        Raises InvalidMessage (nothing is stored) and what the store raises.
        """
        draft = self._draft(events.MessageAdded(), (self._body(message),))
        record = (await self._live.append(draft))[-1]
        return Receipt(self.session_id, record.position, record.digest)

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """The messages to send now, within the budget, recorded before they are returned.

        Compacts when the threshold is reached. Raises ContextOverflow when what must stay exceeds
        the budget, unless the session sends the floor.
        """
        limit = await budgets.resolve(token_budget, provider, self.settings.max_tokens)
        budget = make_budget(limit, self.settings.compact_threshold, self.settings.target_usage)
        conflicts = 0
        while True:
            view, version = await self._live.settled()
            trigger = self._due(view, budget)
            decided = None
            if trigger is not None:
                request = Request(view, version, budget, trigger)
                decided = await decide(self._live, self.policy, request)
                view = decided.view
            overflow = self._overflow(view, budget, decided)
            floor_sent = overflow is not None
            if overflow is not None and self.settings.on_overflow == "raise":
                await self._record_overflow(version, budget, overflow)
                raise overflow
            prepared = request_view.prepared(view, budget=limit, floor_sent=floor_sent)
            drafts = (*(decided.drafts if decided else ()), self._draft(prepared))
            try:
                records = await self._live.append_exactly(version, *drafts)
                if records is not None:
                    self._emitter.remember(scope_of(self.session_id), records[-1].position)
                    return await self._rendered(view)
            except WrongExpectedVersion:
                # Nothing was decided for good: decide again on what the other process added.
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise

    async def get_messages(self) -> list[dict[str, Any]]:
        """The whole transcript, never compacted."""
        _, version = await self._live.synchronised()
        state = await self._lines(version)
        bodies = await self._live.store.bodies(
            self.session_id, [line.address for line in state.lines]
        )
        erased = encode_message({"role": "user", "content": "[erased]"})
        return decode_bodies([erased if body.data is None else body.data for body in bodies])

    async def set_messages(self, messages: Sequence[dict[str, Any]]) -> None:
        """Replace the transcript. Messages that an ordered diff recognises keep their numbers.

        Raises InvalidMessage (nothing changes), and WrongExpectedVersion when another process
        wrote what this one has not seen.
        """
        made = [self._body(message) for message in messages]
        appended = None
        while appended is None:
            _, version = await self._live.settled()
            state = await self._lines(version)
            stored = await self._live.store.bodies(
                self.session_id, [line.address for line in state.lines]
            )
            encoded = [body.data or b"" for body in made]
            matched = match_in_order([body.data for body in stored], encoded)
            following = state.next_number
            numbers: list[int] = []
            for place_ in matched:
                numbers.append(following if place_ is None else state.lines[place_].number)
                following += place_ is None
            fresh = [body for body, place_ in zip(made, matched, strict=True) if place_ is None]
            event = events.MessagesSet(order=runs_of_numbers(numbers))
            appended = await self._live.append_exactly(version, self._draft(event, fresh))

    async def clear(self) -> None:
        """Empty the transcript; history stays in the log.

        Raises WrongExpectedVersion when another process wrote what this one has not seen.
        """
        appended = None
        while appended is None:
            view, version = await self._live.settled()
            draft = self._draft(events.Cleared(messages=view.messages))
            appended = await self._live.append_exactly(version, draft)

    # -- the older guide's, and pins -------------------------------------------------------------

    async def get_token_count(self) -> int:
        """Estimated tokens of the view as it stands."""
        view, _ = await self._live.synchronised()
        return view.layout.tokens

    async def compact(self) -> CompactionResult:
        """Compact now, whatever the threshold. Where nothing can go, the result is 0 and skipped.

        Raises WrongExpectedVersion when another process wrote in between.
        """
        budget = make_budget(
            self.settings.max_tokens, self.settings.compact_threshold, self.settings.target_usage
        )
        while True:
            view, version = await self._live.settled()
            request = Request(view, version, budget, "manual", "caller")
            decided = await decide(self._live, self.policy, request)
            if decided.ended is None:
                decided = ended_without_plan(self._live, self.policy, request, "skipped")
            appended = await self._live.append_exactly(version, *decided.drafts)
            if appended is not None and decided.ended is not None:
                return CompactionResult.of(decided.ended)

    async def pin(self, *numbers: int) -> None:
        """Keep these messages in every view; one that a compaction left out comes back.

        Raises InvalidSetting for a number that is not in the transcript.
        """
        if not numbers:
            return
        view, version = await self._live.settled()
        state = await self._lines(version)
        lines = {line.number: line for line in state.lines}
        unknown = [number for number in numbers if type(number) is not int or number not in lines]
        if unknown:
            raise InvalidSetting(
                f"pin: expected message numbers of the transcript, found {unknown}; "
                f"`eventctx transcript {self.session_id}` lists them"
            )
        shown = {ref.number for ref in view.layout.refs}
        hidden = [await self._located(lines[number]) for number in numbers if number not in shown]
        drafts = [self._draft(events.Restored(messages=tuple(hidden)))] if hidden else []
        await self._live.append(*drafts, self._draft(events.Pinned(numbers=numbers)))

    async def unpin(self, *numbers: int) -> None:
        """Let these messages be compacted again. InvalidSetting for one that is not pinned."""
        if not numbers:
            return
        view, _ = await self._live.synchronised()
        unknown = [n for n in numbers if type(n) is not int or n not in view.pins]
        if unknown:
            raise InvalidSetting(
                f"unpin: expected some of {sorted(view.pins)}, which are pinned, found {unknown}"
            )
        await self._live.append(self._draft(events.Unpinned(numbers=numbers)))

    async def _located(self, line: transcript.Line) -> Located:
        """A message with what a view needs to show it again."""
        (body,) = await self._live.store.bodies(self.session_id, [line.address])
        return Located(line.number, line.position, line.index, body.digest, body.facts)

    # -- turns -----------------------------------------------------------------------------------

    def turn(self, turn_id: str | None = None, *, agent: str | None = None) -> Turn:
        """A turn: ``async with ctx.turn() as turn``. Without an id it gets a random one."""
        chosen = uuid.uuid4().hex if turn_id is None else check_turn_id(turn_id)
        return Turn(self._emitter, chosen, agent)

    async def emit(self, event: Event) -> None:
        """Append an activity event of the catalogue in its place, without waiting for the disk."""
        await self._emitter.emit(event, scope_of(self.session_id))

    async def close(self) -> None:
        """Wait for what is under way. The engine does this when it closes."""
        await self._live.settled()

    def _body(self, message: dict[str, Any]) -> Body:
        data = encode_message(message)
        return make_body(data, encode_facts(read_facts(message)), self._live.random)

    # -- deciding --------------------------------------------------------------------------------

    def _draft(self, event: Event, bodies: Sequence[Body] = ()) -> Draft:
        return self._live.draft(event, scope_of(self.session_id), bodies)

    def _due(self, view: ViewState, budget: Budget) -> Trigger | None:
        layout = view.layout
        tokens = layout.tokens
        if not self.settings.auto_compact and tokens <= budget.tokens:
            return None
        most = self.policy.max_messages
        conversation = 0
        if most is not None:
            conversation = sum(1 for ref in layout.refs if ref.facts.kind != "system")
        return due(tokens, conversation, budget, view.low_water, most)

    def _overflow(
        self, view: ViewState, budget: Budget, decided: Decided | None
    ) -> ContextOverflow | None:
        """The error that says by what a view exceeds the budget; None if it does not."""
        tokens = view.layout.tokens
        if tokens <= budget.tokens:
            return None
        parts = dict(decided.overflow) if decided is not None else {}
        made = "notices and synthetic results"
        parts[made] = tokens - sum(size for part, size in parts.items() if part != made)
        return ContextOverflow(budget.tokens, tokens, parts)

    async def _record_overflow(self, version: int, budget: Budget, error: ContextOverflow) -> None:
        """Leave a trace of a request that could not be prepared, once for every state."""
        if version == self._overflowed_at:
            return
        view, head = await self._live.settled()
        request = Request(view, head, budget, "budget")
        failed = ended_without_plan(self._live, self.policy, request, "failed", str(error))
        records = await self._live.append(*failed.drafts)
        self._overflowed_at = records[-1].position

    # -- reading ---------------------------------------------------------------------------------

    async def _rendered(self, view: ViewState) -> list[dict[str, Any]]:
        entries = view.layout.entries()
        wanted = addresses(entries)
        messages = render(entries, await self._live.texts(wanted))
        self._live.trim(wanted)
        return messages

    async def _lines(self, head: int) -> transcript.TranscriptState:
        """The transcript's addresses at ``head``, folded on from where the last call left off."""
        state = self._transcript
        if state is None or state.position > head:
            state = transcript.initial()
        if state.position < head:
            async for record in self._live.store.read(
                self.session_id, start=state.position + 1, stop=head, bodies=False
            ):
                state = transcript.evolve(state, record)
            self._transcript = state
        return state
