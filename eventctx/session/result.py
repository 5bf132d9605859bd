"""The result of ``compact()``, and the budgets for which it is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventctx.errors import CompactionRefused, ContextOverflow
from eventctx.log import events
from eventctx.log.naming import ranges_name
from eventctx.log.plan import Plan, numbers_in
from eventctx.policies.advisers import is_of_host
from eventctx.policies.fit import Fitted, fit
from eventctx.policies.planner import visible_of
from eventctx.policies.policy import Budget
from eventctx.policies.trigger import Frame
from eventctx.policies.working_set import keep_whole
from eventctx.projections.view.refs import InsertionRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.state import conversation_length
from eventctx.text import html_table, summary_line


class CompactionResult(int):
    """The tokens saved, as an int, with the counts and the decision that saved them.

    The names of the counts are those of the orchestrator specification's compaction events.
    ``position`` is that of the ``context:post_compact``, None in a dry run, which records nothing.
    ``strategy`` is the policy that was used, ``fallback`` the one that decided instead, and
    ``error`` the reason for that. ``plan`` is None unless ``outcome`` is ``applied``.
    ``removed_insertions`` are the summaries and notices that left the view with nothing new in
    their place.
    """

    position: int | None
    outcome: events.Outcome
    strategy: str
    before_tokens: int
    after_tokens: int
    removed_tokens: int
    before_messages: int
    after_messages: int
    removed_messages: int
    removed_insertions: tuple[InsertionRef, ...]
    plan: Plan | None
    fallback: str | None
    error: str | None
    dry_run: bool

    @classmethod
    def of(
        cls,
        event: events.PostCompact,
        position: int | None,
        removed_insertions: tuple[InsertionRef, ...] = (),
    ) -> CompactionResult:
        """Make the result from a compaction's record."""
        result = cls(event.tokens_before - event.tokens_after)
        result.position = position
        result.outcome = event.outcome
        result.strategy = event.strategy
        result.before_tokens, result.after_tokens = event.tokens_before, event.tokens_after
        result.removed_tokens = int(result)
        result.before_messages, result.after_messages = event.messages_before, event.messages_after
        result.removed_messages = event.messages_before - event.messages_after
        result.removed_insertions = removed_insertions
        result.plan = event.plan
        result.fallback = event.fallback
        result.error = event.error
        result.dry_run = position is None
        return result

    def __repr__(self) -> str:
        if not hasattr(self, "outcome"):
            return int.__repr__(self)
        would = " (dry run)" if self.dry_run else ""
        return summary_line(
            f"CompactionResult {self.outcome}{would} by {self.fallback or self.strategy}:",
            f"{self.before_tokens:,} -> {self.after_tokens:,} tokens",
            f"{self.before_messages:,} -> {self.after_messages:,} messages",
            self.error,
        )

    def __str__(self) -> str:
        return int.__repr__(self)

    def _repr_html_(self) -> str:
        rows = [
            ("tokens", self.before_tokens, self.after_tokens),
            ("messages", self.before_messages, self.after_messages),
        ]
        return html_table(repr(self)[1:-1], ("", "before", "after"), rows)


def insertions_gone(before: ViewState, after: ViewState) -> tuple[InsertionRef, ...]:
    """The insertions of one view that left it, with nothing new in the next one in their place.

    A new summary is in the place of those that stand for messages it stands for, too; a new notice
    or memory is in the place of the old ones. Texts of the host are none of them: those are for
    one compaction.
    """
    staying = {(one.position, one.index) for one in after.layout.insertions}
    new = _new_insertions(before, after)
    kinds = {one.kind for one in new if one.kind != "summary"}
    told = {number for one in new for number in numbers_in(one.stands_for)}
    return tuple(
        [
            one
            for one in before.layout.insertions
            if (one.position, one.index) not in staying
            and one.kind not in kinds
            and not is_of_host(one)
            and not (one.stands_for and numbers_in(one.stands_for) <= told)
        ]
    )


def _new_insertions(before: ViewState, after: ViewState) -> list[InsertionRef]:
    known = {(one.position, one.index) for one in before.layout.insertions}
    return [
        one
        for one in after.layout.insertions
        if (one.position, one.index) not in known and not is_of_host(one)
    ]


def floor_over(frame: Frame) -> ContextOverflow | None:
    """The error for a budget below what must stay, whatever a policy decides; None if it fits."""
    fitted = _floor(frame)
    if not fitted.overflow:
        return None
    staying = [
        number
        for number, (disposition, _) in fitted.proposal.dispositions.items()
        if disposition in ("kept", "shortened")
    ]
    tokens = frame.scale.tokens(fitted.tokens)
    parts = named_parts(frame, tokens, fitted.overflow)
    kept = {(one.position, one.index) for one in fitted.proposal.kept_insertions}
    goes = [
        one for one in visible_of(frame.view).insertions if (one.position, one.index) not in kept
    ]
    return ContextOverflow(
        frame.budget.tokens, tokens, parts, messages=len(staying), loses=named_insertions(goes)
    )


def refusal(
    frame: Frame, after: ViewState, gone: tuple[InsertionRef, ...]
) -> CompactionRefused | None:
    """The error for a budget whose view ``after`` would be of little use; None for a useful one.

    That is a budget below the present view in which a summary or notice has no room (``gone``), or
    of the conversation nothing but its last message, with nothing new that stands for the rest.
    """
    before = frame.view
    if frame.tokens_of(before) <= frame.budget.tokens:
        return None  # it is not the budget that takes them away
    alone = conversation_length(after.layout) <= 1 < conversation_length(before.layout)
    if not gone and (not alone or _new_insertions(before, after)):
        return None
    least = frame._replace(budget=Budget(1, 1, 1))  # has room for nothing more
    return CompactionRefused(
        frame.budget.tokens,
        frame.scale.tokens(_floor(least).tokens),
        tokens_before=frame.tokens_of(before),
        tokens=frame.tokens_of(after),
        messages_before=len(before.layout.refs) - before.layout.omitted,
        messages=len(after.layout.refs) - after.layout.omitted,
        loses=named_insertions(gone),
    )


def named_insertions(insertions: Iterable[InsertionRef]) -> tuple[str, ...]:
    """``the summary for #0–#230``, ``a notice``: insertions as sentences name them."""
    return tuple(
        [
            f"the {one.kind} for {ranges_name(one.stands_for)}"
            if one.stands_for
            else f"a {one.kind}"
            for one in insertions
        ]
    )


def named_parts(frame: Frame, tokens: int, counts: Mapping[str, int]) -> dict[str, int]:
    """The tokens of each part of a floor of ``tokens``; ``counts`` are the estimator's own."""
    view, scale = frame.view, frame.scale
    parts = {part: scale.factor * size for part, size in counts.items()}
    named = {part: int(size) for part, size in parts.items()}
    prompts = [one.tokens for one in view.layout.insertions if one.kind == "system_prompt"]
    named["the host's system prompt"] = int(scale.factor * sum(prompts))
    named["system prompt and tools"] = scale.reserve
    made = "notices and synthetic results"
    others = sum(size for part, size in named.items() if part != made)
    if others > tokens:
        # A shortened copy may be smaller than its bound. Only the round in progress is shortened
        # in a floor, but for the results next to a person's words.
        bounded = max(("open round", "latest human message"), key=lambda part: named.get(part, 0))
        named[bounded] = named.get(bounded, 0) - (others - tokens)
    named[made] = max(0, tokens - others)
    return named


def _floor(frame: Frame) -> Fitted:
    visible = visible_of(frame.view, thinking=frame.thinking)
    return fit(visible, keep_whole(visible), frame.goal)
