"""A compaction in the payloads that Amplifier's hooks and logs expect: counts and ids, no contents.

The counts are there under every name that the host's modules use; see ``log/compaction_counts.py``.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.log.events import PostCompact
from eventctx.log.record import Record
from eventctx.orchestrators.host.compaction_counts import CompactionCounts
from eventctx.policies.advisers import CompactionAsked
from eventctx.projections.flat import dispositions

EVENTS: Final = (
    "context:pre_compact",
    "context:post_compact",
    "context:compaction",
    "context:compact",
)
"""The events on the host's registry. The last one is from its guide to context managers."""

MAX_TEXT: Final = 1_000
"""Longest text of an error or a reason, in characters."""


def before(request: CompactionAsked) -> dict[str, Any]:
    """``context:pre_compact``."""
    event = request.event
    return {
        "session_id": request.session,
        "turn_id": request.turn_id,
        "span_id": request.span_id,
        "parent_span_id": request.parent_span_id,
        "iteration": request.iteration,
        "trigger": event.trigger,
        "strategy": event.strategy,
        **CompactionCounts(event.tokens, event.messages).before(),
        "budget": event.budget,
        "threshold": event.threshold,
        "requested_by": event.requested_by,
        "reason": _short(event.reason),
    }


def after(record: Record, event: PostCompact) -> dict[str, Any]:
    """``context:post_compact``."""
    return {
        **_ids(record),
        **_counts(event),
        "position": record.position,
        "outcome": event.outcome,
        "trigger": event.trigger,
        "strategy": event.strategy,
        "fallback": event.fallback,
        "budget": event.budget,
        "threshold": event.threshold,
        "target": event.target,
        "duration_ms": round(event.duration / 1e6, 3),
        "error": _short(event.error),
        **({} if event.plan is None else dispositions(event.plan)),
    }


def compaction(record: Record, event: PostCompact) -> dict[str, Any]:
    """``context:compaction``, which context-simple emits and hosts log, and ``context:compact``."""
    counts = {} if event.plan is None else dispositions(event.plan)
    return {
        **_ids(record),
        **_counts(event),
        "messages_truncated": counts.get("shortened", 0),
        "user_messages_stubbed": 0,
        "strategy_level": event.strategy,
        "budget": event.budget,
        "target_tokens": event.target,
        "trigger": event.trigger,
        "outcome": event.outcome,
        "duration_ms": round(event.duration / 1e6, 3),
    }


def _ids(record: Record) -> dict[str, Any]:
    return {
        "session_id": record.stream,
        "turn_id": record.turn_id,
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "iteration": record.iteration,
    }


def _counts(event: PostCompact) -> dict[str, int]:
    return CompactionCounts(
        event.tokens_before, event.messages_before, event.tokens_after, event.messages_after
    ).after()


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT]
