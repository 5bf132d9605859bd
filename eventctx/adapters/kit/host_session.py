"""A conversation that a host holds as a list of messages, as a session of ours.

The host's storage says what the conversation is (``add``, ``pop``, ``clear``). The call just before
the model is where a request is decided and recorded (``take``, ``prepare``). A host may store its
messages only after that call, and an answer only when its tools have ended, so what is new is added
as soon as it is seen, and recognised when the host stores it. Messages of a request are added in
the same append as its record, which saves a write to the disk. A list that the host cut or changed
for one request is sent as it is, and what it leaves out and adds is recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from eventctx.adapters.kit.host_list import (
    HostList,
    Identity,
    held_against,
    plain_identity,
    results_as_here,
)
from eventctx.adapters.kit.loops import writing_lock
from eventctx.errors import ContextOverflow
from eventctx.log.record import Record
from eventctx.messages.encoding import digest_of
from eventctx.messages.overlap import match_in_order
from eventctx.session.context import Context
from eventctx.session.transcript import TranscriptMark

Row = dict[str, Any]


class _Waiting(NamedTuple):
    """Messages that come with the next request; ``ahead`` of the host, which will store them."""

    rows: Sequence[Mapping[str, Any]]
    ahead: bool = False


_NONE: Final = _Waiting(())


class HostSession:
    """The session that a host's conversation is recorded in.

    ``identity`` recognises a message that the host gives back. ``turns`` takes the host's reports
    of turns, calls and tools. One task after the other uses it.
    """

    def __init__(self, context: Context, identity: Identity = plain_identity) -> None:
        self.context = context
        self.turns = context.following()
        """Records the turns, calls and tools that the host reports."""
        self._identity = identity
        self._transcript: list[Row] | None = None
        self._mark: TranscriptMark | None = None
        self._count = 0
        self._ahead: deque[tuple[Hashable, Any]] = deque()
        self._waiting = _NONE
        self._prepared: int | None = None
        self._lock = writing_lock(context)
        self._unobserve = context.on("context:request_prepared", self._note)

    def close(self) -> None:
        """Stop observing the context, which stays open."""
        self._unobserve()

    def _note(self, record: Record) -> None:
        self._prepared = record.position

    # -- the host's storage ----------------------------------------------------------------------

    async def messages(self) -> list[Row]:
        """The transcript, never compacted, as far as the host has stored it."""
        async with self._lock:
            await self._bring()
            rows = await self.context.get_messages()
            self._check_ahead(rows)
            return rows[: len(rows) - len(self._ahead)]

    async def add(
        self, messages: Sequence[Mapping[str, Any]], *, with_request: bool = False
    ) -> None:
        """Add what the host stores, without the messages that were added as soon as they were seen.

        Of those, what the host does not store is taken out. ``with_request``: the others are added
        when ``prepare`` is called next. Raises InvalidMessage, and what the store raises.
        """
        async with self._lock:
            known = 0
            while known < len(messages) and self.expects(messages[known]):
                self._ahead.popleft()
                known += 1
            if known < len(messages):
                await self._take_back()
                await self._add(messages[known:], with_request=with_request)

    def expects(self, message: Mapping[str, Any]) -> bool:
        """Whether this message, added when it was seen, is the next that the host will store.

        Ids that both have must be the same: they alone tell thinking without text.
        """
        if not self._ahead:
            return False
        identity, known = self._ahead[0]
        given = message.get("id")
        return identity == self._identity(message) and (None in (known, given) or known == given)

    async def answered(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Add the model's answer before its tools run, whose crash would take it along."""
        async with self._lock:
            await self._add(messages, ahead=True)

    async def pop(self) -> Row | None:
        """Take the last message out of the transcript, and return it; None if there is none."""
        async with self._lock:
            rows = await self._known()
            if not rows:
                return None
            self._ahead.clear()
            last = rows[-1]
            self._transcript = None
            await self.context.set_messages(rows[:-1])
            return last

    async def clear(self) -> None:
        """Empty the transcript; history stays in the log."""
        async with self._lock:
            await self._bring()
            self._ahead.clear()
            self._transcript = None
            await self.context.clear()

    async def mirror(
        self, messages: Sequence[Mapping[str, Any]], *, with_request: bool = False
    ) -> None:
        """Make the transcript this list, for a host whose list is its storage.

        Messages after the transcript are added, with the request where ``prepare`` is called next;
        any other difference is recorded as a ``context:messages_set``. Raises InvalidMessage, and
        what the store raises.
        """
        async with self._lock:
            rows = await self._known()
            messages = results_as_here(rows, messages, self._identity)
            found = held_against(rows, messages, self._identity)
            if found.whole:
                await self._add(found.new, with_request=with_request)
            else:
                self._transcript = None
                await self.context.set_messages(messages)

    # -- the call just before the model ----------------------------------------------------------

    async def held(self, messages: Sequence[Mapping[str, Any]]) -> HostList:
        """The difference of the host's list from the transcript, to which nothing is added.

        The last answer is taken out of the transcript if the list goes on without it: the host was
        interrupted before it stored that.
        """
        async with self._lock:
            rows = await self._known()
            found = held_against(rows, messages, self._identity)
            if not found.whole and rows and rows[-1].get("role") == "assistant":
                without = held_against(rows[:-1], messages, self._identity)
                if without.whole:
                    self._transcript = None
                    await self.context.set_messages(rows[:-1])
                    return without
            return found

    async def take(self, messages: Sequence[Mapping[str, Any]], *, adds: bool = True) -> bool:
        """Take the list that the host is about to send; whether it is the transcript, whole.

        ``adds``: messages after the last known one are added to the transcript, with the request
        that ``prepare`` records, since the host has not stored them yet. Raises InvalidMessage, and
        what the store raises.
        """
        async with self._lock:
            found = held_against(await self._known(), messages, self._identity)
            if not adds:
                return found.whole and not found.new
            await self._add(found.new, ahead=True, with_request=True)
            return found.whole

    async def prepare(
        self,
        *,
        instructions: str | None = None,
        tools: Sequence[Row] | None = None,
        model: str | None = None,
        thinking: Mapping[str, Any] | None = None,
        budget: int | None = None,
    ) -> list[Row]:
        """The messages to send instead of the host's, recorded as the present call's request.

        ``instructions`` are the system prompt of this request; the host sends them itself, so they
        are not among the messages. ``thinking`` is the parameter of an Anthropic request. Raises as
        ``get_messages_for_request``.
        """
        async with self._lock:
            await self.context.set_system_prompt(instructions)
            await self._check_waiting()
            with self._adding() as new:
                rows = await self.context.get_messages_for_request(
                    budget,
                    tools=tools,
                    model=model,
                    thinking=thinking,
                    call=self.turns,
                    adding=new,
                )
        ours = {"role": "system", "content": instructions}
        return rows[1:] if instructions is not None and rows and rows[0] == ours else rows

    async def sent(
        self,
        prepared: Sequence[Mapping[str, Any]],
        messages: Sequence[Mapping[str, Any]],
        *,
        exact: bool = False,
    ) -> None:
        """Record how the list that the host sent differs from the one ``prepare`` returned.

        ``exact``: a message that differs in any field was replaced, also where its identity is one.
        """
        if self._prepared is None:
            return
        identity: Identity = digest_of if exact else self._identity
        known = [identity(one) for one in prepared]
        found = match_in_order(known, [identity(one) for one in messages])
        additions: list[tuple[int, Row]] = []
        behind = 0
        for message, place in zip(messages, found, strict=True):
            if place is None:
                additions.append((behind, dict(message)))
            else:
                behind = place + 1
        there = set(found)
        missing = [dict(one) for at, one in enumerate(prepared) if at not in there]
        if additions or missing:
            await self.context.record_sent(self._prepared, len(messages), additions, missing)

    # -- the transcript --------------------------------------------------------------------------

    async def _known(self) -> list[Row]:
        """The transcript, with all that waited for a request.

        A copy of it is held as long as no other writer changes it. Another process may serve the
        next turn, another adapter the same session. An addition that was cancelled may have been
        made, or not.
        """
        mark = await self.context.transcript_mark()
        held = self._transcript
        if held is None or mark.messages != len(held) or not mark.continues(self._mark or mark):
            held = self._transcript = await self._read()
            self._check_ahead(held)
        self._mark, self._count = mark, mark.messages
        await self._bring()
        return held

    async def _read(self) -> list[Row]:
        """The transcript; where others only added to it, what they added is read alone."""
        held, mark = self._transcript, self._mark
        if held is not None and mark is not None:
            added = await self.context.get_messages_after(mark)
            if added is not None:
                return held[: mark.messages] + added
        return await self.context.get_messages()

    def _check_ahead(self, rows: Sequence[Row]) -> None:
        """Expect nothing more of the host if what it was to store no longer ends the transcript."""
        last = rows[len(rows) - len(self._ahead) :] if len(self._ahead) <= len(rows) else []
        if [self._identity(one) for one in last] != [identity for identity, _ in self._ahead]:
            self._ahead.clear()

    async def _add(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        ahead: bool = False,
        with_request: bool = False,
    ) -> None:
        await self._bring()
        self._waiting = _Waiting(list(messages), ahead)
        if not with_request:
            await self._bring()

    async def _bring(self) -> None:
        """Add what waits for a request, where something else is asked before it."""
        if self._waiting.rows:
            await self._check_waiting()
            with self._adding() as new:
                await self.context.add_messages(new)

    async def _check_waiting(self) -> None:
        """Leave out of the waiting messages what another adapter of the session added meanwhile."""
        before, rows = self._mark, self._waiting.rows
        if not rows or before is None:
            return
        mark = await self.context.transcript_mark()
        if mark.messages == self._count or not mark.continues(before):
            return
        added = (await self.context.get_messages_after(before) or [])[
            self._count - before.messages :
        ]
        known = 0
        for one, other in zip(added, rows, strict=False):
            if one != other and self._identity(one) != self._identity(other):
                break
            known += 1
        self._transcript = None
        self._waiting = self._waiting._replace(rows=rows[known:])

    @contextmanager
    def _adding(self) -> Iterator[Sequence[Mapping[str, Any]]]:
        """The waiting messages, for a block that adds them; after a failure the host has them."""
        new, self._waiting = self._waiting, _NONE
        try:
            yield new.rows
        except ContextOverflow:
            self._added(new)  # a request that overflows has brought its messages
            raise
        self._added(new)

    def _added(self, new: _Waiting) -> None:
        self._count += len(new.rows)
        if self._transcript is not None:
            self._transcript += [dict(one) for one in new.rows]
        if new.ahead:
            self._ahead += [(self._identity(one), one.get("id")) for one in new.rows]

    async def _take_back(self) -> None:
        """Take out what the host did not store, such as an answer that a guardrail refused."""
        if self._ahead:
            rows = (await self._known())[: -len(self._ahead)]
            self._ahead.clear()
            self._transcript = None
            await self.context.set_messages(rows)
