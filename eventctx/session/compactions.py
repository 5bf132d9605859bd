"""The compactions that requests make: when one is due, what a request does about it, how it ends.

A policy that asks a model is asked in the background: the request that comes near the threshold
begins that, and a later one takes the answer. So at most one compaction waits for a model.

Invariant: what was begun ends once, by the request that takes it, by ``close`` after an error, or
when the session is closed.
"""

from __future__ import annotations

import asyncio
import contextlib

from eventctx.errors import StoreError, WrongExpectedVersion
from eventctx.log.events import Outcome, Trigger
from eventctx.messages import calibration
from eventctx.policies.advisers import Intercept
from eventctx.policies.fit import fit
from eventctx.policies.planner import visible_of
from eventctx.policies.policy import Budget, Policy
from eventctx.policies.trigger import Frame, due_for, goes_on_first, make_budget, nearly_due
from eventctx.policies.working_set import keep_whole
from eventctx.projections.view import state as view_state
from eventctx.projections.view.request_view import ViewState
from eventctx.session.compaction_run import CompactionCause, CompactionRun, Decided
from eventctx.session.open_session import OpenSession
from eventctx.session.questions import ModelAsk, PolicyQuestions
from eventctx.session.settings import Settings


class RequestCompactions:
    """The compactions of one session's requests. ``_ahead`` is the one in the background."""

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
        asks = any(getattr(policy, f"needs_{who}", False) for who in ("summarizer", "scorer"))
        self._ahead_at = settings.prepare_at if asks and settings.auto_compact else None
        self._ahead: CompactionRun | None = None
        self._budget = make_budget(
            settings.limit, settings.compact_threshold, settings.target_usage
        )
        self._declined = -1

    def due(self, frame: Frame) -> Trigger | None:
        """Why a view must be compacted now; None if it need not be."""
        view, budget = frame.view, frame.goal
        if not self._settings.auto_compact and view.layout.tokens <= budget.tokens:
            return None
        trigger = due_for(frame, self._policy.max_messages)
        if trigger == "budget" and self._settings.on_overflow == "send_floor":
            return None if is_stuck(view, budget) else trigger
        return trigger

    def concern(self, frame: Frame) -> bool:
        """Whether a request with this view has a compaction to begin, to take or to decide on."""
        return self.due(frame) is not None or self._is_ready(frame) or self._begins_ahead(frame)

    async def begun(self, frame: Frame) -> CompactionRun | None:
        """The compaction to decide on for this request; None if there is none."""
        due = self.due(frame)
        if self._ahead is not None:
            if due == "budget":
                await self._ahead.wait(self._settings.wait)
            elif not self._is_ready(frame):
                return None
            taken = await self._take_ahead()
            if taken is not None:
                return taken
        if due is None and not self._begins_ahead(frame):
            return None
        cause = CompactionCause(due or "threshold")
        background = self._ahead_at is not None
        return CompactionRun(
            self._session, self._policy, cause, self._questions, background=background
        )

    async def step(
        self, run: CompactionRun, frame: Frame
    ) -> tuple[CompactionRun | None, Decided | None, bool]:
        """The run that is still under way, its decision, and whether to look at the view again."""
        due = self.due(frame)
        unanswered = run.failed(frame) if run.background and due is None else None
        found = unanswered or await run.step(frame, self._intercept)
        if not isinstance(found, Decided):
            if not run.background:
                await run.answer(found, frame.view)
                return run, None, True
            await self._ask_ahead(run, found, frame)
            return None, None, due == "budget"
        outcome = None if found.ended is None else found.ended.outcome
        if run.background and due is None and (outcome == "failed" or not run.has_asked):
            # No model answers, or need be asked: not tried again before it is due.
            self._declined = frame.view.compactions
            return (run, found, False) if outcome == "failed" else (None, None, False)
        if outcome == "stale" and due == "budget":
            appended = None
            with contextlib.suppress(WrongExpectedVersion):  # another process may have ended it
                appended = await self._session.appends.append_exactly(frame.version, *found.drafts)
            return (run if appended is None else None), None, True
        return run, found, False

    # -- a compaction in the background ----------------------------------------------------------

    def _begins_ahead(self, frame: Frame) -> bool:
        """Whether a model is asked before the threshold is reached, while requests go on."""
        if self._ahead_at is None or self._ahead is not None:
            return False
        return self._declined != frame.view.compactions and nearly_due(frame, self._ahead_at)

    async def _ask_ahead(self, run: CompactionRun, question: ModelAsk, frame: Frame) -> None:
        """Have a question answered in the background, unless another compaction waits for one."""
        if self._ahead is not None:
            other = asyncio.CancelledError("another compaction of the session is under way")
            await self.close(run, frame.budget, other)
            return
        self._ahead, self._budget = run, frame.budget
        self._session.memory.background.add(self._stop_ahead)
        run.begin_answer(question, frame.view)
        await asyncio.sleep(0)  # a store that answers at once would not let it begin

    def _is_ready(self, frame: Frame) -> bool:
        """Whether a plan can be made of what a model answered in the background."""
        return self._ahead is not None and self._ahead.is_answered and not goes_on_first(frame)

    async def _take_ahead(self) -> CompactionRun | None:
        """The compaction of the background, for this request.

        None if it failed, and is ended, or if another request took it.
        """
        run, self._ahead = self._ahead, None
        self._session.memory.background.discard(self._stop_ahead)
        if run is None or run.failure is None:
            return run
        await self.close(run, self._budget, run.failure)
        return None

    async def _stop_ahead(self) -> None:
        """End the compaction of the background without a plan: the session is closed."""
        run, self._ahead = self._ahead, None
        self._session.memory.background.discard(self._stop_ahead)
        if run is not None:
            await run.cancel_answer()
            closed = asyncio.CancelledError("the session was closed")
            await self.close(run, self._budget, closed)

    # -- ends ------------------------------------------------------------------------------------

    async def close(
        self, underway: CompactionRun | None, budget: Budget, error: BaseException
    ) -> None:
        """Append the end of a compaction whose beginning is on disk, after any error."""
        if underway is None or not underway.is_open:
            return
        # A task that is cancelled again must not leave the compaction without an end.
        ending = asyncio.ensure_future(self._end(underway, budget, error))
        self._session.memory.ending.add(ending)
        ending.add_done_callback(self._session.memory.ending.discard)
        await asyncio.shield(ending)

    async def _end(self, underway: CompactionRun, budget: Budget, error: BaseException) -> None:
        outcome: Outcome = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
        appends, aggregate = self._session.appends, self._session.aggregate
        while True:
            try:
                # The end may be on disk already: handed to the store before the cancellation, or
                # written by another process. Look, so that there is no second one.
                view, version = await appends.synchronise()
                if underway.span_id not in aggregate.open_compactions:
                    return
                frame = Frame(view, version, budget, calibration.scale(view.calibration))
                drafts = underway.abandoned(frame, outcome, text)
                if await appends.append_exactly(version, *drafts) is not None:
                    return
            except WrongExpectedVersion:
                continue
            except StoreError:
                view = aggregate.view_if_held or view_state.initial()
                frame = Frame(view, view.position, budget, calibration.scale(view.calibration))
                for draft in underway.abandoned(frame, outcome, text):
                    await appends.emit(draft)
                return


def is_stuck(view: ViewState, budget: Budget) -> bool:
    """Whether a view over the budget is sent as it is, because a compaction would leave the floor.

    Where the last compaction ended above the budget and what must stay still exceeds it, the next
    one waits until the view is a quarter larger: one for every request would gain nothing and
    change the prefix every time.
    """
    low = view.size_after_compaction
    if low <= budget.tokens or view.layout.tokens > low + low // 4:
        return False
    visible = visible_of(view)
    fitted = fit(visible, keep_whole(visible), budget)
    # The last compaction may have been for another budget; then it does not show the floor.
    return bool(fitted.overflow) and low <= fitted.tokens + fitted.tokens // 4
