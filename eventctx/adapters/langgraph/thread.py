"""One thread of LangGraph as a session: what a step appends, and how its state is read again.

Invariant: a checkpoint is appended together with the messages that it has and the writes that led
to it, in one append. So after a crash the newest checkpoint in the log is whole. A task's writes
wait for the next checkpoint, at most ``WAIT_SECONDS``; errors, interrupts and resumes go at once.
The messages of the outermost graph are the session's transcript.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.kit.loops import writing_lock
from eventctx.adapters.langgraph.alignment import (
    MOST_ROWS,
    Aligner,
    Alignment,
    HeldMessages,
)
from eventctx.adapters.langgraph.controls import COUNTERS, ControlMaker, Made, Put
from eventctx.adapters.langgraph.index import Saved, ThreadIndex
from eventctx.adapters.langgraph.loading import Loader
from eventctx.adapters.langgraph.parts import PartWriter, TaskWrites, control_part
from eventctx.adapters.langgraph.values import Box, Piece, numbers_of
from eventctx.log.store import EventStore, last_position
from eventctx.session.context import Context
from eventctx.session.host_state import Extension

WAIT_SECONDS: Final = 0.05
"""Seconds that the writes of a task wait at most for a checkpoint to go with."""

MOST_SECONDS: Final = 2.0
"""Seconds after which they go, though the checkpoint that they are for is not saved."""


class TaskPut(NamedTuple):
    """The writes of a task to a checkpoint, each with its channel and index.

    ``since`` is the time of the call, as ``time.monotonic`` counts.
    """

    ns: str
    checkpoint: str
    task: str
    path: str
    writes: list[tuple[str, int, Box]]
    again: bool = False
    since: float = 0.0


def _differs(metadata: Mapping[str, Any], wanted: Mapping[str, Any], *, missing: bool) -> bool:
    """Whether metadata has another value than wanted; ``missing``: or lacks it."""
    return any(
        metadata[key] != value if key in metadata else missing and value is not None
        for key, value in wanted.items()
    )


class ThreadStep(NamedTuple):
    """What one append brings: messages, the writes ``taken``, and the checkpoint ``made``."""

    extension: Extension
    taken: list[TaskPut]
    aligned: Alignment
    made: Made | None = None


class Wanted(NamedTuple):
    """The checkpoints that are asked for: of a namespace, of an id, with ids before ``end``.

    ``filter`` are values of their metadata, ``limit`` is the greatest number of them.
    """

    ns: str | None
    id: str | None
    end: str | None
    filter: Mapping[str, Any]
    limit: int | None


class ThreadLog:
    """A thread's session. Its methods are called in the engine's loop, one after the other.

    ``pending`` are writes that wait for a checkpoint; ``waits``: they will be looked at again.
    """

    def __init__(
        self,
        store: EventStore,
        stream: str,
        thread: str,
        serde: SerializerProtocol,
        channel: str,
        context: Callable[[], Awaitable[Context]],
    ) -> None:
        self.store = store
        self.stream = stream
        self.thread = thread
        self.index = ThreadIndex()
        self.pending: list[TaskPut] = []
        self.waits = False
        self._aligner = Aligner(self.index, serde)
        self.boxer = self._aligner.boxer
        self._controls = ControlMaker(thread, channel, self.index, self.boxer)
        self._channel = channel
        self._context = context
        self._sets = 0
        self._tasks: set[asyncio.Future[None]] = set()
        self._opened: Context | None = None

    # -- appending -------------------------------------------------------------------------------

    async def put(self, put: Put) -> None:
        """Append a checkpoint, after the writes that wait. Raises what the store raises."""
        await self._append(partial(self._compose, put))

    async def flush(self, *, force: bool = False) -> None:
        """Append the writes that wait, with ``force`` those of unknown checkpoints, too.

        A checkpoint that LangGraph has not saved yet comes soon, and takes its own along.
        """
        if self._ready(None, force=force):
            await self._append(partial(self._compose_writes, force))

    async def _append(self, compose: Callable[[], ThreadStep]) -> None:
        step: list[ThreadStep] = []

        async def decide(position: int) -> Extension:
            await self.catch_up(position)
            step[:] = [compose()]
            return step[0].extension

        if self._opened is None:
            self._opened = await self._context()
        async with writing_lock(self._opened):
            for record in await self._opened.extend(decide):
                self.index.fold(record)
        self._done(step[0])

    def _done(self, step: ThreadStep) -> None:
        """Note what was appended."""
        self._sets = self.index.sets
        self.pending = [one for one in self.pending if not any(one is it for it in step.taken)]
        if not self.pending:
            self._aligner.drafted.clear()
        if step.aligned.tail is not None:
            self._aligner.hold(step.aligned.tail, step.aligned.start)
        self._aligner.note_rows(step.aligned.rows)
        if step.made is not None:
            last = self.index.position  # that of the control
            apart = step.made.whole.apart
            self._controls.values.store(step.made.held, last - 1 if apart else last)
            self.index.hold_whole(step.made.whole, last)

    def add(self, task: TaskPut) -> None:
        """Let the writes of a task wait for a checkpoint."""
        self.pending.append(task)
        for _, _, box in task.writes:
            self._aligner.drafted.update({id(one.message): one for one in box.messages if one.row})

    def in_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Let a task of the running loop do this, and hold the task until its end."""
        task = asyncio.ensure_future(work)
        # Its loop may be left while it sleeps, at the end of a program: the log lacks no checkpoint
        # by that, and asyncio, which spares its own tasks the same way, need not tell it.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def catch_up(self, position: int | None = None) -> None:
        """Fold the records until ``position``, or all. Raises what the store raises."""
        index = self.index
        last = await last_position(self.store, self.stream) if position is None else position
        if last <= index.position:
            return
        async for record in self.store.read(self.stream, start=index.position + 1, stop=last):
            index.fold(record)
        if self._sets != index.sets:  # somebody else has set the transcript
            self._sets = index.sets
            self._aligner.hold(HeldMessages([], [], []))

    def _ready(self, put: Put | None, *, force: bool = False) -> list[TaskPut]:
        """The writes that go with a checkpoint, or by themselves."""
        if put is not None:
            own = put.checkpoint["id"]
            return [one for one in self.pending if self._goes_with(one, own, put)]
        old = time.monotonic() - MOST_SECONDS
        return [
            one
            for one in self.pending
            if force or one.since < old or self.index.find(one.ns, one.checkpoint) is not None
        ]

    def _goes_with(self, task: TaskPut, own: str, put: Put) -> bool:
        if task.ns == put.ns and task.checkpoint == (own if task.again else put.parent):
            return True
        latest = self.index.latest(task.ns)  # the writes may come after what was made of them
        late = latest is not None and latest.id != task.checkpoint
        return late and self.index.find(task.ns, task.checkpoint) is not None

    # -- reading ---------------------------------------------------------------------------------

    def loader(self, serde: SerializerProtocol) -> Loader:
        """What loads checkpoints; its messages are shared by those that it loads."""
        return Loader(self.store, self.stream, self.index, serde, self._channel)

    async def get(
        self, ns: str, checkpoint: str | None, serde: SerializerProtocol
    ) -> CheckpointTuple | None:
        """The checkpoint of this id, else the newest; None if there is none."""
        await self.flush()
        index = self.index
        saved = index.latest(ns) if checkpoint is None else index.find(ns, checkpoint)
        if saved is None:
            return None
        loader = self.loader(serde)
        loaded = await loader.load(self.thread, saved)
        runs = loaded.whole.runs
        if ns == "" and runs is not None:
            messages = loaded.saved.checkpoint["channel_values"][self._channel]
            numbers = numbers_of(runs)
            if sorted(numbers) == sorted(index.order[: len(numbers)]):
                # The graph goes on with these objects, so they are known again.
                self._aligner.hold(HeldMessages(list(messages), numbers, runs))
                rows = loader.rows
                self._aligner.note_rows({n: rows[n] for n in numbers[-MOST_ROWS:] if n in rows})
        return loaded.saved

    async def listed(self, wanted: Wanted, serde: SerializerProtocol) -> list[CheckpointTuple]:
        """The wanted checkpoints, of each namespace the newest first."""
        await self.flush()
        loader, found = self.loader(serde), list[CheckpointTuple]()
        for ns, saved in list(self.index.checkpoints.items()):
            if wanted.ns is not None and ns != wanted.ns:
                continue
            for name in sorted(saved, reverse=True):
                if wanted.limit is not None and len(found) >= wanted.limit:
                    return found
                if wanted.id not in (None, name) or (wanted.end and name >= wanted.end):
                    continue
                if _differs(self.metadata(saved[name]), wanted.filter, missing=False):
                    continue
                one = (await loader.load(self.thread, saved[name])).saved
                if not _differs(one.metadata, wanted.filter, missing=True):
                    found.append(one)
        return found

    def saved(self) -> list[Saved]:
        """All checkpoints."""
        return [one for of in self.index.checkpoints.values() for one in of.values()]

    def metadata(self, saved: Saved) -> Mapping[str, Any]:
        """The short metadata of a checkpoint."""
        return self.index.whole(saved).meta

    def newest(self) -> list[Saved]:
        """The newest checkpoint of each namespace, and those that it cannot be read without.

        A ``DeltaChannel`` has its value in the writes since the last checkpoint that stores it.
        """
        found: list[Saved] = []
        for ns in self.index.checkpoints:
            one = self.index.latest(ns)
            missing: set[str] | None = None
            while one is not None:
                found.append(one)
                whole = self.index.whole(one)
                has = {*whole.at, *whole.plain, *([] if whole.runs is None else [self._channel])}
                if missing is None:
                    missing = set(whole.meta.get(COUNTERS, ()))
                missing -= has
                one = self.index.find(ns, whole.parent or "") if missing else None
        return found

    # -- what a step appends ---------------------------------------------------------------------

    def _compose(self, put: Put) -> ThreadStep:
        index, aligner = self.index, self._aligner
        value = put.checkpoint["channel_values"].get(self._channel)
        aligned = Alignment()
        if put.runs is None and put.ns == "":
            aligned = aligner.align(value)
        resolve = partial(aligner.number, aligned.numbered())
        said, values = PartWriter(resolve), PartWriter(resolve)
        taken = self._write_pending(self._ready(put), said)
        for number, piece in aligned.pieces.items():
            if piece.rest_print != index.rest_prints.get(number, b""):
                said.write_rest(number, piece)
        for number, piece in put.rests.items():
            said.write_rest(number, piece)
        runs = put.runs if aligned.tail is None else aligned.tail.runs
        made = self._controls.made(put, runs, said, values)
        apart = [one.part() for one in (said, values) if not one.is_small]
        parts = [*[one for one in apart if one is not None], control_part(made.control)]
        return ThreadStep(aligned.extension(parts), taken, aligned, made)

    def _compose_writes(self, force: bool) -> ThreadStep:
        """The writes alone. Messages that the outermost graph will have are added ahead."""
        pieces: dict[int, Piece] = {}
        known: dict[int, Piece] = {}
        tasks = self._ready(None, force=force)
        latest = self.index.latest("")
        for task in tasks:
            if latest is None or task.ns or task.checkpoint != latest.id:
                continue
            boxes = [box for channel, _, box in task.writes if channel == self._channel]
            for piece in [self._aligner.renewed(one) for box in boxes for one in box.messages]:
                number = self._aligner.number({}, piece)
                if number is not None and piece.number is None:
                    known[number] = piece  # a middleware wrote its row
                elif number is None and piece.addable:
                    pieces[len(self.index.addresses) + len(pieces)] = piece
        aligned = Alignment(pieces=pieces, added=list(pieces.values()))
        writer = PartWriter(partial(self._aligner.number, aligned.numbered()))
        taken = self._write_pending(tasks, writer)
        for number, piece in {**known, **pieces}.items():
            if piece.rest_print != self.index.rest_prints.get(number, b""):
                writer.write_rest(number, piece)
        part = writer.part()
        extension = aligned.extension([] if part is None else [part])
        return ThreadStep(extension, taken, aligned)

    def _write_pending(self, tasks: list[TaskPut], writer: PartWriter) -> list[TaskPut]:
        for task in tasks:
            writes = [(name, index, writer.stored(box)) for name, index, box in task.writes]
            writer.state.writes.append(
                TaskWrites(task.checkpoint, task.task, writes, task.path, task.ns, task.again)
            )
        return tasks
