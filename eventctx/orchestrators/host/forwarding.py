"""Telling a host's hooks of compactions: those that our contexts recorded, and those overheard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact, PreCompact
from eventctx.log.record import Record
from eventctx.orchestrators.host.compaction_counts import CompactionCounts
from eventctx.orchestrators.host.hooks import Host
from eventctx.orchestrators.host.overhearing import POST, PRE, Overheard
from eventctx.orchestrators.protocol import Ids


class Forwarding:
    """Collects a context's compactions during a turn, and tells the host of them.

    It does nothing when the host has no hooks, and when the context tells the host by itself
    (``emits_to_host``). A context without records of its own is overheard on the host's registry.
    """

    def __init__(self, context: Any, host: Host) -> None:
        self._context = context
        self._host = host
        self._waiting: list[Record] = []
        self._overheard = Overheard(host)

    @asynccontextmanager
    async def listening(self, turn: Ids) -> AsyncIterator[None]:
        """Collect compactions inside of this block, and tell of them at its end at the latest."""
        if bool(getattr(self._context, "emits_to_host", False)) or not self._host.listens:
            yield
        elif callable(getattr(self._context, "on", None)):
            with self._observing():
                yield
        else:
            with self._overheard.listening(turn):
                try:
                    yield
                finally:
                    self._overheard.at(turn)
                    await self._overheard.end()

    @contextmanager
    def _observing(self) -> Iterator[None]:
        stops = []
        try:
            for name in (PRE, POST):
                try:
                    stops.append(self._context.on(name, self._waiting.append))
                except InvalidSetting:
                    break  # a context without an engine cannot be observed
            yield
        finally:
            for stop in stops:
                stop()

    @asynccontextmanager
    async def around(self, call: Ids) -> AsyncIterator[None]:
        """Tell of the compactions inside of this block at its end, as work before ``call``.

        A request is prepared before its call's span begins, so both are children of one span.
        """
        self._overheard.at(msgspec.structs.replace(call, span_id=call.parent_span_id))
        try:
            yield
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Tell the host of the compactions collected since the last flush."""
        await self._overheard.flush()
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
            **CompactionCounts(event.tokens, event.messages).before(),
            "strategy": event.strategy,
            "trigger": event.trigger,
            "budget": event.budget,
        }
    assert isinstance(event, PostCompact)  # noqa: S101 - there is no third
    counts = CompactionCounts(
        event.tokens_before, event.messages_before, event.tokens_after, event.messages_after
    )
    return {
        **counts.after(),
        "strategy": event.strategy,
        "trigger": event.trigger,
        "outcome": event.outcome,
        "budget": event.budget,
        "duration_ms": event.duration / 1e6,
        "error": event.error,
    }
