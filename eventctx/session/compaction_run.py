"""The run of one compaction: ask, decide, fall back where that fails, and make its two records.

``step`` is called with the present view until it returns a decision, and again when the view
changed before the decision was appended. A compaction that needs no model is decided at once, and
the request handler appends its two records together. A compaction that calls a model has its
``context:pre_compact`` on disk before the call (``is_open``). When the policy or a model fails,
the fallback policy decides. What a model answered is used only while all that it was asked about
is in view as it was.

Invariant: a ``context:pre_compact`` on disk gets exactly one ``context:post_compact``. It comes
from ``step``; after an error or a cancellation from ``abandoned``; after a crash from the next
process that opens the session (``repository.open_session``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import NamedTuple

import msgspec

from eventctx.errors import EventctxError, StoreError
from eventctx.log import events
from eventctx.log.events import Trigger
from eventctx.log.ids import new_span_id
from eventctx.log.record import Draft
from eventctx.log.store import Address
from eventctx.log.turn_recorder import fit_for_log
from eventctx.policies import advisers
from eventctx.policies.advisers import NO_OBJECTION, CompactionAsked, Intercept, Verdict
from eventctx.policies.deciding import (
    Bodies,
    Deciding,
    Decision,
    DecisionIO,
    NoAnswer,
    Reply,
    Situation,
)
from eventctx.policies.named import recorded_settings
from eventctx.policies.planner import Completed, visible_of
from eventctx.policies.policy import AskTexts, Budget, Policy
from eventctx.policies.trigger import Frame
from eventctx.projections.view import state as view_state
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import preview
from eventctx.session.open_session import OpenSession
from eventctx.session.questions import AskedAbout, ModelAsk, PolicyQuestions, note_asked
from eventctx.session.scope import Scope
from eventctx.session.transcript import body_of

_log = logging.getLogger("eventctx")


class CompactionCause(NamedTuple):
    """The cause of a compaction and its requester; ``hint`` describes in words what to keep."""

    trigger: Trigger
    requested_by: str | None = None
    reason: str | None = None
    hint: str | None = None


class Decided(NamedTuple):
    """A decision: the drafts still to append, the event that ends the compaction, the view after.

    ``ended`` is None, and there are no drafts, where nothing can change and no beginning is on
    disk. ``overflow`` has the counted tokens of each part of a floor that exceeds the budget.
    """

    drafts: tuple[Draft, ...]
    ended: events.PostCompact | None
    view: ViewState
    overflow: dict[str, int]


class CompactionRun:
    """One compaction under way. ``step`` may be called again when the view has changed."""

    def __init__(
        self,
        session: OpenSession,
        policy: Policy,
        cause: CompactionCause,
        questions: PolicyQuestions,
        *,
        dry_run: bool = False,
        background: bool = False,
    ) -> None:
        self._session = session
        self._policy = policy
        self._cause = cause
        self._questions = questions
        self._dry_run = dry_run
        self.background = background
        self._started = session.stopwatch()
        self._rests_since = 0
        self._asked: list[AskedAbout] = []
        self._task: asyncio.Task[None] | None = None
        self._scope = self._new_span()
        self._began: events.PreCompact | None = None
        self._verdict: Verdict | None = None
        self._left_out = 0
        self._deciding = Deciding(
            policy, cause.trigger, cause.hint, recall=session.memory.recallable
        )
        self.is_open = False

    def _new_span(self) -> Scope:
        around = self._session.drafts.scope
        return msgspec.structs.replace(
            around, span_id=new_span_id(self._session.random), parent_span_id=around.span_id
        )

    async def step(self, frame: Frame, intercept: Intercept | None = None) -> Decided | ModelAsk:
        """Decide how to compact a view, or return the question to ``answer`` first.

        Raises what the store raises.
        """
        if self._is_closed:
            # Another process closed it as abandoned. This run continues as a new compaction.
            self.is_open = False
            self._scope = self._new_span()
        self._started += self._session.stopwatch() - self._rests_since if self._rests_since else 0
        self._rests_since = 0
        if self._began is None or not self.is_open:
            self._began = await self._beginning(frame, intercept)
        outdated = await self._outdated(frame.view)
        if outdated is not None and self.background:
            return self._ended_without(frame, "stale", outdated)
        if outdated is not None:
            self._asked.clear()
            self._deciding.answers.clear()  # so that it asks anew
        view, goal = frame.view, frame.goal
        # While the interceptors ran the view may have grown over the budget; then no veto holds.
        if self._vetoed() and view.layout.tokens <= goal.tokens:
            return self._ended_without(frame, "skipped", self._began.veto)
        decision = await self._next_in(frame, self._began)
        if not isinstance(decision, Decision):
            return decision
        if self._outgrown(frame, decision):
            return self._ended_without(frame, "stale", "the view has grown too much meanwhile")
        if decision.plan is None:
            if self.is_open or self._cause.trigger in ("threshold", "manual"):
                return self._ended_without(frame, "skipped", self._deciding.error)
            if self._deciding.fallback is not None:  # nothing changes, but the policy failed
                ended = self._ended_without(frame, "skipped", self._deciding.error)
                return ended._replace(overflow=decision.overflow)
            return Decided((), None, view, decision.overflow)
        return self._make_end(frame, decision.after, decision.plan, decision.overflow)

    async def _next_in(self, frame: Frame, began: events.PreCompact) -> Decision | ModelAsk:
        """The decision, or the question for a model: by its answer the view may be another one."""
        visible = visible_of(frame.view, frozenset(began.pins), frame.thinking)
        scene = Situation(frame.view, visible, frame.goal, self._aim(frame), frame.thinking)
        io = DecisionIO(
            partial(body_of, self._session), self._session.random, partial(self._after, frame)
        )
        steps = self._deciding.steps(scene, io)
        try:
            question = next(steps)
            while True:
                if isinstance(question, Bodies):
                    question = steps.send(await self._bodies(question))
                elif isinstance(question, AskTexts):
                    question = steps.send(await self._read(question, frame))
                else:
                    return question
        except StopIteration as end:
            decision: Decision = end.value
            return decision

    def _aim(self, frame: Frame) -> Budget:
        """The budget, with the size that this compaction is to reach."""
        goal = frame.goal
        if self._cause.trigger != "manual":
            return goal
        # It may be requested below the threshold, so the target is a share of the view itself.
        share = frame.view.layout.tokens * goal.target // goal.tokens
        return msgspec.structs.replace(goal, target=max(1, min(goal.target, share)))

    @property
    def span_id(self) -> str | None:
        """The span id of its records."""
        return self._scope.span_id

    def abandoned(self, frame: Frame, outcome: events.Outcome, error: str) -> tuple[Draft, ...]:
        """Drafts of an end without a plan, and of the beginning if that is not on disk."""
        self._began = self._began or self._describe(frame, NO_OBJECTION)
        ended = self._post(frame, frame.view, None)
        ended = msgspec.structs.replace(ended, outcome=outcome, error=fit_for_log(error))
        return (*self._opening(), self._session.drafts.make(ended, scope=self._scope))

    # -- the beginning ---------------------------------------------------------------------------

    async def _beginning(self, frame: Frame, intercept: Intercept | None) -> events.PreCompact:
        if self._verdict is None:
            self._verdict = NO_OBJECTION
            if intercept is not None:
                request = CompactionAsked(
                    self._session.stream,
                    self._describe(frame, NO_OBJECTION),
                    tuple([ref.number for ref in frame.view.layout.in_play()]),
                    self._scope.turn_id,
                    self._scope.span_id,
                    self._scope.parent_span_id,
                    self._scope.iteration,
                )
                self._verdict = self._heard(await intercept(request), frame)
            self._deciding.texts = self._verdict.texts
        return self._describe(frame, self._verdict)

    def _heard(self, verdict: Verdict, frame: Frame) -> Verdict:
        """The verdict with as many of its texts as there is room for."""
        if not verdict.texts:
            return verdict
        most = self._aim(frame)
        texts = advisers.choose_texts(verdict.texts, most, frame.view.estimator)
        self._left_out = len(verdict.texts) - len(texts)
        if self._left_out:
            _log.warning(
                "session %s: %d of the %d texts to keep in view are left out: with their frame "
                "they may have %d tokens, a tenth of what the view is compacted to",
                self._session.stream,
                self._left_out,
                len(verdict.texts),
                most.target // advisers.SHARE,
            )
        return msgspec.structs.replace(verdict, texts=texts)

    def _describe(self, frame: Frame, verdict: Verdict) -> events.PreCompact:
        cause, policy = self._cause, self._policy
        return events.PreCompact(
            trigger=cause.trigger,
            strategy=policy.name,
            strategy_version=policy.version,
            tokens=frame.tokens_of(frame.view),
            messages=_messages(frame.view),
            budget=frame.budget.tokens,
            threshold=frame.budget.threshold,
            requested_by=cause.requested_by,
            settings=recorded_settings(policy),
            reason=cause.reason,
            hint=0 if cause.hint else None,
            pins=verdict.pins,
            veto=verdict.veto,
            texts=len(verdict.texts),
            texts_left_out=self._left_out,
            background=self.background,
        )

    @property
    def _is_closed(self) -> bool:
        """Whether another process has written its end."""
        return self.is_open and self._scope.span_id not in self._session.aggregate.open_compactions

    def _vetoed(self) -> bool:
        began = self._began
        return began is not None and began.veto is not None and began.trigger != "budget"

    def _opening(self) -> tuple[Draft, ...]:
        """The draft of the beginning, if it is not on disk yet."""
        if self.is_open or self._began is None:
            return ()
        texts = [self._cause.hint] if self._cause.hint else []
        texts += self._deciding.texts
        bodies = [body_of(self._session, {"role": "user", "content": text}) for text in texts]
        return (self._session.drafts.make(self._began, bodies, self._scope),)

    # -- questions -------------------------------------------------------------------------------

    async def _read(self, ask: AskTexts, frame: Frame) -> Reply:
        """The answer to a question that the log alone answers: no model is called."""
        try:
            return await self._questions.texts(ask, frame.view, frame.version)
        except StoreError:
            raise
        except EventctxError as error:
            return error

    async def _bodies(self, question: Bodies) -> dict[int, bytes | None]:
        addresses = [Address(ref.position, ref.index) for ref in question.refs]
        texts = await self._session.bodies.texts(addresses)
        return {ref.number: texts[ref.position, ref.index] for ref in question.refs}

    async def answer(self, ask: ModelAsk, view: ViewState) -> None:
        """Have a question about a view answered; its failure is an answer, too.

        Raises what the store raises.
        """
        if self._dry_run:
            self._deciding.answers[ask.key] = await self._questions.placeholder(ask, view)
            return
        if not self.is_open:
            opening = self._opening()
            # Set before the append: after a cancellation the beginning may be on disk all the same.
            self.is_open = True
            try:
                await self._session.appends.append(*opening)
            except EventctxError:
                self.is_open = False
                raise
        try:
            asked = await note_asked(self._session, ask, view)
            self._deciding.answers[ask.key] = await self._questions.answer(
                ask, view, self._scope, self._cause.hint
            )
            self._asked.append(asked)
        except StoreError:
            raise
        except Exception as error:
            # A question is the policy's own data, and may be wrong in any way.
            self._deciding.fall_back(error)
        self._rests_since = self._session.stopwatch()

    async def _outdated(self, view: ViewState) -> str | None:
        """Why the answers hold no longer; None if they do.

        An instruction that was taken back meanwhile is no longer in them.
        """
        for place, asked in enumerate(self._asked):
            now = await note_asked(self._session, asked.ask, view)
            if now.erased > asked.erased:
                return "a message that the model had read was erased meanwhile"
            if now.seen != asked.seen:
                if self.background:
                    return "the messages that the model had read left the view or changed meanwhile"
            elif now.withdrawn != asked.withdrawn:
                ask, answers = asked.ask, self._deciding.answers
                answers[ask.key] = await self._questions.as_demanded(ask, answers[ask.key], view)
                self._asked[place] = asked._replace(withdrawn=now.withdrawn)
        return None

    def _outgrown(self, frame: Frame, decision: Decision) -> bool:
        """Whether so much was added since the question that the plan has to cut what it would not.

        A model that is asked about all of the view finds more to leave out. Below the budget the
        plan will do: a policy that frees too little would be asked with every request.
        """
        view = frame.view
        if view.layout.tokens <= frame.goal.tokens:
            return False
        if not self.background or not self._asked or self._deciding.fallback is not None:
            return False
        cut = decision.proposal.dispositions.values()
        grown = self._asked[-1].next_number < view.next_number
        return grown and any(reason == "budget" for _, reason in cut)

    # -- in the background -----------------------------------------------------------------------

    def begin_answer(self, ask: ModelAsk, view: ViewState) -> None:
        """As ``answer``, in a task of this event loop."""
        self._task = asyncio.get_running_loop().create_task(self.answer(ask, view))
        # Its error is told by the next request; where none follows, asyncio need not tell it.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def has_asked(self) -> bool:
        """Whether a question was answered."""
        return bool(self._asked)

    @property
    def is_answered(self) -> bool:
        """Whether the task is at its end: with an answer, with none, or with ``failure``."""
        return self._task is None or self._task.done()

    @property
    def failure(self) -> BaseException | None:
        """The store's error, or the cancellation, that ended the task."""
        if self._task is None or not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    def failed(self, frame: Frame) -> Decided | None:
        """The end without a plan of a compaction whose model gave no answer; None if it did."""
        if self._deciding.fallback is None:
            return None
        if self._is_closed:
            return Decided((), None, frame.view, {})
        return self._ended_without(frame, "failed", self._deciding.error)

    async def wait(self, seconds: float) -> None:
        """Wait for the answer. After that time the fallback policy decides without it."""
        task = self._task
        if task is None or task.done():
            return
        if task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task], timeout=seconds)
        if not task.done():
            await self.cancel_answer()
            self._deciding.fall_back(NoAnswer(f"no answer in the {seconds:g} s of wait="))

    async def cancel_answer(self) -> None:
        """Cancel the task, and wait for its end where that is in this event loop."""
        task, self._task = self._task, None
        if task is None or task.done():
            return
        own = task.get_loop()
        if own is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait([task])
        elif not own.is_closed():
            with contextlib.suppress(RuntimeError):  # closed meanwhile, and its tasks with it
                own.call_soon_threadsafe(task.cancel)

    # -- the end ---------------------------------------------------------------------------------

    def _after(self, frame: Frame, made: Completed) -> ViewState:
        """The view under a plan, folded from the record that will hold it."""
        ended = self._post(frame, frame.view, made)
        draft = self._session.drafts.make(ended, made.bodies, self._scope)
        at = frame.version + 1 + (0 if self.is_open else 1)
        return preview(frame.view, self._session.stream, [draft], at)

    def _make_end(
        self, frame: Frame, after: ViewState, made: Completed, overflow: dict[str, int]
    ) -> Decided:
        # The counts after are known only once the plan is applied.
        ended = self._post(frame, after, made)
        draft = self._session.drafts.make(ended, made.bodies, self._scope)
        return Decided((*self._opening(), draft), ended, after, overflow)

    def _ended_without(self, frame: Frame, outcome: events.Outcome, error: str | None) -> Decided:
        ended = self._post(frame, frame.view, None)
        fallback = ended.fallback if outcome == "skipped" else None  # else none has decided
        ended = msgspec.structs.replace(ended, outcome=outcome, error=error, fallback=fallback)
        draft = self._session.drafts.make(ended, scope=self._scope)
        counts = outcome == "skipped" and self._cause.trigger != "manual"
        after = view_state.after_compaction(frame.view) if counts else frame.view
        return Decided((*self._opening(), draft), ended, after, {})

    def _post(self, frame: Frame, after: ViewState, made: Completed | None) -> events.PostCompact:
        cause, policy = self._cause, self._policy
        return events.PostCompact(
            outcome="skipped" if made is None else "applied",
            trigger=cause.trigger,
            strategy=policy.name,
            strategy_version=policy.version,
            tokens_before=frame.tokens_of(frame.view),
            tokens_after=frame.tokens_of(after),
            messages_before=_messages(frame.view),
            messages_after=_messages(after),
            estimator=frame.view.estimator.name,
            factor=frame.scale.factor,
            budget=frame.budget.tokens,
            threshold=frame.budget.threshold,
            target=frame.budget.target,
            plan=None if made is None else made.plan,
            fallback=self._deciding.fallback,
            duration=self._session.stopwatch() - self._started,
            error=self._deciding.error,
            requested_by=cause.requested_by,
            reserve=frame.scale.reserve,
            scores=None if made is None else made.scores,
        )


def _messages(view: ViewState) -> int:
    return len(view.layout.refs) - view.layout.omitted
