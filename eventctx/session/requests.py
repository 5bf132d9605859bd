"""The request handler: prepares requests and compacts. It decides, appends, then returns a view.

Invariant: a request, and the end of a compaction made for it, are appended together and only after
the version for which they were decided. When the session changed in between, the decision is made
again on the new view. So every request shows the view that the log gives at its position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from hashlib import sha256
from typing import Any

import msgspec

from eventctx.errors import ContextOverflow, WrongExpectedVersion
from eventctx.log.events import RequestContent
from eventctx.log.record import Draft, make_body
from eventctx.log.turn_recorder import ModelRequest, TurnSpan, beginning_of
from eventctx.messages import calibration
from eventctx.messages.encoding import pause_collector
from eventctx.messages.thinking import (
    Generation,
    ThinkingRule,
    ThinkingSetting,
    reads_thinking_of,
)
from eventctx.messages.tokens import Estimator
from eventctx.policies.advisers import Intercept
from eventctx.policies.policy import Budget, Policy
from eventctx.policies.trigger import Frame, make_budget
from eventctx.projections.figures import little_room
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.render import places
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.sendable.sending import sent_rows
from eventctx.session.activity import own
from eventctx.session.aggregate import preview
from eventctx.session.compaction_run import CompactionCause, CompactionRun, Decided
from eventctx.session.compactions import RequestCompactions
from eventctx.session.open_session import OpenSession
from eventctx.session.questions import PolicyQuestions
from eventctx.session.restore import foreign_summaries, give_up_foreign
from eventctx.session.result import (
    CompactionResult,
    floor_over,
    insertions_gone,
    named_parts,
    refusal,
)
from eventctx.session.settings import Settings
from eventctx.session.transcript import DraftedMessages

_log = logging.getLogger("eventctx")

MAX_CONFLICTS = 8
"""Conflicts with other processes after which a request raises instead of deciding again."""


class RequestOptions(msgspec.Struct, frozen=True):
    """A request to prepare: its budget in tokens, its model, and the tools sent with it as JSON.

    ``reserve`` is in tokens, for all else that is sent with the messages. ``thinking`` is the
    setting for this request, None for the session's; ``generation`` what the request says itself.
    ``by_default`` is the model that the provider calls where no model is named.
    """

    limit: int
    reserve: int = 0
    model: str | None = None
    tools: bytes | None = None
    thinking: ThinkingSetting | None = None
    generation: Generation | None = None
    by_default: str | None = None

    @property
    def tools_digest(self) -> str | None:
        """SHA-256 of the tools as they are sent, in hex; None without tools."""
        return None if self.tools is None else sha256(self.tools).hexdigest()

    def reserve_under(self, estimator: Estimator) -> int:
        """Tokens of all that is sent with the messages, as ``estimator`` counts the tools."""
        if self.tools is None:
            return self.reserve
        return self.reserve + estimator.tokens_of_json(len(self.tools.decode()))


Adding = Callable[[ViewState], DraftedMessages]
"""Drafts the messages that come with a request, after the view. Raises InvalidMessage."""


class PreparedRequest(msgspec.Struct, frozen=True):
    """A recorded request: its position, its view, and the position of a compaction made for it."""

    position: int
    view: ViewState
    compacted: int | None


class RequestHandler:
    """Prepares the requests of one session."""

    def __init__(
        self,
        session: OpenSession,
        policy: Policy,
        settings: Settings,
        questions: PolicyQuestions,
        intercept: Intercept | None,
    ) -> None:
        self._session = session
        self._policy = policy
        self._settings = settings
        self._questions = questions
        self._intercept = intercept
        self._compactions = RequestCompactions(session, policy, settings, questions, intercept)

    def budget(self, limit: int) -> Budget:
        """The session's thresholds for a request of ``limit`` tokens."""
        return make_budget(limit, self._settings.compact_threshold, self._settings.target_usage)

    async def prepare(
        self,
        options: RequestOptions,
        call: TurnSpan[ModelRequest] | None = None,
        adding: Adding | None = None,
    ) -> PreparedRequest:
        """Record the next request, compacting where it is due. Raises ContextOverflow.

        ``call`` will send it: its beginning is recorded in the same append. So are the messages
        of ``adding``, unless there is more to decide than the request.
        """
        budget = self.budget(options.limit)
        underway: CompactionRun | None = None
        conflicts = 0
        try:
            while True:
                known, version = await self._settled(options.model or options.by_default)
                added = DraftedMessages((), known) if adding is None else adding(known)
                frame, unbound = self._frame(options, added.view, version, budget)
                decides = self._compactions.concern(frame) or _overflow(frame, None) is not None
                if added.drafts and decides:
                    # A compaction, or the record of an overflow, is about messages in the log.
                    await self._session.appends.append(*added.drafts)
                    adding = None
                    continue
                self._tell_little_room(frame)
                underway = underway or await self._compactions.begun(frame)
                decided = None
                if underway is not None:
                    underway, decided, again = await self._compactions.step(underway, frame)
                    if again:
                        continue
                overflow = _overflow(frame, decided)
                if overflow is not None and self._settings.on_overflow == "raise":
                    await self._record_overflow(underway, frame, overflow)
                    underway = None
                    raise overflow
                try:
                    # The log counts by another family's rates only after the request, so a view
                    # that was counted anew for it is folded again from the records.
                    counted_anew = frame.view.estimator != added.view.estimator
                    before = added.drafts if decided is None else decided.drafts
                    done = await self._append(
                        frame, options, decided, before, counted_anew, call, unbound
                    )
                except WrongExpectedVersion:
                    # Nothing was appended: decide again, on the other process's records too.
                    conflicts += 1
                    if conflicts == MAX_CONFLICTS:
                        raise
                else:
                    if done is not None:
                        underway = None
                        return done
        except BaseException as error:
            await self._compactions.close(underway, budget, error)
            raise

    async def _settled(self, model: str | None) -> tuple[ViewState, int]:
        """The view and its position, without a provider's summary that ``model`` cannot read."""
        while True:
            known, version = await self._session.appends.settle()
            if model is None or not foreign_summaries(known, model):
                return known, version
            await give_up_foreign(self._session, model)

    def _frame(
        self, options: RequestOptions, added: ViewState, version: int, budget: Budget
    ) -> tuple[Frame, tuple[tuple[int, int], ...]]:
        """The frame to decide on, and runs of messages whose thinking its model cannot read."""
        thinking = self._thinking(options, added)
        unbound = _unreadable(options, added, thinking)
        view = request_view.without_thinking_of(added, unbound)
        view = request_view.with_model(view, options.model)
        reserve = options.reserve_under(view.estimator)
        scale = calibration.scale(view.calibration, reserve)
        return judge(Frame(view, version, budget, scale, thinking), reserve), unbound

    def _tell_little_room(self, frame: Frame) -> None:
        """Say, once for each budget, that system messages and tools leave little of it."""
        memory, budget = self._session.memory, frame.budget.tokens
        if memory.judged_budget == budget:
            return
        memory.judged_budget = budget
        found = little_room(budget, frame.view.layout, frame.scale)
        if found is not None:
            _log.warning("session %s: %s", self._session.stream, found.sentence)

    async def rows(self, prepared: PreparedRequest) -> list[dict[str, Any]]:
        """The messages of a prepared request: plain dicts and lists, decoded for this caller."""
        entries = prepared.view.layout.entries()
        wanted = places(entries)
        bodies = self._session.bodies
        texts = await bodies.texts(wanted)
        if len(bodies) > 2 * len(wanted) + 64:
            bodies.keep_only(wanted)
        self._session.grown()
        with pause_collector(len(entries)):
            return sent_rows(entries, texts)

    async def compact(
        self,
        policy: Policy,
        cause: CompactionCause,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> CompactionResult:
        """Compact now, whatever the threshold, for a budget of ``limit`` or the last request's.

        Raises ContextOverflow for a ``limit`` below what must stay, and CompactionRefused for one
        that leaves too little to be of use (``result.refusal``); neither with ``force``. (Without a
        limit a compaction below the budget of the last request is still worth having.)
        """
        checked_limit = None if force else limit
        underway = CompactionRun(self._session, policy, cause, self._questions, dry_run=dry_run)
        budget = self.budget(self._settings.limit)
        try:
            while True:
                view, version = await self._session.appends.settle()
                budget = self.budget(self._last_limit(view) if limit is None else limit)
                reserve = self._settings.reserve_tokens
                scale = calibration.scale(view.calibration, reserve)
                thinking = ThinkingRule(self._settings.thinking, view.calibration.model)
                frame = judge(Frame(view, version, budget, scale, thinking), reserve)
                overflow = None if checked_limit is None else floor_over(frame)
                if overflow is not None:
                    raise overflow
                intercept = None if dry_run else self._intercept
                decided = await underway.step(frame, intercept)
                if not isinstance(decided, Decided):
                    await underway.answer(decided, frame.view)
                    continue
                if decided.ended is None:
                    continue
                gone = insertions_gone(frame.view, decided.view)
                if checked_limit is not None and decided.ended.outcome == "applied":
                    too_little = _overflow(frame, decided) or refusal(frame, decided.view, gone)
                    if too_little is not None:
                        raise too_little
                if dry_run:
                    return CompactionResult.of(decided.ended, None, gone)
                appended = await self._session.appends.append_exactly(version, *decided.drafts)
                if appended is not None:
                    return CompactionResult.of(decided.ended, appended[-1].position, gone)
        except BaseException as error:
            await self._compactions.close(underway, budget, error)
            raise

    def _last_limit(self, view: ViewState) -> int:
        """The budget of the last request in tokens; the settings' limit where there was none."""
        last = view.calibration.requests[-1:]
        limit = last[0].budget if last else None
        return self._settings.limit if limit is None else limit

    def _thinking(self, options: RequestOptions, view: ViewState) -> ThinkingRule:
        """The rule for the model that the request is for."""
        setting = options.thinking or self._settings.thinking
        model = options.model or view.calibration.model or options.by_default
        return ThinkingRule(setting, model, options.generation)

    async def _append(
        self,
        frame: Frame,
        options: RequestOptions,
        decided: Decided | None,
        before: Sequence[Draft],
        counted_anew: bool,
        call: TurnSpan[ModelRequest] | None,
        unbound: tuple[tuple[int, int], ...],
    ) -> PreparedRequest | None:
        """Append ``before`` and the request in one step; None if the view moved on meanwhile.

        ``before`` are the records of the compaction, or of messages that come with the request.
        """
        after = frame.view if decided is None else decided.view
        event = request_view.prepare_request(
            after,
            scale=frame.scale,
            budget=options.limit,
            model=options.model,
            tools_digest=options.tools_digest,
            floor_sent=frame.tokens_of(after) > options.limit,
            unbound=unbound,
        )
        drafts = [*self._tools(after, options), self._session.drafts.make(event)]
        at = frame.version + 1 + len(before)
        position = at + len(drafts) - 1
        if call is not None and (call.began or call.beginning):
            call = None  # another request, prepared at the same time, is the one that it sends
        if call is not None:
            call.of.prepared = position
            scope = self._session.drafts.scope.at(call.ids)
            own(call)
            drafts.append(self._session.drafts.make(beginning_of(call.of), scope=scope))
        folded = None
        if not counted_anew:
            folded = preview(after, self._session.stream, drafts, at)
            if folded.estimator != after.estimator:
                folded = None  # the call's model counts otherwise: not the view that is requested
        with nullcontext() if call is None else call.beginning_on_disk():
            enter = None if call is None else call.begun
            records = await self._session.appends.append_exactly(
                frame.version, *before, *drafts, after=folded, then=enter
            )
        if records is None:
            return None
        self._session.note_request(position, event, records[-1].time)
        ended = None if decided is None else decided.ended
        applied = ended is not None and ended.outcome == "applied"
        return PreparedRequest(position, after, at - 1 if applied else None)

    def _tools(self, view: ViewState, options: RequestOptions) -> list[Draft]:
        """The record of the tool definitions, for the first request that is sent with them."""
        digest = options.tools_digest
        if options.tools is None or digest is None or digest in view.tools:
            return []
        event = RequestContent(kind="tools", digest=digest)
        body = make_body(options.tools, b"", self._session.random)
        return [self._session.drafts.make(event, (body,))]

    # -- overflow and errors ---------------------------------------------------------------------

    async def _record_overflow(
        self, underway: CompactionRun | None, frame: Frame, error: ContextOverflow
    ) -> None:
        """Record that a request could not be prepared, once for every state of the session."""
        view, version = await self._session.appends.settle()
        if underway is None:
            underway = CompactionRun(
                self._session, self._policy, CompactionCause("budget"), self._questions
            )
        if version == self._session.memory.overflowed_at and not underway.is_open:
            return
        frame = frame._replace(view=view, version=version)
        drafts = underway.abandoned(frame, "failed", str(error))
        records = await self._session.appends.append(*drafts)
        self._session.memory.overflowed_at = records[-1].position


def _unreadable(
    options: RequestOptions, view: ViewState, thinking: ThinkingRule
) -> tuple[tuple[int, int], ...]:
    """Runs of messages whose thinking another model made, which the one called cannot read."""
    before = view.calibration.model
    if options.model in (None, before) or thinking.setting == "keep":
        return ()
    if reads_thinking_of(options.model, before):
        return ()
    return planned.foreign_thinking(view.layout, thinking.generation)


def judge(frame: Frame, reserve: int) -> Frame:
    """The frame of a decision, unless what usage taught leaves no room for the floor.

    A request that is not sent gets no report, so a wrong report would stop all later ones. Then
    the estimator judges alone, with the caller's ``reserve``: what was learnt decides how much is
    compacted, and never that nothing may be sent.
    """
    alone = frame._replace(scale=calibration.Scale(1.0, reserve))
    fits = frame.tokens_of(frame.view) <= frame.budget.tokens or floor_over(frame) is None
    return frame if fits or floor_over(alone) is not None else alone


def _overflow(frame: Frame, decided: Decided | None) -> ContextOverflow | None:
    """The error for a view that exceeds the budget, with its parts; None if it does not."""
    tokens = frame.tokens_of(frame.view if decided is None else decided.view)
    if tokens <= frame.budget.tokens:
        return None
    counts = {} if decided is None else decided.overflow
    return ContextOverflow(frame.budget.tokens, tokens, named_parts(frame, tokens, counts))
