"""Telling a host's hooks of compactions: those that our contexts recorded, and those overheard.

A context of another library tells of its compactions in words of its own: context-simple emits
``context:compaction`` when one has ended, context-managed ``context:compaction_started`` and
``_finished``. Hosts listen to the orchestrator specification's ``context:pre_compact`` and
``context:post_compact``, so these two are emitted for each compaction, in this order. The first of
them is late where the context only tells of the end; its ``told_after`` says so. A context that
emits the two itself is left to it, and one that compacts in silence cannot be heard.

The kernel calls plain functions from another thread, so handlers only note what they hear.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.log.events import PostCompact, PreCompact
from eventctx.log.ids import new_span_id, random_bytes
from eventctx.log.record import Record
from eventctx.orchestrators.host.compaction_counts import CompactionCounts
from eventctx.orchestrators.host.hooks import Host
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


PRE, POST = "context:pre_compact", "context:post_compact"

_BEGAN: Final = "context:compaction_started"
_ENDED: Final = "context:compaction_finished"
_WHOLE: Final = ("context:compaction", "context:compact")
"""A compaction in one event, under the name that context-simple uses and that of the guide."""

_FIRST: Final = -1_000
"""We come before other handlers, because a handler that denies hides the event from later ones."""

_log = logging.getLogger("eventctx.orchestrators")


class _Open(msgspec.Struct):
    """A compaction that began: its ids, and the latest data about it."""

    ids: Ids
    data: dict[str, Any]


class Overheard:
    """The compactions that a host's registry tells of, in one turn."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._noted: deque[tuple[str, dict[str, Any]]] = deque()
        self._spans: set[str | None] = set()
        self._by_itself: set[str] = set()
        self._open: _Open | None = None
        self._place = Ids("")

    @contextmanager
    def listening(self, ids: Ids) -> Iterator[None]:
        """Hear the registry inside of this block; ``ids`` are the turn's."""
        self.at(ids)
        register = self._host.register
        if register is None:
            yield
            return
        handlers = {
            _BEGAN: self._began,
            **dict.fromkeys((*_WHOLE, _ENDED), self._note),
            **dict.fromkeys((PRE, POST), self._note_own),
        }
        stops: list[Any] = []
        try:
            for event, handler in handlers.items():
                name = f"eventctx-{id(self)}:{event}"
                stops.append(register(event, handler, priority=_FIRST, name=name))
        except TypeError:
            _log.debug("the hooks have a register() of another kind; compactions are not heard")
        try:
            yield
        finally:
            for stop in stops:
                if callable(stop):
                    stop()

    def at(self, ids: Ids) -> None:
        """Place the compactions from now on: children of the span of ``ids``, in its iteration."""
        self._place = ids

    async def flush(self) -> None:
        """Tell the host of the compactions that were noted since the last flush."""
        last: tuple[str, CompactionCounts] | None = None
        while self._noted:
            event, data = self._noted.popleft()
            began = self._open
            if event == _ENDED:
                ids = self._new_ids() if began is None else began.ids
                known = {} if began is None else began.data
                self._open = None
                await self._tell_end(ids, {**known, **data}, late=began is None)
            elif began is not None:
                began.data |= data
            else:
                counts = CompactionCounts.read(data)
                twice = last is not None and last[0] != event and last[1] == counts
                last = None if twice else (event, counts)
                if not twice and not counts.unchanged:
                    await self._tell_end(self._new_ids(), data, late=True)

    async def end(self) -> None:
        """Flush, and tell the end of a compaction whose context did not."""
        await self.flush()
        began, self._open = self._open, None
        if began is not None:
            await self._tell_end(began.ids, {**began.data, "outcome": "unknown"}, late=False)

    # -- handlers --------------------------------------------------------------------------------

    def _note(self, event: str, data: Mapping[str, Any]) -> None:
        if self._concerns_us(data):
            self._noted.append((event, dict(data)))

    def _note_own(self, event: str, data: Mapping[str, Any]) -> None:
        if self._concerns_us(data) and data.get("span_id") not in self._spans:
            self._by_itself.add(event)

    async def _began(self, event: str, data: Mapping[str, Any]) -> None:
        if not self._concerns_us(data):
            return
        await self.end()
        self._open = _Open(self._new_ids(), dict(data))
        if PRE not in self._by_itself:
            counts = CompactionCounts.read(data).before()
            await self._host.tell(PRE, self._open.ids, {**counts, **_reasons(data)})

    def _concerns_us(self, data: Mapping[str, Any]) -> bool:
        return data.get("session_id") in (None, self._place.session_id, self._host.session_id)

    # -- telling ---------------------------------------------------------------------------------

    def _new_ids(self) -> Ids:
        place, span = self._place, new_span_id(random_bytes)
        self._spans.add(span)
        return msgspec.structs.replace(place, span_id=span, parent_span_id=place.span_id)

    async def _tell_end(self, ids: Ids, data: Mapping[str, Any], *, late: bool) -> None:
        counts, reasons = CompactionCounts.read(data), _reasons(data)
        if late and PRE not in self._by_itself:
            before = {**counts.before(), **reasons, "told_after": True}
            await self._host.tell_end(PRE, ids, before)
        if POST not in self._by_itself:
            await self._host.tell_end(POST, ids, {**counts.after(), **reasons, **_outcome(data)})


def _reasons(data: Mapping[str, Any]) -> dict[str, Any]:
    level = data.get("strategy_level")
    strategy = data.get("strategy") or data.get("method")
    return {
        "strategy": f"level {level}" if strategy is None and level is not None else strategy,
        "trigger": data.get("trigger"),
        "budget": data.get("budget"),
    }


def _outcome(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "outcome": data.get("outcome") or "applied",
        "duration_ms": data.get("duration_ms", data.get("elapsed_ms")),
        "error": data.get("error"),
    }
