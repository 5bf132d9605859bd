"""The threads of a saver, and what changes a whole one: pruning, deleting runs, copying.

Checkpoints are relative to each other, so those that stay are written anew, and only then are the
parts of all before them destroyed. A process that is killed in between leaves more than was asked,
and the next call destroys it.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.kit.given_engine import GivenEngine
from eventctx.adapters.langgraph.controls import Put
from eventctx.adapters.langgraph.index import Saved
from eventctx.adapters.langgraph.loading import LoadedCheckpoint
from eventctx.adapters.langgraph.parts import CONTROL, SOURCE, decode_control
from eventctx.adapters.langgraph.thread import TaskPut, ThreadLog
from eventctx.adapters.langgraph.values import Piece
from eventctx.engine import Engine
from eventctx.log.codec import decode_event, encode_event, raw_of
from eventctx.log.events import Erased, ImportRaw
from eventctx.log.record import Draft
from eventctx.log.store import Address, EventStore, Receipt
from eventctx.session.context import Context

MOST_THREADS: Final = 64
"""Threads whose addresses are held; the least recently used is left first."""


async def session_of_thread(store: EventStore, thread: str) -> tuple[str, bool]:
    """The name of a thread's session, and whether it exists.

    It is the thread's own, and after a deletion, which leaves that name to a record of it,
    ``THREAD~2``, and so on. Raises what the store raises.
    """
    name, number = thread, 1
    while True:
        info = await store.head(name)
        if info is None or not info.deleted:
            return name, info is not None
        number += 1
        name = f"{thread}~{number}"


async def thread_in(store: EventStore, session: str) -> str | None:
    """The thread whose checkpoints a session holds; None if it holds none."""
    async for record in store.read(session, bodies=False):
        if record.type != "import:raw":
            continue
        event = decode_event(record)
        if isinstance(event, ImportRaw) and event.source == SOURCE and CONTROL in event.kinds:
            async for whole in store.read(session, start=record.position, stop=record.position):
                data = raw_of(whole)
                thread = "" if data is None else decode_control(data).thread
                if thread:
                    return thread
    return None


class Threads:
    """The threads of a saver. The addresses of the last used ones are held.

    The engine is ``given``, and ``settings`` are those of its sessions.
    """

    def __init__(
        self,
        given: GivenEngine,
        serde: SerializerProtocol,
        channel: str,
        settings: Mapping[str, Any],
    ) -> None:
        self._given = given
        self._serde = serde
        self._channel = channel
        self._settings = settings
        self._held: OrderedDict[str, ThreadLog] = OrderedDict()

    def get(self, thread: str) -> ThreadLog | None:
        """A thread that is held."""
        return self._held.get(thread)

    def held(self) -> list[str]:
        """The names of the threads that are held."""
        return list(self._held)

    async def existing(self, thread: str) -> ThreadLog | None:
        """The thread's session, up to date; None if there is none."""
        log = self._held.get(thread)
        if log is None:
            name, there = await session_of_thread(self._given.engine.store, thread)
            if not there:
                return None
            log = self._hold(name, thread)
        await log.catch_up()
        if log.index.deleted:  # by somebody else
            del self._held[thread]
            return await self.existing(thread)
        self._held.move_to_end(thread)
        return log

    async def opened(self, thread: str) -> ThreadLog:
        """The thread's session, which is begun where there is none."""
        log = await self.existing(thread)
        if log is None:
            name, _ = await session_of_thread(self._given.engine.store, thread)
            log = self._hold(name, thread)
        return log

    def _hold(self, name: str, thread: str) -> ThreadLog:
        engine = self._given.engine
        context: Callable[[], Awaitable[Context]] = partial(engine.session, name, **self._settings)
        log = ThreadLog(engine.store, name, thread, self._serde, self._channel, context)
        self._held[thread] = log
        for old in [one for one, of in self._held.items() if not of.pending]:
            if len(self._held) <= MOST_THREADS or old == thread:
                break
            del self._held[old]
        return log

    async def delete(self, thread: str) -> None:
        """Destroy the thread's session, if there is one."""
        self._held.pop(thread, None)
        name, there = await session_of_thread(self._given.engine.store, thread)
        if there:
            await self._given.engine.delete(name, reason="deleted by LangGraph")

    async def names(self) -> list[str]:
        """The threads of the store that have a checkpoint. Looks into every session."""
        found = []
        async for info in self._given.engine.each_session():
            if not info.deleted:
                thread = await thread_in(self._given.engine.store, info.stream)
                if thread is not None:
                    found.append(thread)
        return found


async def copy(source: ThreadLog, target: ThreadLog, serde: SerializerProtocol) -> None:
    """Append all checkpoints of one thread, with their messages and writes, to another one."""
    await source.flush()
    loader = source.loader(serde)
    for saved in sorted(source.saved(), key=lambda one: one.position):
        loaded = await loader.load(source.thread, saved)
        target.pending += _writes_of(target, saved, loaded)
        await target.put(_put_of(saved, loaded))


async def rewrite(
    engine: Engine, log: ThreadLog, serde: SerializerProtocol, kept: Sequence[Saved], reason: str
) -> None:
    """Destroy all checkpoints but those ``kept``. Raises what the store raises."""
    await log.flush()
    if len(kept) == len(log.saved()):
        return
    last = log.index.position
    loader = log.loader(serde)
    for saved in sorted(kept, key=lambda one: one.position):
        loaded = await loader.load(log.thread, saved)
        rests: dict[int, Piece] = {}
        for number in loaded.numbers:
            if log.index.rests.get(number, last + 1) <= last and log.index.said[number]:
                rests[number] = log.boxer.made(loader.message(number))
        parent = log.index.find(saved.ns, loaded.whole.parent or "")
        log.pending += _writes_of(log, saved, loaded)
        put = _put_of(saved, loaded)
        whole = parent is None or parent.position <= last
        await log.put(put._replace(runs=loaded.whole.runs, whole=whole, rests=rests))
    await _destroy(engine, log, last, reason)


def _put_of(saved: Saved, loaded: LoadedCheckpoint) -> Put:
    checkpoint: dict[str, object] = dict(loaded.saved.checkpoint)
    changed = frozenset(loaded.saved.checkpoint["channel_values"])
    return Put(saved.ns, checkpoint, dict(loaded.saved.metadata), changed, loaded.whole.parent)


def _writes_of(log: ThreadLog, saved: Saved, loaded: LoadedCheckpoint) -> list[TaskPut]:
    return [
        TaskPut(
            saved.ns, saved.id, task, path, [(channel, number, log.boxer.box(value))], again=True
        )
        for task, path, channel, number, value in loaded.writes
    ]


async def _destroy(engine: Engine, log: ThreadLog, last: int, reason: str) -> None:
    """Destroy the parts up to ``last``, but for those that a fork of the session has, too."""
    store, stream = log.store, log.stream
    info = await store.head(stream)
    shared = -1 if info is None or info.forked_at is None else info.forked_at
    for name in await store.forks(stream):
        fork = await store.head(name)
        if fork is not None and fork.forked_at is not None:
            shared = max(shared, fork.forked_at)
    gone = sorted([one for one in log.index.parts if shared < one <= last])
    if not gone:
        return
    event = Erased(numbers=(), bodies=tuple([(one, 0) for one in gone]), reason=reason)
    name, version, payload = encode_event(event)
    now = time.time_ns()
    async for record in store.read(stream, backward=True, limit=1, bodies=False):
        now = max(now, record.time)
    draft = Draft(os.urandom(16), name, version, now, payload)
    bodies = {Address(one, 0): b"" for one in gone}
    erased = await store.erase({stream: bodies}, {stream: draft})
    for record in erased.records:
        engine.note_receipt(Receipt(record.stream, record.position, record.digest))
    await log.catch_up()
