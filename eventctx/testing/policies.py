"""Given messages and a budget, when a policy compacts, then messages are kept, shortened, dropped.

    (
        given({"role": "user", "content": "Hello"}, …, budget=2_000)
        .when("simple", keep_recent=4)
        .then(dropped=[1, 2], reasons={0: "task"}, tokens_at_most=2_000)
    )

A policy is a pure function, so its test needs no engine, no log and no model. A policy's proposal
is checked against the rules and brought into the budget by ``fit``, as in a session. Its questions
get the answers that ``answering`` sets.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from eventctx.errors import EventctxError
from eventctx.log.events import Trigger
from eventctx.log.plan import Disposition
from eventctx.messages.demands import demands_in
from eventctx.messages.facts import as_observation
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.native_compaction import made_up_summary
from eventctx.messages.shorten import shorten
from eventctx.messages.tokens import BY_KIND
from eventctx.messages.tool_results import observes
from eventctx.policies import rules
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.named import policy_named
from eventctx.policies.policy import (
    Answer,
    Ask,
    AskMemory,
    AskSummary,
    AskTexts,
    Budget,
    Memory,
    MessageTexts,
    Policy,
    PolicyState,
    Proposal,
    Scores,
    Summary,
    Visible,
)
from eventctx.policies.trigger import make_budget
from eventctx.projections.view.layout import build
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.state import NOTHING_SPOKEN
from eventctx.session.settings import Settings

Row = dict[str, Any]

_MOST_QUESTIONS: Final = 8
_STAYS: Final = ("kept", "shortened")
_SHOWN: Final = 40


def view_of(messages: Iterable[Row], pins: Iterable[int] = ()) -> Visible:
    """The view of these messages that a policy gets, counted as the engine counts them.

    Messages are numbered from 0. Raises InvalidMessage.
    """
    refs: list[MessageRef] = []
    spoken = NOTHING_SPOKEN
    for number, row in enumerate(messages):
        facts = read_facts(row)
        action = refs[-1].facts.action if refs else ""
        if facts.human and observes(row, action):
            facts = as_observation(facts)
        refs.append(MessageRef(number, number, 0, _digest(row), facts, BY_KIND.tokens(facts)))
        spoken = spoken.with_message(refs[-1])
    return Visible(refs, (), frozenset(pins), build(refs).tokens, spoken=spoken)


def _digest(row: Row) -> bytes:
    return blake2b(msgspec.json.encode(row), digest_size=32).digest()


class Answers:
    """The answers to a policy's questions; the same answer every time."""

    def __init__(
        self,
        summary: str = "(summary)",
        scores: float | Mapping[int, float] = 0.5,
        memory: Sequence[str] = (),
        messages: Sequence[Row] = (),
    ) -> None:
        self.messages = messages
        self.summary = summary
        self.scores = scores
        self.memory = tuple(memory)

    def to(self, question: Ask) -> Answer:
        """The answer to a question."""
        if isinstance(question, AskMemory):
            return Memory(self.memory)
        if isinstance(question, AskTexts):
            return MessageTexts({number: self.messages[number] for number in question.numbers})
        if isinstance(question, AskSummary):
            known = [number for number in question.numbers if number < len(self.messages)]
            spoken = [(n, demands_in(self.messages[n])) for n in known]
            return Summary(
                self.summary,
                demands=tuple([(n, one) for n, said in spoken for one in said]),
                message=None if question.until is None else made_up_summary(self.summary),
            )
        scores = self.scores
        if isinstance(scores, Mapping):
            return Scores({number: scores.get(number, 0.5) for number in question.numbers})
        return Scores(dict.fromkeys(question.numbers, scores))


def decide(
    policy: Policy, visible: Visible, budget: Budget, state: PolicyState, answers: Answers
) -> Proposal:
    """A policy's proposal, after its questions were answered.

    Raises AssertionError for a policy that makes another proposal from the same arguments, repeats
    a question, or has more than eight questions.
    """
    given: dict[str, Answer] = {}
    for _ in range(_MOST_QUESTIONS):
        now = PolicyState(state.trigger, state.compactions, state.hint, given)
        found = policy.propose(visible, budget, now)
        if isinstance(found, Proposal):
            again = policy.propose(visible, budget, now)
            assert found == again, (
                f"policy {policy.name!r} is not pure: asked twice, it said\n{found}\nand\n{again}"
            )
            return found
        assert found.key not in given, f"policy {policy.name!r} asks {found.key!r} a second time"
        given[found.key] = answers.to(found)
    raise AssertionError(
        f"policy {policy.name!r} asked {_MOST_QUESTIONS} questions, the most that it may, "
        f"and has not decided: {sorted(given)}"
    )


class Given:
    """Messages in view and a budget; ``when`` lets a policy compact them."""

    def __init__(
        self,
        messages: Sequence[Row],
        budget: Budget,
        pins: Iterable[int],
        state: PolicyState,
        answers: Answers,
    ) -> None:
        self.messages = copy.deepcopy(list(messages))
        self.visible = view_of(self.messages, pins)
        self.budget = budget
        self.state = state
        self.answers = answers

    def answering(
        self,
        summary: str = "(summary)",
        scores: float | Mapping[int, float] = 0.5,
        memory: Sequence[str] = (),
    ) -> Given:
        """A copy with these answers to a policy's questions.

        ``scores`` is one score for all messages, or scores by message number (0.5 for others);
        ``memory`` are the snippets that are found.
        """
        answers = Answers(summary, scores, memory, self.messages)
        return Given(self.messages, self.budget, self.visible.pins, self.state, answers)

    def when(self, policy: str | Policy, **settings: Any) -> Outcome:
        """The outcome of a policy, which is given by its name and settings or as an object.

        Raises AssertionError for a policy that is not pure or whose proposal breaks a rule (the
        message names both), InvalidSetting for an unknown name or setting.
        """
        chosen = policy_named(policy, settings) if isinstance(policy, str) else policy
        proposal = decide(chosen, self.visible, self.budget, self.state, self.answers)
        try:
            rules.check(self.visible, proposal)
        except EventctxError as error:
            raise AssertionError(
                f"policy {chosen.name!r}: {error}\n{_list_messages(self, proposal)}"
            ) from error
        return Outcome(self, chosen, proposal, fit(self.visible, proposal, self.budget))


def given(
    *messages: Row,
    budget: int | Budget,
    pins: Iterable[int] = (),
    trigger: Trigger = "threshold",
    compactions: int = 0,
    hint: str | None = None,
) -> Given:
    """Messages of any dialect, numbered from 0, and a budget in tokens.

    A budget that is a number gets the threshold and the target of a session with default settings.
    ``trigger``, ``compactions`` (before this one) and ``hint`` (what the caller of ``compact``
    wants kept) are the session's state that the policy gets. Raises InvalidMessage, InvalidSetting.
    """
    usual = Settings()
    if not isinstance(budget, Budget):
        budget = make_budget(budget, usual.compact_threshold, usual.target_usage)
    state = PolicyState(trigger, compactions, hint)
    return Given(messages, budget, pins, state, Answers(messages=messages))


class Outcome:
    """The result of a compaction.

    ``proposed`` is the policy's own proposal, ``proposal`` the same after ``fit``;
    ``dispositions`` and ``reasons`` are by message number. ``in_view`` are the numbers of the
    messages that stay, ``messages`` these messages as the model gets them, without insertions,
    ``insertions`` those that the policy made. ``tokens`` is the view's size; ``overflow`` maps the
    parts of a floor that is larger than the budget to their tokens, and is empty when the view
    fits.
    """

    def __init__(self, start: Given, policy: Policy, proposed: Proposal, fitted: Fitted) -> None:
        self.policy = policy
        self.proposed = proposed
        self.proposal = fitted.proposal
        self.tokens = fitted.tokens
        self.overflow = fitted.overflow
        decided = fitted.proposal.dispositions
        self.dispositions: dict[int, Disposition] = {n: d for n, (d, _) in sorted(decided.items())}
        self.reasons: dict[int, str] = {n: reason for n, (_, reason) in sorted(decided.items())}
        self.in_view = [n for n, done in self.dispositions.items() if done in _STAYS]
        self.insertions = [one.message for one in fitted.proposal.insertions]
        self._start = start
        refs = start.visible.messages
        self._facts = {ref.number: ref.facts for ref in refs}

    @property
    def messages(self) -> list[Row]:
        """The messages in view as the model would read them, without insertions."""
        limits = self.proposal.limits
        return [
            shorten(
                copy.deepcopy(self._start.messages[number]),
                number,
                limits[number],
                self._facts[number],
            )
            if number in limits
            else copy.deepcopy(self._start.messages[number])
            for number in self.in_view
        ]

    def then(
        self,
        *,
        in_view: Iterable[int] | None = None,
        kept: Iterable[int] = (),
        shortened: Iterable[int] = (),
        summarised: Iterable[int] = (),
        dropped: Iterable[int] = (),
        merged: Iterable[int] = (),
        reasons: Mapping[int, str] | None = None,
        tokens_at_most: int | None = None,
        fits: bool | None = None,
    ) -> Outcome:
        """Raise AssertionError, with the whole decision, unless all arguments hold; returns itself.

        ``in_view`` are exactly the messages that stay, kept or shortened. ``kept`` to ``merged``
        each name some of the messages with this disposition; there may be more. ``fits`` is whether
        the view fits its budget.
        """
        wrong: list[str] = []
        if in_view is not None and self.in_view != (wanted := sorted(in_view)):
            wrong.append(f"expected in view {wanted}, found {self.in_view}")
        for disposition, numbers in (
            ("kept", kept),
            ("shortened", shortened),
            ("summarised", summarised),
            ("dropped", dropped),
            ("merged", merged),
        ):
            wrong += [self._wrong(n, disposition) for n in numbers if self._is_not(n, disposition)]
        for number, reason in (reasons or {}).items():
            found = self.reasons.get(number)
            if found != reason:
                wrong.append(f"expected message {number} to be so for {reason!r}, found {found!r}")
        if tokens_at_most is not None and self.tokens > tokens_at_most:
            wrong.append(f"expected at most {tokens_at_most} tokens, found {self.tokens}")
        if fits is not None and fits != (not self.overflow):
            wrong.append(f"expected that it {'fits' if fits else 'does not fit'}")
        if wrong:
            raise AssertionError("\n".join([*wrong, "", str(self)]))
        return self

    def _is_not(self, number: int, disposition: str) -> bool:
        return self.dispositions.get(number) != disposition

    def _wrong(self, number: int, disposition: str) -> str:
        found = self.dispositions.get(number, "no such message")
        return f"expected message {number} {disposition}, found {found}"

    def __str__(self) -> str:
        """The decision in words: the sizes, and a line for each message."""
        budget = self._start.budget
        over = "".join(f", {part} {tokens}" for part, tokens in self.overflow.items() if tokens)
        return (
            f"policy {self.policy.name!r}: {self._start.visible.tokens} -> {self.tokens} tokens, "
            f"budget {budget.tokens}, threshold {budget.threshold}, target {budget.target}"
            f"{f'; the floor does not fit{over}' if over else ''}\n"
            f"{_list_messages(self._start, self.proposal)}"
        )


def _list_messages(start: Given, proposal: Proposal) -> str:
    """A line for each message: number, role, tokens, disposition, reason, the first words."""
    lines = []
    for ref, row in zip(start.visible.messages, start.messages, strict=True):
        disposition, reason = proposal.dispositions.get(ref.number, ("not decided", ""))
        pinned = " (pinned)" if ref.number in start.visible.pins else ""
        words = " ".join(str(row.get("content") or row.get("tool_calls") or "").split())
        lines.append(
            f"  #{ref.number:<3} {ref.facts.role:<9} {ref.tokens:>6} tokens  {disposition}"
            f"{f', {reason}' if reason else ''}{pinned}  {words[:_SHOWN]}"
        )
    return "\n".join(lines)
