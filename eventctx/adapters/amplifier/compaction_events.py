"""The compactions of one session, emitted on the host's registry; its hooks may veto one.

The payloads are those that Amplifier's hooks and logs expect: counts and ids, no contents. The
counts are under every name that the host's modules use (``orchestrators/host/compaction_counts``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from eventctx.engine import Engine
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact
from eventctx.log.record import Record
from eventctx.orchestrators.host.compaction_counts import CompactionCounts
from eventctx.policies.advisers import CompactionAsked, Verdict
from eventctx.projections.flat import dispositions
from eventctx.session.context import Context


class CompactionEvents:
    """Emits to ``hooks`` what became of each compaction, when ``tell`` is called."""

    def __init__(self, session: str, hooks: Any) -> None:
        self._session = session
        self._hooks = hooks
        self._ended: list[Record] = []

    def follow(self, engine: Engine, context: Context) -> list[Callable[[], None]]:
        """Listen to the session; returns the functions that end it."""
        return [
            context.on("context:post_compact", self._ended.append),
            engine.intercept("context:pre_compact", self._ask),
        ]

    async def _ask(self, request: CompactionAsked) -> Verdict | None:
        """Tell the host that a compaction begins; a denial is a veto."""
        if request.session != self._session:
            return None
        result = await self._hooks.emit("context:pre_compact", payload_before(request))
        if getattr(result, "action", None) == "deny":
            return Verdict(veto=str(getattr(result, "reason", None) or "a hook of the host denied"))
        return None

    async def tell(self) -> None:
        """Tell the host of compactions that ended, with the specifications' field names."""
        while self._ended:
            record = self._ended.pop(0)
            event: PostCompact = decode_known(record)
            await self._hooks.emit("context:post_compact", payload_after(record, event))
            if event.outcome == "applied":
                payload = payload_of_compaction(record, event)
                await self._hooks.emit("context:compaction", payload)
                await self._hooks.emit("context:compact", payload)


EVENTS: Final = (
    "context:pre_compact",
    "context:post_compact",
    "context:compaction",
    "context:compact",
)
"""The events on the host's registry. The last one is from its guide to context managers."""

MAX_TEXT: Final = 1_000
"""Longest text of an error or a reason, in characters."""


def payload_before(request: CompactionAsked) -> dict[str, Any]:
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


def payload_after(record: Record, event: PostCompact) -> dict[str, Any]:
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


def payload_of_compaction(record: Record, event: PostCompact) -> dict[str, Any]:
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
