"""Command handlers of the transcript: add to it, set it, resume it from a host's copy, clear it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from eventctx.log import events
from eventctx.log.events import Event
from eventctx.log.record import Body, Draft, Record, make_body
from eventctx.messages.encoding import (
    decode_bodies,
    encode_plain,
    plain_message,
)
from eventctx.messages.facts import Facts, as_observation, decode_facts, encode_facts
from eventctx.messages.facts_reader import check_role, is_known_role, read_facts
from eventctx.messages.overlap import match_in_order, runs_of_numbers
from eventctx.messages.thinking import ThinkingRule
from eventctx.messages.tokens import Tokenizer, count_with_tokenizer
from eventctx.messages.tool_results import FIRST, LAST, Observing, observes
from eventctx.projections.transcript import TranscriptLine, TranscriptState
from eventctx.projections.view import planned
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series
from eventctx.session.aggregate import preview
from eventctx.session.open_session import OpenSession
from eventctx.session.reconcile import earlier_copy, reconcile
from eventctx.session.scope import Scope


def body_of(session: OpenSession, message: Any) -> Body:
    """A new body for ``message``, with its facts. Raises InvalidMessage."""
    return _body_and_facts(session, message, None)[0]


def _has_form(message: dict[str, Any]) -> bool:
    """Whether a message may have an observation's form, which few have, seen by its first text."""
    text = message.get("content")
    if type(text) is not str:
        return True
    return text != "" and (text[0] in FIRST or text[-1] in LAST)


def _body_and_facts(
    session: OpenSession, message: Any, count: Tokenizer | None
) -> tuple[Body, Facts]:
    message = plain_message(message)
    data = encode_plain(message)
    facts = read_facts(message, count=count)
    if session.tokenizer is not None:
        facts = count_with_tokenizer(facts, message, session.tokenizer)
    return make_body(data, encode_facts(facts), session.random), facts


class NewBody(NamedTuple):
    """A new body, and whether it is an observation."""

    body: Body
    observation: bool


class TranscriptMark:
    """A transcript at one moment: ``messages`` is the number of its messages.

    Of two marks of one transcript the later one tells whether messages were only added since.
    """

    __slots__ = ("_lines", "messages")

    def __init__(self, lines: Series[TranscriptLine]) -> None:
        self._lines = lines
        self.messages = len(lines)

    def continues(self, older: TranscriptMark) -> bool:
        """Whether nothing but additions came since ``older``. False also where that is unknown."""
        return self._lines.continues(older._lines)


class UnknownRole(UserWarning):
    """A message has a role that no known API has; it is stored all the same."""


class ParsedMessage(NamedTuple):
    """A message that is to be added, its new body, and its facts."""

    message: Any
    body: Body
    facts: Facts


class DraftedMessages(NamedTuple):
    """The drafts that add messages, and the view after them."""

    drafts: tuple[Draft, ...]
    view: ViewState


class Transcript:
    """The command handlers of one session's transcript: add, set, resume, clear."""

    def __init__(self, session: OpenSession, observations: Observing = "by_form") -> None:
        self._session = session
        self._observations = observations

    async def add(self, message: Any, observation: bool | None = None) -> tuple[Record, int]:
        """As ``Context.add_message``; returns the message's record and number."""
        made = self._read(message)
        view = await self._view() if self._needs_view(made, observation) else None
        draft = self._addition(made, view, observation)
        added = (await self._session.appends.deliver(draft)).message(draft)
        if made.facts.compacts:
            await self._note_compaction(added[1])
        return added

    async def add_all(self, messages: Sequence[Any]) -> list[tuple[Record, int]]:
        """As ``Context.add_messages``; returns each message's record and number."""
        if not messages:
            return []
        read = [self._read(message) for message in messages]
        view = await self._view() if any(map(self._needs_view, read)) else None
        drafts = self._drafts(view, read)
        added = (await self._session.appends.deliver(*drafts)).messages(drafts)
        for draft, (_, number) in zip(drafts, added, strict=True):
            if decode_facts(draft.bodies[0].facts).summarises:
                await self._note_compaction(number)
        return added

    async def _note_compaction(self, number: int) -> None:
        """Record that a message brought the provider's own summary; few sessions have one."""
        from eventctx.session.provider_edits import note_compaction

        await note_compaction(self._session, number)

    def additions(
        self, view: ViewState, messages: Sequence[Any], scope: Scope | None = None
    ) -> DraftedMessages:
        """Draft ``messages`` as the next ones after ``view``, in the present scope or another.

        Raises InvalidMessage.
        """
        drafts = self._drafts(view, [self._read(message) for message in messages], scope)
        return DraftedMessages(drafts, preview(view, self._session.stream, drafts))

    def _drafts(
        self, view: ViewState | None, messages: Sequence[ParsedMessage], scope: Scope | None = None
    ) -> tuple[Draft, ...]:
        """Draft ``messages`` after ``view``, which may be None where none of them needs one.

        Those before a message that needs the view are folded together.
        """
        drafts: list[Draft] = []
        folded = 0
        for made in messages:
            if view is None or not self._needs_view(made):
                drafts.append(self._addition(made, None, scope=scope))
                continue
            view = preview(view, self._session.stream, drafts[folded:])
            folded = len(drafts)
            drafts.append(self._addition(made, view, scope=scope))
        return tuple(drafts)

    def _read(self, message: Any) -> ParsedMessage:
        body, facts = _body_and_facts(self._session, message, self._session.vocabulary)
        if facts.kind == "other" and not is_known_role(facts.role):
            check_role(facts.role)
            warnings.warn(
                f"role: expected user, assistant, system or tool, found {facts.role!r}; the "
                "message is kept as it is, and counts as nobody's words",
                UnknownRole,
                stacklevel=2,
            )
        return ParsedMessage(message, body, facts)

    async def _view(self) -> ViewState:
        """The view, which tells what a message is by those before it."""
        view = self._session.aggregate.view_if_held
        return (await self._session.appends.settle())[0] if view is None else view

    def _addition(
        self,
        made: ParsedMessage,
        view: ViewState | None,
        observation: bool | None = None,
        scope: Scope | None = None,
    ) -> Draft:
        """Draft a message after ``view``, which may be None for one that needs no view.

        Of an observation the event says so, since the text alone cannot.
        """
        if observation is None and view is not None and self._may_observe(made):
            observation = self._observes(made.message, _last_facts(view))
        facts = as_observation(made.facts) if observation else made.facts
        if facts is not made.facts:
            body = msgspec.structs.replace(made.body, facts=encode_facts(facts))
            event = events.MessageAdded(origin="harness", observation=True)
        else:
            body = made.body
            event = events.MessageAdded(unbound=() if view is None else self._unbound(view, made))
        return self._session.drafts.make(event, (body,), scope=scope)

    def _needs_view(self, made: ParsedMessage, observation: bool | None = None) -> bool:
        """Whether the view before a message decides what its event says."""
        return bool(made.facts.results) or (observation is None and self._may_observe(made))

    def _may_observe(self, made: ParsedMessage) -> bool:
        """Whether the row before a person's message decides if that is an observation."""
        asked = self._observations
        if not made.facts.human or asked == "never":
            return False
        return asked == "after_actions" or _has_form(made.message)

    def _observes(self, message: dict[str, Any], before: Facts | None) -> bool:
        """Whether a message in role user is the observation of the action directly before it."""
        if before is None or not before.action:
            return False
        return self._observations == "after_actions" or observes(message, before.action)

    def _unbound(self, view: ViewState, made: ParsedMessage) -> tuple[tuple[int, int], ...]:
        """Runs of messages whose thinking a late result invalidates; none for any other result.

        Only the view tells whether a call of that id, which may be used twice, was abandoned.
        """
        if view.layout.abandoned.keys().isdisjoint(made.facts.results):
            return ()
        return stripped_by(self._session, view, events.MessageAdded(), (made.body,))

    async def messages(self) -> list[dict[str, Any]]:
        """The whole transcript, with all that other processes have written until now.

        It is held in memory for the next call. Who calls again pays for the look whether others
        wrote, and for the decoding.
        """
        version = await self._session.appends.catch_up()
        _, stored = await self._stored(version, hold=True)
        return decode_bodies(stored)

    async def mark(self) -> TranscriptMark:
        """As ``Context.transcript_mark``."""
        version = await self._session.appends.catch_up()
        return TranscriptMark((await self._session.lines.at(version)).lines)

    async def messages_after(self, mark: TranscriptMark) -> list[dict[str, Any]] | None:
        """As ``Context.get_messages_after``."""
        version = await self._session.appends.catch_up()
        state, stored = await self._stored(version, hold=True)
        if not state.lines.continues(mark._lines):
            return None
        return decode_bodies(stored[mark.messages :])

    async def timed_messages(self) -> list[tuple[dict[str, Any], int]]:
        """As ``messages``, each with the time of its record in UTC nanoseconds."""
        version = await self._session.appends.catch_up()
        state, stored = await self._stored(version, hold=True)
        times = (await self._session.lines.timed_at(version)).times
        rows = decode_bodies(stored)
        return [
            (row, times[line.address.position]) for row, line in zip(rows, state.lines, strict=True)
        ]

    async def _stored(
        self, version: int, *, hold: bool = False
    ) -> tuple[TranscriptState, list[bytes]]:
        """The transcript's lines at ``version``, and their stored bytes; see ``rows_at``."""
        view = self._session.aggregate.view_if_held
        found = await self._session.lines.rows_at(version, hold=hold, view=view)
        self._session.grown()
        return found

    def make_bodies(self, messages: Sequence[Any]) -> list[NewBody]:
        """The bodies of a list of messages, observations told from the message before each."""
        made: list[NewBody] = []
        before: Facts | None = None
        count = self._session.vocabulary
        for message in messages:
            body, facts = _body_and_facts(self._session, message, count)
            seen = self._may_observe(ParsedMessage(message, body, facts)) and self._observes(
                message, before
            )
            if seen:
                facts = as_observation(facts)
                body = msgspec.structs.replace(body, facts=encode_facts(facts))
            made.append(NewBody(body, seen))
            before = facts
        return made

    # -- replacing -------------------------------------------------------------------------------

    async def replace(self, messages: Sequence[Any]) -> None:
        """As ``Context.set_messages``."""
        made = self.make_bodies(messages)
        appended = None
        while appended is None:
            view, version = await self._session.appends.settle()
            state, stored = await self._stored(version)
            matched = match_in_order(stored, [one.body.data or b"" for one in made])
            draft = self.set_to(view, _numbered(state, zip(made, matched, strict=True)))
            appended = await self._session.appends.append_exactly(version, draft)

    async def resume(self, messages: Sequence[Any], may_be_behind: bool) -> bool:
        """As ``Context.resume_messages``."""
        made = self.make_bodies(messages)
        while True:
            view, version = await self._session.appends.settle()
            state, stored = await self._stored(version)
            # A host brings an erased message back as it was shown; it must match the erased one.
            known = decode_bodies(stored)
            found = earlier_copy(known, list(messages)) if may_be_behind else None
            found = found or reconcile(known, list(messages))
            if found.rows is None:
                event = events.SetIgnored(
                    messages=len(messages), missing_roles=found.missing_roles, ahead=found.ahead
                )
                draft = self._session.drafts.make(event)
            else:
                new = [None if given is None else made[given] for _, given in found.rows]
                places = [place_ for place_, _ in found.rows]
                draft = self.set_to(view, _numbered(state, zip(new, places, strict=True)))
            if await self._session.appends.append_exactly(version, draft) is not None:
                return found.rows is not None

    async def clear(self) -> None:
        """As ``Context.clear``."""
        appended = None
        while appended is None:
            view, version = await self._session.appends.settle()
            draft = self._session.drafts.make(events.Cleared(messages=view.messages))
            appended = await self._session.appends.append_exactly(version, draft)

    def set_to(self, view: ViewState, rows: Sequence[NewBody | int]) -> Draft:
        """Draft a set to ``rows``, each a new message or the number of a stored one."""
        following = view.next_number
        made = [one for one in rows if not isinstance(one, int)]
        fresh_numbers = iter(range(following, following + len(made)))
        numbers = [one if isinstance(one, int) else next(fresh_numbers) for one in rows]
        fresh = [one.body for one in made]
        seen = tuple([index for index, one in enumerate(made) if one.observation])
        event = events.MessagesSet(order=runs_of_numbers(numbers), harness=seen, observations=seen)
        stripped = stripped_by(self._session, view, event, fresh)
        # New messages come from a host, and their thinking is bound to the rows before them there,
        # so only stored messages lose it.
        newest = following - 1
        known = tuple([(a, min(b, newest)) for a, b in stripped if a <= newest])
        return self._session.drafts.make(msgspec.structs.replace(event, unbound=known), fresh)


def _numbered(
    state: TranscriptState, rows: Iterable[tuple[NewBody | None, int | None]]
) -> list[NewBody | int]:
    """Rows as new messages, and the numbers of those that have a place in the transcript."""
    found: list[NewBody | int] = []
    for made, at in rows:
        if at is not None:
            found.append(state.lines[at].number)
        elif made is not None:
            found.append(made)
    return found


def _last_facts(view: ViewState) -> Facts | None:
    """The facts of the conversation's last message; None if it is not in view."""
    last = view.layout.refs[-1] if len(view.layout.refs) else None
    return last.facts if last is not None and last.number == view.next_number - 1 else None


def stripped_by(
    session: OpenSession, view: ViewState, event: Event, bodies: Sequence[Body] = ()
) -> tuple[tuple[int, int], ...]:
    """Runs of messages whose signed thinking is bound to a prefix that ``event`` changes."""
    after = preview(view, session.stream, [session.drafts.make(event, bodies)])
    rule = ThinkingRule(session.thinking, view.calibration.model)
    return planned.refused_thinking(view.layout, after.layout, rule.generation)
