"""The decision of one compaction: ask, fall back where that fails, plan, and fit once more.

The steps are the same for a live session, which awaits a store and a model, and for one that is
only played (``comparison``). So they are a generator: it yields what it needs to know, and gets the
answer sent. It reads no store, calls no model, and appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import CompactionError, EventctxError
from eventctx.log.events import Trigger
from eventctx.log.turn_recorder import fit_for_log, words_of
from eventctx.messages.thinking import BY_MODEL, ThinkingRule
from eventctx.policies.fit import Fitted
from eventctx.policies.ladder import Ladder
from eventctx.policies.planner import (
    Completed,
    MakeBody,
    Salt,
    changes_nothing,
    complete,
    outline,
    texts_needed,
)
from eventctx.policies.policy import (
    Answer,
    Ask,
    Budget,
    MessageTexts,
    Policy,
    PolicyState,
    Proposal,
    Visible,
)
from eventctx.projections.view import planned
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState

FALLBACK: Final = Ladder()
"""The policy that decides where the chosen one fails."""

MAX_QUESTIONS: Final = 8
"""Questions that a policy may ask in one compaction."""


LEAST_SPARE: Final = 6
"""A plan whose view misses the target by more than the target divided by this is made anew."""


class NoAnswer(CompactionError):
    """A policy's question has no answer; the text gives the reason."""


class Bodies(NamedTuple):
    """A question for the bodies of messages as they are in view, by number."""

    refs: list[MessageRef]


Question = Ask | Bodies
Reply = Answer | Exception | Mapping[int, bytes | None]
"""The answer to a question, or why there is none."""


class Decision(NamedTuple):
    """The proposal, its plan and the view after it; without a plan nothing would change.

    ``overflow`` has the counted tokens of each part of a floor that exceeds the budget.
    """

    proposal: Proposal
    plan: Completed | None
    after: ViewState
    overflow: dict[str, int]


class Situation(NamedTuple):
    """A view to decide on, the part that a policy sees, and the budget in the view's own count.

    ``aim`` is the budget with the size that this compaction is to reach; ``thinking`` is
    the rule for the model that will read the view.
    """

    view: ViewState
    visible: Visible
    budget: Budget
    aim: Budget
    thinking: ThinkingRule = BY_MODEL


class DecisionIO(NamedTuple):
    """The functions that a decision needs: make a body, make salt, apply a plan."""

    make: MakeBody
    salt: Salt
    applied: Callable[[Completed], ViewState]


class Deciding:
    """One compaction's questions, answers and failures, through all views that it is decided on.

    ``fallback`` is the name of the policy that decides since the chosen one failed, and ``error``
    says why, fit for the log: the type of the error, and its words.
    """

    def __init__(
        self, policy: Policy, trigger: Trigger, hint: str | None = None, *, recall: bool = False
    ) -> None:
        self._policy = policy
        self._recall = recall
        self._trigger: Trigger = trigger
        self._hint = hint
        self.answers: dict[str, Answer] = {}
        self.texts: tuple[str, ...] = ()
        self.fallback: str | None = None
        self.error: str | None = None

    def steps(self, situation: Situation, io: DecisionIO) -> Generator[Question, Reply, Decision]:
        """Decide. Raises what the fallback policy raises.

        Whoever answers a question much later may call again, with the view as it is then: answers
        are kept.
        """
        view, aim = situation.view, situation.aim
        anew = False
        while True:
            outcome = self._outline(situation.visible, aim, view)
            if not isinstance(outcome, Fitted):
                self._take(outcome, (yield outcome))
                continue
            if changes_nothing(view, outcome.proposal, situation.budget.tokens):
                return Decision(outcome.proposal, None, view, outcome.overflow)
            texts = yield Bodies(texts_needed(view, outcome.proposal))
            assert isinstance(texts, Mapping)  # noqa: S101 - bodies were asked for
            try:
                made = complete(view, outcome.proposal, texts, io.make, io.salt)
            except EventctxError as error:
                if self.fallback is not None:
                    raise
                self.fall_back(error)
                continue
            after = io.applied(made)
            spare = situation.aim.target - after.layout.tokens
            if spare * LEAST_SPARE > aim.target and self._promised_little(outcome) and not anew:
                anew, aim = True, msgspec.structs.replace(aim, target=aim.target + spare)
                continue
            surplus = after.layout.tokens - situation.budget.tokens
            if surplus <= 0 or outcome.overflow or aim.tokens == 1:
                break
            # ``fit`` estimated too low (arguments of very many parts): try again with less room.
            aim = msgspec.structs.replace(aim, tokens=max(1, aim.tokens - surplus))
        stripped = planned.refused_thinking(
            view.layout, after.layout, situation.thinking.generation
        )
        if stripped:
            made = made._replace(plan=msgspec.structs.replace(made.plan, unbound=stripped))
            after = planned.with_stripped(after, stripped)
        return Decision(outcome.proposal, made, after, outcome.overflow)

    def _promised_little(self, fitted: Fitted) -> bool:
        """Whether shortened texts may be smaller than their limits say, and asking anew is free.

        A limit promises the tokens of the densest text of its length.
        """
        free = all(isinstance(answer, MessageTexts) for answer in self.answers.values())
        return bool(fitted.proposal.limits) and free

    def fall_back(self, error: Exception) -> None:
        """Let the fallback policy decide from here on; the log says which error is the reason."""
        self.fallback = FALLBACK.name
        # The error of a summarizer or a scorer is the cause of there being no answer.
        cause = error.__cause__ if isinstance(error, NoAnswer) else None
        self.error = fit_for_log(f"{type(cause or error).__name__}: {words_of(error)}")

    def _take(self, ask: Ask, reply: Reply) -> None:
        if isinstance(reply, Exception):
            self.fall_back(reply)
        else:
            assert not isinstance(reply, Mapping)  # noqa: S101 - an answer was asked for
            self.answers[ask.key] = reply

    def _outline(self, visible: Visible, aim: Budget, view: ViewState) -> Fitted | Ask:
        answers = dict(self.answers)
        state = PolicyState(self._trigger, view.compactions, self._hint, answers, self._recall)
        if self.fallback is None:
            try:
                outcome = outline(visible, self._policy, aim, state, self.texts)
                if isinstance(outcome, Fitted):
                    return outcome
                if outcome.key not in self.answers and len(self.answers) < MAX_QUESTIONS:
                    return outcome
                raise NoAnswer(f"policy {self._policy.name!r} asks again and again")
            except Exception as error:
                # A policy may be a user's code: no error of it may end the session.
                self.fall_back(error)
        outcome = outline(visible, FALLBACK, aim, state, self.texts)
        assert isinstance(outcome, Fitted)  # noqa: S101 - the ladder asks nothing
        return outcome
