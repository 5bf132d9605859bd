"""The attributes of a compaction's span, and the whole in one sentence for a person.

``over budget: ~81,315 → ~15,940 tokens (63 dropped, 3 shortened); #0–#62: an old tool round or
message, dropped to reach the target``. A ``~`` marks our estimate; the count that an imported file
names itself has none.

Pure functions of one event. Message numbers are the transcript's, so ``eventctx why`` takes any of
them; reasons are the codes of ``presence.REASONS``. Attributes hold no content: the texts that a
plan inserts or shortens stay in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from eventctx.log.events import PostCompact, PreCompact, UsageReported, takes_back
from eventctx.log.naming import ranges_name
from eventctx.log.plan import Plan, Run
from eventctx.log.record import Record
from eventctx.projections.cache_cost import predict
from eventctx.projections.flat import DISPOSITIONS, Scalar, clip_field
from eventctx.projections.presence import describe_reason, describe_trigger
from eventctx.projections.trace import semconv as conv

MAX_RUNS: Final = 100
"""Runs of message numbers in one attribute; a count of those left out follows."""

_KEPT_WHOLE: Final = ("keep_recent", "fresh_tail_count")
"""Settings of policies that say how many of the last messages stay."""

CompactionAttributes = dict[str, Scalar | tuple[str, ...]]


def at_start(event: PreCompact | PostCompact) -> CompactionAttributes:
    """The attributes known when a compaction begins."""
    found: CompactionAttributes = {
        "trigger": event.trigger,
        "strategy": event.strategy,
        "strategy_version": event.strategy_version,
    }
    if event.budget is not None:
        found["tokens.budget"] = event.budget
    if event.threshold is not None:
        found["tokens.threshold"] = event.threshold
    if event.requested_by is not None:
        found["requested_by"] = event.requested_by
    if isinstance(event, PreCompact):
        found["estimated_tokens.before"] = event.tokens
        found["messages.before"] = event.messages
        found |= _interceptors(event)
        for name, value in event.settings.items():
            if value is not None:
                found[f"setting.{name}"] = value
        return (
            _sentence_attributes(describe_beginning(event))
            | _with_prefix(found)
            | _as_adk_begins(event)
        )
    return _with_prefix(found) | _as_adk_begins(event)


def at_end(event: PostCompact, record: Record) -> CompactionAttributes:
    """The attributes known at its end; ``record`` is the event's."""
    before, after = event.tokens_before, event.tokens_after
    found: CompactionAttributes = {
        "outcome": event.outcome,
        # A provider's count is reported only with the next request, after this span's end.
        "estimated_tokens.before": before,
        "estimated_tokens.after": after,
        "estimated_tokens.reclaimed": before - after,
        "tokens.estimator": event.estimator,
        "tokens.factor": event.factor,
        "messages.before": event.messages_before,
        "messages.after": event.messages_after,
        "messages.removed": event.messages_before - event.messages_after,
    }
    if before:
        found["ratio"] = round(after / before, 4)
    if event.tokens_recorded is not None:
        found["tokens.recorded"] = event.tokens_recorded
    if event.trigger == "imported" and event.duration:
        found["duration"] = event.duration
    if event.target is not None:
        found["tokens.target"] = event.target
    if event.fallback is not None:
        found["fallback"] = event.fallback
    if event.plan is not None:
        found |= _plan_attributes(event.plan)
    named = {
        **_sentence_attributes(describe_compaction(event)),
        conv.COMPACTION_ID: record.position,
        **_with_prefix(found),
        conv.COMPACTION_DIGEST: record.digest.hex(),
    }
    if event.outcome == "applied":
        named[conv.CONVERSATION_COMPACTED] = True
        named[conv.ADK_RESULT] = record.id.hex()
    if event.plan is not None:
        named |= _as_adk_decided(event, event.plan)
    return named


# -- the provider's cache ------------------------------------------------------------------------


class CacheSeen(NamedTuple):
    """The provider's cache as far as reports tell: what it holds, and how a session grew.

    ``held`` is the prompt of the last request, at position ``request``, as reported or estimated;
    ``first`` that of the first one since the last compaction, ``requests`` counts these.
    ``before`` is what the cache held at that compaction (0: there was none).
    """

    request: int = -1
    held: int = 0
    first: int = 0
    requests: int = 0
    before: int = 0

    def with_request(self, position: int, tokens: int) -> CacheSeen:
        """The state after a request of ``tokens``, by estimate."""
        first = self.first if self.requests else tokens
        return self._replace(request=position, held=tokens, first=first, requests=self.requests + 1)

    def with_report(self, event: UsageReported) -> CacheSeen:
        """The state after the report of a request."""
        if event.prepared != self.request or event.prompt <= 0:
            return self
        first = event.prompt if self.requests == 1 else self.first
        return self._replace(held=event.prompt, first=first)

    def with_compaction(self) -> CacheSeen:
        """The state after a compaction."""
        return self._replace(first=0, requests=0, before=self.held)


def predicted_attributes(seen: CacheSeen, event: PostCompact) -> CompactionAttributes:
    """What a compaction is predicted to do, as in ``timeline.cache_costs``; none without requests.

    The fold of spans holds no view, so it cannot say which part of the prompt stays equal.
    """
    if not seen.held or takes_back(event):
        return {}
    line = event.tokens_before if event.threshold is None else event.threshold
    growth = round((seen.held - seen.first) / (seen.requests - 1)) if seen.requests > 1 else 0
    cost = predict(
        held=seen.held,
        kept=0,
        saved=event.tokens_before - event.tokens_after,
        room=line - event.tokens_after,
        growth=max(0, growth),
    )
    found: CompactionAttributes = {"cache.held": cost.held}
    if cost.expected is not None:
        found["expected_requests"] = cost.expected
    return _with_prefix(found)


def given_up_attributes(seen: CacheSeen, event: UsageReported) -> CompactionAttributes:
    """What the first request after a compaction was not served, of what the cache held before."""
    if not seen.before or seen.requests != 1 or event.prepared != seen.request:
        return {}
    if not event.cache_read and not event.cache_write:
        return {}  # a provider that reports no cache
    return {conv.CACHE_GIVEN_UP: max(0, seen.before - event.cache_read)}


def numbers_text(runs: Iterable[tuple[int, int]]) -> str:
    """Runs of message numbers as text, ``0-5,8,11-12``; at most ``MAX_RUNS`` of them."""
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


def _sentence_attributes(words: str) -> CompactionAttributes:
    """The sentence, first among all attributes, and first among those of Jaeger's GenAI view."""
    return {conv.COMPACTION_SENTENCE: words, conv.COMPACTION_DESCRIPTION: words}


def _as_adk_begins(event: PreCompact | PostCompact) -> CompactionAttributes:
    found: CompactionAttributes = {conv.ADK_TRIGGER: event.trigger}
    if event.threshold is not None:
        found[conv.ADK_THRESHOLD] = event.threshold
    settings = event.settings if isinstance(event, PreCompact) else {}
    for name in _KEPT_WHOLE:
        kept = settings.get(name)
        if type(kept) is int:
            found[conv.ADK_RETENTION] = kept
    return found


def _as_adk_decided(event: PostCompact, plan: Plan) -> CompactionAttributes:
    gone = [run for run in plan.runs if run.disposition in ("dropped", "summarised", "merged")]
    count = sum([run.last - run.first + 1 for run in gone])
    found: CompactionAttributes = {conv.ADK_EVENT_COUNT: count}
    wrote = any(one.kind == "summary" and one.at is None for one in plan.insertions)
    if wrote and event.trigger != "imported":  # whose file does not name its summarizer
        found[conv.ADK_SUMMARIZER] = event.fallback or event.strategy
    return found


def _interceptors(event: PreCompact) -> CompactionAttributes:
    found: CompactionAttributes = {}
    if event.reason is not None:
        found["reason"] = clip_field(event.reason)
    if event.veto is not None:
        found["veto"] = clip_field(event.veto)
    if event.pins:
        found["pins"] = numbers_text((number, number) for number in event.pins)
    if event.texts or event.texts_left_out:
        found["texts"] = event.texts
        found["texts_left_out"] = event.texts_left_out
    if event.background:
        found["background"] = True
    return found


def _plan_attributes(plan: Plan) -> CompactionAttributes:
    """Per disposition the number of messages, their numbers, and a count for each reason."""
    found: CompactionAttributes = {}
    for disposition in DISPOSITIONS:
        runs = [run for run in plan.runs if run.disposition == disposition]
        found[f"{disposition}.count"] = sum(run.last - run.first + 1 for run in runs)
        if runs:
            found[f"{disposition}.numbers"] = numbers_text((run.first, run.last) for run in runs)
            reasons: Counter[str] = Counter()
            for run in runs:
                reasons[run.reason] += run.last - run.first + 1
            found[f"{disposition}.reasons"] = _count_codes(reasons)
    if plan.insertions:
        kinds = Counter(insertion.kind for insertion in plan.insertions)
        found["insertions"] = _count_codes(kinds)
        quoted = sorted({run for insertion in plan.insertions for run in insertion.demands})
        if quoted:
            found["instructions.numbers"] = numbers_text(quoted)
    return found


def _count_codes(codes: Counter[Any]) -> str:
    """Codes with their numbers as a text: Jaeger draws a list as a tree of four lines."""
    return ", ".join([f"{code}={count}" for code, count in codes.most_common()])


def _with_prefix(found: CompactionAttributes) -> CompactionAttributes:
    return {conv.COMPACTION + name: value for name, value in found.items()}


MAX_REASONS: Final = 3
"""Reasons in a sentence; the attributes have all of them."""
MAX_RANGES: Final = 4
"""Ranges of message numbers for one reason."""

_WENT: Final = ("dropped", "summarised", "merged", "shortened")


def describe_beginning(event: PreCompact) -> str:
    """A compaction in words before anything is decided."""
    trigger = describe_trigger(event.trigger).short
    while_ = ", in the background" if event.background else ""
    return f"{trigger}: ~{event.tokens:,} tokens in {event.messages:,} messages{while_}"


def describe_compaction(event: PostCompact) -> str:
    """The effect of a compaction in words, and the messages, or why it did nothing."""
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
