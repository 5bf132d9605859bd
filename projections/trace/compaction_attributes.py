"""What a compaction says on its span: what was asked, what was decided, and what it came to.

Pure functions of one event. Message numbers are the transcript's, so every one of them can be
given to ``eventctx why``; reasons are the codes of ``plan.REASONS``. No content is in them: the
texts that a plan inserts or shortens stay in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from eventctx.log.events import PostCompact, PreCompact
from eventctx.log.plan import Plan
from eventctx.projections.flat import DISPOSITIONS, Scalar, capped
from eventctx.projections.trace import semconv as conv

MAX_RUNS: Final = 100
"""Runs of message numbers in one attribute; a count of those left out follows."""

Said = dict[str, Scalar | tuple[str, ...]]


def asked(event: PreCompact | PostCompact) -> Said:
    """What is known when a compaction begins."""
    said: Said = {
        "trigger": event.trigger,
        "strategy": event.strategy,
        "strategy_version": event.strategy_version,
    }
    if event.budget is not None:
        said["tokens.budget"] = event.budget
    if event.threshold is not None:
        said["tokens.threshold"] = event.threshold
    if event.requested_by is not None:
        said["requested_by"] = event.requested_by
    if isinstance(event, PreCompact):
        said["tokens.before"] = event.tokens
        said["messages.before"] = event.messages
        said |= _interceptors(event)
        for name, value in event.settings.items():
            if value is not None:
                said[f"setting.{name}"] = value
    return _named(said)


def came_to(event: PostCompact, position: int, digest: str) -> Said:
    """What is known when it ended, as the record at ``position`` with this (hex) digest."""
    before, after = event.tokens_before, event.tokens_after
    said: Said = {
        "outcome": event.outcome,
        "digest": digest,
        "tokens.before": before,
        "tokens.after": after,
        "tokens.reclaimed": before - after,
        "tokens.source": "estimate",
        "tokens.estimator": event.estimator,
        "tokens.factor": event.factor,
        "messages.before": event.messages_before,
        "messages.after": event.messages_after,
        "messages.removed": event.messages_before - event.messages_after,
    }
    if before:
        said["ratio"] = round(after / before, 4)
    if event.target is not None:
        said["tokens.target"] = event.target
    if event.fallback is not None:
        said["fallback"] = event.fallback
    if event.plan is not None:
        said |= _decided(event.plan)
    named = {conv.COMPACTION_ID: position, **_named(said)}
    if event.outcome == "applied":
        named[conv.CONVERSATION_COMPACTED] = True
    return named


def numbers_text(runs: Iterable[tuple[int, int]]) -> str:
    """Runs of message numbers as text: ``0-5,8,11-12``; at most ``MAX_RUNS`` of them."""
    joined: list[tuple[int, int]] = []
    for first, last in runs:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    text = ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in joined[:MAX_RUNS]
    )
    left = len(joined) - MAX_RUNS
    return f"{text} and {left} more runs" if left > 0 else text


def _interceptors(event: PreCompact) -> Said:
    said: Said = {}
    if event.reason is not None:
        said["reason"] = capped(event.reason)
    if event.veto is not None:
        said["veto"] = capped(event.veto)
    if event.pins:
        said["pins"] = numbers_text((number, number) for number in event.pins)
    return said


def _decided(plan: Plan) -> Said:
    """Per disposition the count, the numbers, and how many of them for which reason."""
    said: Said = {}
    for disposition in DISPOSITIONS:
        runs = [run for run in plan.runs if run.disposition == disposition]
        said[f"{disposition}.count"] = sum(run.last - run.first + 1 for run in runs)
        if runs:
            said[f"{disposition}.numbers"] = numbers_text((run.first, run.last) for run in runs)
            reasons: Counter[str] = Counter()
            for run in runs:
                reasons[run.reason] += run.last - run.first + 1
            said[f"{disposition}.reasons"] = tuple(
                f"{reason}={count}" for reason, count in reasons.most_common()
            )
    if plan.insertions:
        kinds = Counter(insertion.kind for insertion in plan.insertions)
        said["insertions"] = tuple(f"{kind}={count}" for kind, count in kinds.most_common())
    return said


def _named(said: Said) -> Said:
    return {conv.COMPACTION + name: value for name, value in said.items()}
