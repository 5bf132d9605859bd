"""One compaction of a run: the decision that a live session would make, without its records."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

import msgspec

from eventctx.comparison.recording import body_of, record_of
from eventctx.errors import EventctxError
from eventctx.log.events import PostCompact, Trigger
from eventctx.log.record import Record
from eventctx.policies.fit import Fitted
from eventctx.policies.planner import (
    Completed,
    changes_nothing,
    complete,
    outline,
    texts_needed,
    visible_of,
)
from eventctx.policies.policy import (
    Answer,
    AskTexts,
    Budget,
    Policy,
    PolicyState,
    Proposal,
    Visible,
)
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.session.compaction_run import FALLBACK, MAX_QUESTIONS
from eventctx.session.questions import ModelAsk, NoAnswer


class Bodies(NamedTuple):
    """A question for the bodies of messages as they are in view, by number."""

    refs: list[MessageRef]


Question = ModelAsk | AskTexts | Bodies
Reply = Answer | Exception | Mapping[int, bytes | None]


class DecidedView(NamedTuple):
    """The outcome: the view after it, its proposal, and its record; None: nothing was changed.

    ``asked`` is whether a model was asked, ``fallback`` why the ladder decided; None if it did not.
    """

    after: ViewState
    proposal: Proposal
    record: Record | None
    asked: bool
    fallback: str | None


class Deciding:
    """A decision under way, at position ``at``. ``steps`` yields its questions."""

    def __init__(
        self, view: ViewState, policy: Policy, goal: Budget, trigger: Trigger, at: int
    ) -> None:
        self._view = view
        self._policy = policy
        self._goal = goal
        self._trigger: Trigger = trigger
        self._at = at
        self._answers: dict[str, Answer] = {}
        self._asked = False
        self._fallback: str | None = None

    def steps(self) -> Generator[Question, Reply | None, DecidedView]:
        """Decide, as ``CompactionRun.decide`` does. Raises what the ladder raises."""
        view, goal = self._view, self._goal
        visible = visible_of(view)
        while True:
            outcome = self._outline(visible, goal)
            if not isinstance(outcome, Fitted):
                reply = yield outcome
                if isinstance(reply, Exception):
                    self._fall_back(reply)
                    continue
                assert reply is not None and not isinstance(reply, Mapping)  # noqa: S101 - an answer
                self._answers[outcome.key] = reply
                if not isinstance(outcome, AskTexts):
                    self._asked, goal = True, self._goal
                continue
            if changes_nothing(view, outcome.proposal):
                return DecidedView(view, outcome.proposal, None, self._asked, self._fallback)
            texts = yield Bodies(texts_needed(view, outcome.proposal))
            assert isinstance(texts, Mapping)  # noqa: S101 - bodies were asked for
            try:
                made = complete(view, outcome.proposal, texts, body_of, bytes)
            except EventctxError as error:
                self._fall_back(error)
                continue
            record, after = self._recorded(made)
            surplus = after.layout.tokens - self._goal.tokens
            if surplus <= 0 or outcome.overflow or goal.tokens == 1:
                break
            goal = msgspec.structs.replace(goal, tokens=max(1, goal.tokens - surplus))
        stripped = planned.stripped_by(view.layout, after.layout)
        if stripped:
            after = planned.with_stripped(after, stripped)
        return DecidedView(after, outcome.proposal, record, self._asked, self._fallback)

    def _outline(self, visible: Visible, goal: Budget) -> Fitted | ModelAsk | AskTexts:
        state = PolicyState(self._trigger, self._view.compactions, None, dict(self._answers))
        if self._fallback is None:
            try:
                outcome = outline(visible, self._policy, goal, state)
                if isinstance(outcome, Fitted):
                    return outcome
                if outcome.key not in self._answers and len(self._answers) < MAX_QUESTIONS:
                    return outcome
                raise NoAnswer(f"policy {self._policy.name!r} asks again and again")
            except Exception as error:
                # A policy may be a user's code: in a live session the ladder decides then.
                self._fall_back(error)
        return outline(visible, FALLBACK, goal, state)

    def _fall_back(self, error: Exception) -> None:
        if self._fallback is not None:
            raise error
        self._fallback = f"{type(error).__name__}: {error}"

    def _recorded(self, made: Completed) -> tuple[Record, ViewState]:
        event = PostCompact("applied", self._trigger, "", 0, 0, 0, 0, 0, "", plan=made.plan)
        record = record_of(event, self._at, made.bodies)
        return record, request_view.evolve(self._view, record)
