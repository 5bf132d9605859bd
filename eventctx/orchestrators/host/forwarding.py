"""Telling a host's hooks of the compactions that one of our contexts recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact, PreCompact
from eventctx.log.record import Record
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.protocol import Ids

_NAMES = ("context:pre_compact", "context:post_compact")


class Forwarding:
    """Collects a context's compactions during a turn; ``flush`` tells the host of them.

    It does nothing when the host has no hooks, when the context keeps no records, and when the
    context tells the host by itself (``emits_to_host``).
    """

    def __init__(self, context: Any, host: Host) -> None:
        self._context = context
        self._host = host
        self._waiting: list[Record] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect compactions inside of this block."""
        observe = getattr(self._context, "on", None)
        own = bool(getattr(self._context, "emits_to_host", False))
        if not callable(observe) or own or not self._host.listens:
            yield
            return
        stops = []
        try:
            for name in _NAMES:
                try:
                    stops.append(observe(name, self._waiting.append))
                except InvalidSetting:
                    break  # a context without an engine cannot be observed
            yield
        finally:
            for stop in stops:
                stop()

    async def flush(self) -> None:
        """Tell the host of the compactions collected since the last flush."""
        waiting, self._waiting[:] = list(self._waiting), []
        for record in waiting:
            ids = Ids(
                record.stream,
                record.turn_id,
                record.span_id,
                record.parent_span_id,
                record.iteration,
            )
            await self._host.tell(record.type, ids, payload(decode_known(record)))


def payload(event: Any) -> dict[str, Any]:
    """A compaction's event with the field names of the orchestrator specification and Amplifier."""
    if isinstance(event, PreCompact):
        return {
            "before_tokens": event.tokens,
            "before_messages": event.messages,
            "token_count": event.tokens,
            "message_count": event.messages,
            "strategy": event.strategy,
            "trigger": event.trigger,
            "budget": event.budget,
        }
    assert isinstance(event, PostCompact)  # noqa: S101 - there is no third
    return {
        "before_tokens": event.tokens_before,
        "before_messages": event.messages_before,
        "after_tokens": event.tokens_after,
        "after_messages": event.messages_after,
        "removed_tokens": event.tokens_before - event.tokens_after,
        "removed_messages": event.messages_before - event.messages_after,
        "token_count": event.tokens_after,
        "message_count": event.messages_after,
        "strategy": event.strategy,
        "trigger": event.trigger,
        "outcome": event.outcome,
        "budget": event.budget,
        "duration_ms": event.duration / 1e6,
        "error": event.error,
    }
