"""A compaction in one sentence, for a person who has just found its span.

``over budget: ~81,315 → ~15,940 tokens (63 dropped, 3 shortened); #0–#62: an old tool round or
message, dropped to reach the target``. It is a pure function of the event, and takes the words of
triggers and reasons from ``projections.explain.wording``, as all screens do. A ``~`` marks our
estimate; the count that an imported file names itself has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from eventctx.log.events import PostCompact, PreCompact
from eventctx.log.naming import ranges_name
from eventctx.log.plan import Plan, Run
from eventctx.projections.presence import describe_reason, describe_trigger

MAX_REASONS: Final = 3
"""Reasons in a sentence; the attributes have all of them."""
MAX_RANGES: Final = 4
"""Ranges of message numbers for one reason."""

_WENT: Final = ("dropped", "summarised", "merged", "shortened")


def beginning(event: PreCompact) -> str:
    """What is known of a compaction before anything is decided."""
    trigger = describe_trigger(event.trigger).short
    return f"{trigger}: ~{event.tokens:,} tokens in {event.messages:,} messages"


def sentence(event: PostCompact) -> str:
    """What a compaction did, and to which messages, or why it did nothing."""
    trigger = describe_trigger(event.trigger).short
    by = "" if event.fallback is None else f", done by {event.fallback}"
    if event.outcome != "applied":
        # The error of a failed one is the status of its span, in the same words.
        why = "" if event.error is None or event.outcome == "failed" else f": {event.error}"
        return f"{trigger}: {event.outcome} at ~{event.tokens_before:,} tokens{by}{why}"
    sizes = f"~{event.tokens_before:,} → ~{event.tokens_after:,} tokens"
    if event.tokens_recorded is not None:
        sizes += f", {event.tokens_recorded:,} before by the file's own count"
    if event.plan is None:
        return f"{trigger}: {sizes}{by}"
    counts = _counts(event.plan)
    done = f" ({counts})" if counts else ""
    return "; ".join([f"{trigger}: {sizes}{done}{by}", *_reasons(event.plan)])


def _counts(plan: Plan) -> str:
    """``63 dropped, 3 shortened, 1 summary put in``."""
    gone: Counter[str] = Counter()
    for run in plan.runs:
        gone[run.disposition] += run.last - run.first + 1
    # One with a position was put in by an earlier compaction, and stays.
    kinds = Counter(insertion.kind for insertion in plan.insertions if insertion.at is None)
    words = [f"{gone[name]:,} {name}" for name in _WENT if gone[name]]
    words += [f"{count:,} {_several(kind, count)} put in" for kind, count in kinds.items()]
    return ", ".join(words)


def _several(kind: str, count: int) -> str:
    word = kind.replace("_", " ")
    if count == 1:
        return word
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def _reasons(plan: Plan) -> Iterable[str]:
    """The messages that did not stay as they were, by reason; those of most messages first."""
    groups: dict[str, list[Run]] = {}
    for run in plan.runs:
        if run.disposition in _WENT:
            groups.setdefault(run.reason, []).append(run)
    sizes = {reason: sum([run.last - run.first + 1 for run in runs])
             for reason, runs in groups.items()}  # fmt: skip
    ordered = sorted(groups, key=lambda reason: -sizes[reason])
    for reason in ordered[:MAX_REASONS]:
        runs = groups[reason]
        ranges = ranges_name((run.first, run.last) for run in runs[:MAX_RANGES])
        left = len(runs) - MAX_RANGES
        more = f" and {left:,} more {'range' if left == 1 else 'ranges'}" if left > 0 else ""
        yield f"{ranges}{more}: {describe_reason(reason) or reason}"
    others = sum([sizes[reason] for reason in ordered[MAX_REASONS:]])
    if others:
        yield f"{others:,} {'message' if others == 1 else 'messages'} for other reasons"
