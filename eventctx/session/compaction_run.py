"""One compaction from its beginning to its two records: ask, decide, fall back, never break.

A compaction that needs no model is decided in one go, and its two records are appended together.
One that asks a model first has its ``context:pre_compact`` on disk before the call, and ends in
exactly one ``context:post_compact`` whatever happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from eventctx.errors import EventctxError, StoreError
from eventctx.log import events
from eventctx.log.events import Trigger
from eventctx.log.ids import new_span_id
from eventctx.log.outcomes import MAX_ERROR_CHARACTERS
from eventctx.log.plan import Plan
from eventctx.log.record import Draft, place
from eventctx.log.store import Address
from eventctx.messages.calibration import Scale
from eventctx.policies.fit import Fitted
from eventctx.policies.interception import NO_OBJECTION, CompactionAsked, Intercept, Verdict
from eventctx.policies.ladder import Ladder
from eventctx.policies.planner import (
    Completed,
    body_of,
    changes_nothing,
    complete,
    outline,
    texts_needed,
    visible_of,
)
from eventctx.policies.policy import Answer, Ask, Budget, Policy, PolicyState, Visible
from eventctx.policies.trigger import counted
from eventctx.projections.view import planned, request_view
from eventctx.projections.view import state as view_state
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import LiveSession
from eventctx.session.questions import NoAnswer, PolicyQuestions, placeholder
from eventctx.session.scope import Scope

FALLBACK = Ladder()
"""What decides where the chosen policy cannot."""

MAX_SETTING_CHARACTERS = 200

MAX_QUESTIONS = 8
"""Questions that a policy may ask in one compaction."""


class CompactionCause(NamedTuple):
    """Why a compaction is made, and who asked for it; ``hint`` is what they want kept."""

    trigger: Trigger
    requested_by: str | None = None
    reason: str | None = None
    hint: str | None = None


class Decided(NamedTuple):
    """A compaction's end: drafts still to append, its record, and the view after it.

    ``ended`` is None, and there are no drafts, where nothing can change and nothing was begun.
    ``overflow`` are the parts of a floor that exceeds the budget.
    """

    drafts: tuple[Draft, ...]
    ended: events.PostCompact | None
    view: ViewState
    overflow: dict[str, int]


class CompactionRun:
    """One compaction under way. ``decide`` may be called again when the view moved on."""

    def __init__(
        self,
        live: LiveSession,
        policy: Policy,
        why: CompactionCause,
        asking: PolicyQuestions,
        *,
        dry_run: bool = False,
    ) -> None:
        self._live = live
        self._policy = policy
        self._why = why
        self._asking = asking
        self._dry_run = dry_run
        self._started = live.stopwatch()
        self._scope = self._new_span()
        self._began: events.PreCompact | None = None
        self._verdict: Verdict | None = None
        self._answers: dict[str, Answer] = {}
        self._fallback: str | None = None
        self._error: str | None = None
        self.is_open = False

    def _new_span(self) -> Scope:
        around = self._live.scope
        return msgspec.structs.replace(
            around, span_id=new_span_id(self._live.random), parent_span_id=around.span_id
        )

    async def decide(
        self,
        view: ViewState,
        version: int,
        budget: Budget,
        scale: Scale,
        intercept: Intercept | None = None,
    ) -> Decided | None:
        """Decide what becomes of ``view``; None when a question was answered: ask again then.

        ``budget`` is in tokens. Raises what the store raises.
        """
        if self.is_open and self._scope.span_id not in self._live.open_compactions:
            # Another process took it for abandoned and closed it: this is one of its own now.
            self.is_open = False
            self._scope = self._new_span()
        if self._began is None or not self.is_open:
            self._began = await self._beginning(view, budget, scale, intercept)
        goal = counted(budget, scale)
        # The view may have grown over the budget while the interceptors thought about it.
        if self._vetoed() and view.layout.tokens <= goal.tokens:
            return self._ended_without(view, budget, scale, "skipped", self._began.veto)
        visible = visible_of(view, frozenset(self._began.pins))
        if self._why.trigger == "manual":
            # Asked for below the threshold, too: the view itself is what there is to cut down.
            share = visible.tokens * goal.target // goal.tokens
            goal = msgspec.structs.replace(goal, target=max(1, min(goal.target, share)))
        while True:
            outcome = self._outline(visible, goal, view)
            if not isinstance(outcome, Fitted):
                await self._ask(outcome, view)
                return None
            if changes_nothing(view, outcome.proposal):
                if self.is_open or self._why.trigger in ("threshold", "manual"):
                    return self._ended_without(view, budget, scale, "skipped", self._error)
                return Decided((), None, view, outcome.overflow)
            try:
                made = await self._plan(view, outcome)
            except StoreError:
                raise
            except EventctxError as error:
                if self._fallback is not None:
                    raise
                self._fall_back(error)
                continue
            after = self._after(view, version, made, budget, scale)
            surplus = after.layout.tokens - counted(budget, scale).tokens
            if surplus <= 0 or outcome.overflow or goal.tokens == 1:
                break
            # The bound that ``fit`` counts with was too low (arguments of very many parts).
            goal = msgspec.structs.replace(goal, tokens=max(1, goal.tokens - surplus))
        return self._ended(view, after, made, budget, scale, outcome.overflow)

    @property
    def span_id(self) -> str | None:
        """The span of its records."""
        return self._scope.span_id

    def abandoned(
        self, view: ViewState, budget: Budget, scale: Scale, outcome: events.Outcome, error: str
    ) -> tuple[Draft, ...]:
        """The records of a compaction that came to nothing: its end, a beginning if need be."""
        self._began = self._began or self._describe(view, budget, scale, NO_OBJECTION)
        ended = self._post(view, view, None, budget, scale)
        ended = msgspec.structs.replace(ended, outcome=outcome, error=fit_for_log(error))
        return (*self._opening(), self._live.draft(ended, self._scope))

    # -- the beginning ---------------------------------------------------------------------------

    async def _beginning(
        self, view: ViewState, budget: Budget, scale: Scale, intercept: Intercept | None
    ) -> events.PreCompact:
        if self._verdict is None:
            described = self._describe(view, budget, scale, NO_OBJECTION)
            numbers = tuple([ref.number for ref in view.layout.refs])
            self._verdict = NO_OBJECTION
            if intercept is not None:
                self._verdict = await intercept(
                    CompactionAsked(
                        self._live.stream,
                        described,
                        numbers,
                        self._scope.turn_id,
                        self._scope.span_id,
                        self._scope.parent_span_id,
                        self._scope.iteration,
                    )
                )
        return self._describe(view, budget, scale, self._verdict)

    def _describe(
        self, view: ViewState, budget: Budget, scale: Scale, verdict: Verdict
    ) -> events.PreCompact:
        why, policy = self._why, self._policy
        return events.PreCompact(
            trigger=why.trigger,
            strategy=policy.name,
            strategy_version=policy.version,
            tokens=scale.tokens(view.layout.tokens),
            messages=_messages(view),
            budget=budget.tokens,
            threshold=budget.threshold,
            requested_by=why.requested_by,
            settings=settings_of(policy),
            reason=why.reason,
            hint=0 if why.hint else None,
            pins=verdict.pins,
            veto=verdict.veto,
        )

    def _vetoed(self) -> bool:
        began = self._began
        return began is not None and began.veto is not None and began.trigger != "budget"

    def _opening(self) -> tuple[Draft, ...]:
        """The draft of the beginning, if it is not on disk yet."""
        if self.is_open or self._began is None:
            return ()
        hint = self._why.hint
        bodies = [body_of({"role": "user", "content": hint}, self._live.random)] if hint else []
        return (self._live.draft(self._began, self._scope, bodies),)

    # -- questions -------------------------------------------------------------------------------

    def _outline(self, visible: Visible, goal: Budget, view: ViewState) -> Fitted | Ask:
        state = PolicyState(
            self._why.trigger, view.compactions, self._why.hint, dict(self._answers)
        )
        if self._fallback is None:
            try:
                outcome = outline(visible, self._policy, goal, state)
                if isinstance(outcome, Fitted):
                    return outcome
                if outcome.key not in self._answers and len(self._answers) < MAX_QUESTIONS:
                    return outcome
                raise NoAnswer(f"policy {self._policy.name!r} asks again and again")
            except Exception as error:
                # A policy may be anybody's code: whatever it does wrong, the session goes on.
                self._fall_back(error)
        outcome = outline(visible, FALLBACK, goal, state)
        assert isinstance(outcome, Fitted)  # noqa: S101 - the ladder asks nothing
        return outcome

    async def _ask(self, ask: Ask, view: ViewState) -> None:
        if self._dry_run:
            self._answers[ask.key] = placeholder(ask)
            return
        if not self.is_open:
            opening = self._opening()
            # Whoever is cancelled from here on leaves a beginning on disk all the same.
            self.is_open = True
            try:
                await self._live.append(*opening)
            except EventctxError:
                self.is_open = False
                raise
        try:
            self._answers[ask.key] = await self._asking.answer(
                ask, view, self._scope, self._why.hint
            )
        except StoreError:
            raise
        except Exception as error:
            # A policy's question may be as wrong as its proposal.
            self._fall_back(error)

    def _fall_back(self, error: Exception) -> None:
        self._fallback = FALLBACK.name
        said = (
            str(error) if isinstance(error, EventctxError) else f"{type(error).__name__}: {error}"
        )
        self._error = fit_for_log(said)

    # -- the end ---------------------------------------------------------------------------------

    async def _plan(self, view: ViewState, fitted: Fitted) -> Completed:
        wanted = texts_needed(view, fitted.proposal)
        texts = await self._live.texts([Address(ref.position, ref.index) for ref in wanted])
        by_number = {ref.number: texts[ref.position, ref.index] for ref in wanted}
        return complete(view, fitted.proposal, by_number, self._live.random, self._live.tokenizer)

    def _after(
        self, view: ViewState, version: int, made: Completed, budget: Budget, scale: Scale
    ) -> ViewState:
        """The view under a plan, as the fold will see it."""
        ended = self._post(view, view, made, budget, scale)
        return self._evolved(view, version, self._live.draft(ended, self._scope, made.bodies))

    def _evolved(self, view: ViewState, version: int, draft: Draft) -> ViewState:
        position = version + 1 + (0 if self.is_open else 1)
        return request_view.evolve(view, place(draft, self._live.stream, position, -1, b""))

    def _ended(
        self,
        view: ViewState,
        after: ViewState,
        made: Completed,
        budget: Budget,
        scale: Scale,
        overflow: dict[str, int],
    ) -> Decided:
        stripped = planned.stripped_by(view.layout, after.layout)
        if stripped:
            plan: Plan = msgspec.structs.replace(made.plan, unbound=stripped)
            made = made._replace(plan=plan)
            after = planned.with_stripped(after, stripped)
        # The counts after are known only once the plan is applied.
        ended = self._post(view, after, made, budget, scale)
        draft = self._live.draft(ended, self._scope, made.bodies)
        return Decided((*self._opening(), draft), ended, after, overflow)

    def _ended_without(
        self,
        view: ViewState,
        budget: Budget,
        scale: Scale,
        outcome: events.Outcome,
        error: str | None,
    ) -> Decided:
        ended = self._post(view, view, None, budget, scale)
        ended = msgspec.structs.replace(ended, outcome=outcome, error=error)
        draft = self._live.draft(ended, self._scope)
        after = view if self._why.trigger == "manual" else view_state.after_compaction(view)
        return Decided((*self._opening(), draft), ended, after, {})

    def _post(
        self,
        view: ViewState,
        after: ViewState,
        made: Completed | None,
        budget: Budget,
        scale: Scale,
    ) -> events.PostCompact:
        why, policy = self._why, self._policy
        return events.PostCompact(
            outcome="skipped" if made is None else "applied",
            trigger=why.trigger,
            strategy=policy.name,
            strategy_version=policy.version,
            tokens_before=scale.tokens(view.layout.tokens),
            tokens_after=scale.tokens(after.layout.tokens),
            messages_before=_messages(view),
            messages_after=_messages(after),
            estimator=view.estimator.name,
            factor=scale.factor,
            budget=budget.tokens,
            threshold=budget.threshold,
            target=budget.target,
            plan=None if made is None else made.plan,
            fallback=self._fallback,
            duration=self._live.stopwatch() - self._started,
            error=self._error,
            requested_by=why.requested_by,
            reserve=scale.reserve,
            scores=None if made is None else made.scores,
        )


def fit_for_log(text: str) -> str:
    """An error's words, short enough, and in UTF-8 (names of files may hold surrogates)."""
    return text[:MAX_ERROR_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def settings_of(policy: Policy) -> dict[str, int | float | bool | str | None]:
    """A policy's settings as they are recorded.

    Names and numbers as they are; of anything that could hold a content, only how much it is.
    """
    if not isinstance(policy, msgspec.Struct):
        return {}
    return {
        name: _setting(value)
        for name, value in msgspec.structs.asdict(policy).items()
        if name not in ("name", "version")
    }


def _setting(value: object) -> int | float | bool | str | None:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return fit_for_log(value[:MAX_SETTING_CHARACTERS])
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"
    if isinstance(value, Sequence):
        names = [getattr(one, "name", None) for one in value]
        if names and all(isinstance(name, str) for name in names):
            return ",".join([str(name) for name in names])
        return f"{len(value)} items"
    return type(value).__name__


def _messages(view: ViewState) -> int:
    return len(view.layout.refs) - view.layout.omitted
