"""The conditions under which a compaction is due, and the parts of a budget."""

from __future__ import annotations

from typing import NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.log.events import Trigger
from eventctx.messages.calibration import Scale
from eventctx.messages.thinking import BY_MODEL, ThinkingRule
from eventctx.policies.policy import PERSONS_SHARE, Budget
from eventctx.projections.view import planned
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.state import conversation_length


def make_budget(tokens: int, threshold: float, target: float) -> Budget:
    """A budget of ``tokens``; ``threshold`` and ``target`` are fractions of it.

    Raises InvalidSetting for a budget below 1 or fractions that are out of order.
    """
    if tokens < 1:
        raise InvalidSetting(f"token budget: expected at least 1, found {tokens}")
    if not 0 < target < threshold <= 1:
        raise InvalidSetting(
            "expected 0 < target_usage < compact_threshold <= 1, "
            f"found target_usage={target}, compact_threshold={threshold}"
        )
    return Budget(
        tokens,
        max(1, int(tokens * threshold)),
        max(1, int(tokens * target)),
        tokens // PERSONS_SHARE,
    )


def due(
    tokens: int,
    messages: int,
    budget: Budget,
    size_after_compaction: int,
    max_messages: int | None,
    messages_after_compaction: int = 0,
) -> Trigger | None:
    """Why a view of ``tokens`` and ``messages`` (without system messages) must be compacted now.

    None where no compaction is due. ``size_after_compaction`` and ``messages_after_compaction``
    are the view's size in tokens and in messages after the last compaction. A view that cannot be
    reduced must not cause one compaction per request. So where the last compaction stayed nearer
    to the threshold than to the target, the next one waits until the budget is exceeded; and
    where it left more messages than ``max_messages``, the next one waits until half of
    ``max_messages`` have been added. One that stayed above the target for less is followed by the
    next only when the view has grown by as much as lies between target and threshold: each
    compaction costs the provider's cached prefix, and a session with a small budget has many.
    """
    if tokens > budget.tokens:
        return "budget"
    stayed_high = size_after_compaction > (budget.target + budget.threshold) // 2
    grown = tokens - size_after_compaction >= budget.threshold - budget.target
    if tokens >= budget.threshold and grown and not stayed_high:
        return "threshold"
    if max_messages is not None:
        most = max_messages
        if messages_after_compaction > most:
            most = messages_after_compaction + max(1, most // 2)
        if messages > most:
            return "max_messages"
    return None


def convert_budget(budget: Budget, scale: Scale) -> Budget:
    """A budget in the estimator's own count; 1 token where there is no room for messages.

    The size of everything that is sent with the messages is taken off first; threshold and
    target are the same shares of the rest. A person's words keep their share of the whole.
    """
    tokens = max(1, scale.room(budget.tokens))
    return Budget(
        tokens,
        max(1, tokens * budget.threshold // budget.tokens),
        max(1, tokens * budget.target // budget.tokens),
        max(1, int(budget.words / scale.factor)),
    )


class Frame(NamedTuple):
    """The view that a compaction is decided on, as it is at position ``version``.

    ``budget`` is in the provider's tokens; ``scale`` makes them of the estimator's counts.
    ``thinking`` is the rule for the model that will read the view.
    """

    view: ViewState
    version: int
    budget: Budget
    scale: Scale
    thinking: ThinkingRule = BY_MODEL

    @property
    def goal(self) -> Budget:
        """The budget in the estimator's own counts."""
        return convert_budget(self.budget, self.scale)

    def tokens_of(self, view: ViewState) -> int:
        """The size of a view in the provider's tokens."""
        return self.scale.tokens(view.layout.tokens)


def due_for(frame: Frame, max_messages: int | None) -> Trigger | None:
    """As ``due``, for the view of a frame; and whether the tool loop in progress goes on first.

    A cut in a loop takes its thinking from a model that checks what is before it. So a compaction
    waits for the end of the loop until the budget is reached, or, as long as no provider has
    reported how far the estimate is off, the middle between threshold and budget.
    """
    view, goal = frame.view, frame.goal
    trigger = due(
        view.layout.tokens,
        0 if max_messages is None else conversation_length(view.layout),
        goal,
        view.size_after_compaction,
        max_messages,
        view.messages_after_compaction,
    )
    return None if trigger is not None and goes_on_first(frame) else trigger


def goes_on_first(frame: Frame) -> bool:
    """Whether the tool loop in progress goes on before the view is cut."""
    view, goal = frame.view, frame.goal
    line = goal.tokens if view.calibration.readings else (goal.threshold + goal.tokens) // 2
    if view.layout.tokens > line:
        return False
    return planned.in_open_loop(view.layout) and frame.thinking.spares_loops


def nearly_due(frame: Frame, share: float) -> bool:
    """Whether the view is as near to the threshold as ``share`` of it, and has grown since.

    That line is above the target. As in ``due``, a view has to grow by what lies between the two
    before the next compaction, so that one that cannot be reduced does not cause many.
    """
    tokens, goal = frame.view.layout.tokens, frame.goal
    line = int(goal.threshold * share)
    if line <= goal.target:
        line = (goal.target + goal.threshold) // 2
    return tokens >= line and tokens - frame.view.size_after_compaction >= line - goal.target
