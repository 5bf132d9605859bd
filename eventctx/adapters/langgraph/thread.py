"""One thread of LangGraph as a session: what a step appends, and how its state is read again.

Invariant: a checkpoint is appended together with the messages that it has and the writes that led
to it, in one append. So after a crash the newest checkpoint in the log is whole. A task's writes
wait for the next checkpoint, at most ``WAIT_SECONDS``; errors, interrupts and resumes go at once.

The messages of the outermost graph are the session's transcript. Those of a list that only grew are
not looked at again: Python compares it with the list before by its objects.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.langgraph.index import Saved, ThreadIndex
from eventctx.adapters.langgraph.loading import Loader
from eventctx.adapters.langgraph.parts import (
    META,
    SHORT,
    SOURCE,
    Control,
    PartWriter,
    TaskWrites,
    Whole,
    control_part,
    relative,
    whole_of,
)
from eventctx.adapters.langgraph.relative_values import Held, HeldValues
from eventctx.adapters.langgraph.rows import Row, changed
from eventctx.adapters.langgraph.values import (
    TYPES,
    Box,
    Boxer,
    Piece,
    Runs,
    add_run,
    first_of,
)
from eventctx.errors import EventctxError
from eventctx.log.store import EventStore, last_position
from eventctx.messages.overlap import match_in_order
from eventctx.session.context import Context
from eventctx.session.transcript import Extension

WAIT_SECONDS: Final = 0.05
"""Seconds that the writes of a task wait at most for a checkpoint to go with."""

_LOOKED_AT: Final = 32
"""Messages at the end of a list that are looked into, since a program may change one in place."""

_COUNTERS: Final = "counters_since_delta_snapshot"

_OWN: Final = frozenset(("channel_values", "channel_versions", "versions_seen", "id"))


class Put(NamedTuple):
    """A checkpoint to be saved; ``changed`` are the channels that are new since its parent.

    ``runs``: its messages have these numbers, and the transcript stays as it is. ``whole``: it is
    relative to no other one. ``rests`` are those of messages that are to be written again.
    """

    ns: str
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    changed: frozenset[str]
    parent: str | None
    runs: Runs | None = None
    whole: bool = False
    rests: Mapping[int, Piece] = {}


class TaskPut(NamedTuple):
    """The writes of a task to a checkpoint, each with its channel and index."""

    ns: str
    checkpoint: str
    task: str
    path: str
    writes: list[tuple[str, int, Box]]
    again: bool = False


def _differs(metadata: Mapping[str, Any], wanted: Mapping[str, Any], *, missing: bool) -> bool:
    """Whether metadata has another value than wanted; ``missing``: or lacks it."""
    return any(
        metadata[key] != value if key in metadata else missing and value is not None
        for key, value in wanted.items()
    )


class Alignment(NamedTuple):
    """How the transcript becomes a list of messages: by ``added`` ones, or by a set to ``order``.

    ``pieces`` are those of messages that were compared; ``runs`` the numbers of the list.
    """

    runs: Runs
    pieces: dict[int, Piece]
    added: list[Piece]
    order: list[int | Piece] | None = None


class Step(NamedTuple):
    """What one append brings. ``pending`` writes are among it, and ``messages`` are the state's.

    ``rows`` are those of the messages that were looked at, by number; ``held`` the values.
    """

    extension: Extension
    pending: int
    messages: list[BaseMessage] | None
    rows: dict[int, Row]
    held: dict[tuple[str, str], Held]


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
    """A thread's session. Its methods are called in the engine's loop, one after the other."""

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
        self.boxer = Boxer(serde, self._known)
        self._channel = channel
        self._context = context
        self._objects: list[BaseMessage] = []
        self._places: dict[int, int] = {}
        self._recent: OrderedDict[int, Row] = OrderedDict()
        self._values = HeldValues()
        self._sets = 0
        self._tasks: set[asyncio.Future[None]] = set()
        self._opened: Context | None = None

    # -- appending -------------------------------------------------------------------------------

    async def put(self, put: Put) -> None:
        """Append a checkpoint, after the writes that wait. Raises what the store raises."""
        await self._append(partial(self._compose, put))

    async def flush(self) -> None:
        """Append the writes that wait."""
        if self.pending:
            await self._append(self._compose_writes)

    async def _append(self, compose: Callable[[], Step]) -> None:
        step: list[Step] = []

        async def decide(position: int) -> Extension:
            await self.catch_up(position)
            step[:] = [compose()]
            return step[0].extension

        if self._opened is None:
            self._opened = await self._context()
        for record in await self._opened.extend(decide):
            self.index.fold(record)
        self._done(step[0])

    def _done(self, step: Step) -> None:
        """Note what was appended."""
        self._sets = self.index.sets
        del self.pending[: step.pending]
        if step.messages is not None:
            self.hold(step.messages)
        self._recent.update(step.rows)
        while len(self._recent) > 2 * _LOOKED_AT:
            self._recent.popitem(last=False)
        self._values.store(step.held, self.index.position - 1)  # before the control, which is last

    def flush_later(self, flush: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Append the writes that wait, in a task. What fails is tried again with the next step."""

        async def quietly() -> None:
            with suppress(EventctxError):
                await flush()

        task = asyncio.ensure_future(quietly())
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
            self.hold([])

    def hold(self, messages: list[BaseMessage]) -> None:
        """Hold the objects of the transcript's first messages, to know them again."""
        old, self._objects = self._objects, messages
        same = old and len(old) <= len(messages) and old[0] is messages[0]
        if same and old[-1] is messages[len(old) - 1]:
            for at in range(len(old), len(messages)):
                self._places[id(messages[at])] = at
        else:
            self._places = {id(one): at for at, one in enumerate(messages)}

    def _known(self, message: BaseMessage) -> Piece | None:
        at = self._places.get(id(message))
        if at is None or at >= len(self._objects) or self._objects[at] is not message:
            return None
        index, number = self.index, self.index.order[at]
        row = self._recent.get(number)
        if row is not None and (row["id"] != message.id or changed(message, row)):
            return None
        rest_print = index.rest_prints.get(number, b"")
        return Piece(message, {}, index.said[number], None, rest_print, number)

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
            messages = loaded.tuple.checkpoint["channel_values"][self._channel]
            if runs == first_of(index.runs, len(messages)):
                # The graph goes on with these objects, so they are known again.
                self.hold(list(messages))
                for number in index.order[: len(messages)][-_LOOKED_AT:]:
                    if number in loader.rows:
                        self._recent[number] = loader.rows[number]
        return loaded.tuple

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
                one = (await loader.load(self.thread, saved[name])).tuple
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
                    missing = self._deltas(whole)
                missing -= has
                one = self.index.find(ns, whole.parent or "") if missing else None
        return found

    def _deltas(self, whole: Whole) -> set[str]:
        """The channels whose value may be in writes alone: only those of LangGraph's counters."""
        counted = META in whole.at or _COUNTERS in whole.meta
        return set(whole.versions) if counted else set()

    # -- what a step appends ---------------------------------------------------------------------

    def _compose(self, put: Put) -> Step:
        index = self.index
        value = put.checkpoint["channel_values"].get(self._channel)
        messages: list[BaseMessage] | None = None
        aligned = Alignment([], {}, [])
        if put.runs is None and put.ns == "" and _are_messages(value, self._objects):
            messages = value
            aligned = self._align(value)
        new = self._numbered(aligned)
        writer = PartWriter(partial(self._number, new))
        pending = self._write_pending(writer)
        for number, piece in aligned.pieces.items():
            if piece.rest_print != index.rest_prints.get(number, b""):
                _write_rest(writer, number, piece)
        for number, piece in put.rests.items():
            _write_rest(writer, number, piece)
        runs = aligned.runs if messages is not None else put.runs
        control, held = self._control(put, runs, writer)
        parts = [one for one in (writer.part(), control_part(control)) if one is not None]
        order = aligned.order
        extension = Extension(
            SOURCE,
            parts,
            [piece.row for piece in aligned.added],
            None if order is None else [one if isinstance(one, int) else one.row for one in order],
        )
        rows = {number: piece.row for number, piece in aligned.pieces.items() if piece.row}
        kept = None if messages is None else list(messages)
        return Step(extension, pending, kept, rows, held)

    def _compose_writes(self) -> Step:
        """The writes alone. Messages that the outermost graph will have are added ahead."""
        aligned = Alignment([], {}, [])
        number = len(self.index.addresses)
        for task in self.pending:
            for channel, _, box in task.writes:
                if task.ns or channel != self._channel:
                    continue
                for piece in map(self._renewed, box.messages):
                    if piece.addable and self._number({}, piece) is None:
                        aligned.pieces[number + len(aligned.added)] = piece
                        aligned.added.append(piece)
        new = self._numbered(aligned)
        writer = PartWriter(partial(self._number, new))
        pending = self._write_pending(writer)
        for number, piece in aligned.pieces.items():
            if piece.rest is not None:
                _write_rest(writer, number, piece)
        part = writer.part()
        parts = [] if part is None else [part]
        extension = Extension(SOURCE, parts, [piece.row for piece in aligned.added])
        return Step(extension, pending, None, {n: p.row for n, p in aligned.pieces.items()}, {})

    def _numbered(self, aligned: Alignment) -> dict[int, int]:
        """The numbers that new messages will have, by their objects."""
        return {id(piece.message): number for number, piece in aligned.pieces.items()}

    def _number(self, new: Mapping[int, int], piece: Piece) -> int | None:
        """The number of a message's event; None if it has none."""
        if piece.number is not None:
            return piece.number
        piece = self._renewed(piece)
        number = self.index.by_id.get(piece.message.id or "")
        if number is not None and self.index.said[number] == piece.said:
            return number
        return new.get(id(piece.message)) if piece.row["id"] == piece.message.id else None

    def _renewed(self, piece: Piece) -> Piece:
        """The piece again, where its message has got an id since."""
        if piece.number is not None or piece.row.get("id") == piece.message.id:
            return piece
        return self.boxer.piece(piece.message)

    def _write_pending(self, writer: PartWriter) -> int:
        for task in self.pending:
            writes = [(name, index, writer.stored(box)) for name, index, box in task.writes]
            writer.state.writes.append(
                TaskWrites(task.checkpoint, task.task, writes, task.path, task.ns, task.again)
            )
        return len(self.pending)

    # -- messages --------------------------------------------------------------------------------

    def _align(self, messages: list[BaseMessage]) -> Alignment:
        """Compare the messages of the outermost graph's state with the transcript."""
        index = self.index
        order, pieces = index.order, dict[int, Piece]()
        at = self._unchanged(messages)
        while at < min(len(messages), len(order)):
            piece = self.boxer.piece(messages[at])
            if piece.said != index.said[order[at]]:
                break
            pieces[order[at]] = piece
            at += 1
        if at == len(messages):
            late = [index.addresses[number].position for number in order[at:]]
            if all(position > index.last_put for position in late):
                # Added ahead, by the writes of a task or by a middleware: the next one has them.
                return Alignment(first_of(index.runs, at), pieces, [])
        elif at == len(order):
            runs, added = list(index.runs), [self.boxer.piece(one) for one in messages[at:]]
            for number, piece in enumerate(added, len(index.addresses)):
                pieces[number] = piece
                add_run(runs, number)
            return Alignment(runs, pieces, added)
        return self._set_to(messages, pieces)

    def _unchanged(self, messages: list[BaseMessage]) -> int:
        """How many messages at the beginning are those before, by their objects."""
        held = self._objects
        count = min(len(held), len(messages), len(self.index.order))
        if held[:count] != messages[:count]:
            count = next(at for at in range(count) if held[at] != messages[at])
        for at in range(max(0, count - _LOOKED_AT), count):
            row = self._recent.get(self.index.order[at])
            if row is not None and (
                row["id"] != messages[at].id or changed(messages[at], row)
            ):
                return at
        return count

    def _set_to(self, messages: list[BaseMessage], pieces: dict[int, Piece]) -> Alignment:
        index = self.index
        made = [self.boxer.piece(one) for one in messages]
        known = [self._number({}, one) for one in made]
        keys: list[int] = [-1 - at if number is None else number for at, number in enumerate(known)]
        matched = match_in_order(index.order, keys)
        order: list[int | Piece] = []
        runs: Runs = []
        following = len(index.addresses)
        for piece, place in zip(made, matched, strict=True):
            if place is not None:
                order.append(index.order[place])
                add_run(runs, index.order[place])
                continue
            if piece.number is not None:  # known, but elsewhere in the list
                piece = self.boxer.made(piece.message)
            order.append(piece)
            add_run(runs, following)
            pieces[following] = piece
            following += 1
        return Alignment(runs, pieces, [], order)

    # -- the control -----------------------------------------------------------------------------

    def _control(
        self, put: Put, runs: Runs | None, writer: PartWriter
    ) -> tuple[Control, dict[tuple[str, str], Held]]:
        checkpoint, index = put.checkpoint, self.index
        saved = None if put.parent is None or put.whole else index.find(put.ns, put.parent)
        base = None if saved is None else index.whole(saved)
        head, meta, long = _sorted_out(checkpoint, put.metadata)
        plain: dict[str, Any] = {}
        at: dict[str, int] = {}
        stored: dict[str, Held | None] = {}
        values = {**checkpoint["channel_values"], **({META: long} if long else {})}
        versions = checkpoint["channel_versions"]
        for name, value in values.items():
            if runs is not None and name == self._channel:
                continue
            where = None if base is None else base.at.get(name)
            if value is None or type(value) in (bool, int, float):
                plain[name] = value
            elif (
                where is not None
                and base is not None
                and name not in put.changed
                and name != META
                and versions.get(name) == base.versions.get(name)
            ):
                at[name] = where
            else:
                made, held = self._values.written((put.ns, name), value, where, self.boxer, writer)
                writer.state.values[name] = made
                stored[name] = held
        control = Control(
            id=checkpoint["id"],
            ns=put.ns,
            parent=put.parent,
            thread=self.thread,
            head=head,
            versions=dict(versions),
            seen={node: dict(of) for node, of in checkpoint["versions_seen"].items()},
            meta=meta,
            plain=plain,
            stored=tuple(stored),
            runs=runs,
            at=at,
        )
        fresh = {(put.ns, name): held for name, held in stored.items() if held is not None}
        if saved is not None and base is not None and not saved.grown:
            whole = whole_of(control, 1, None)
            control = relative(control, whole, base, saved.position) or control
        return control, fresh


def _write_rest(writer: PartWriter, number: int, piece: Piece) -> None:
    rest = piece.rest if piece.rest is not None else Box({})
    writer.state.rest[str(number)] = {"p": piece.rest_print.hex(), **writer.stored(rest)}


def _are_messages(value: Any, known: Sequence[BaseMessage]) -> bool:
    """Whether a value is a list of messages. Those that are known are not looked at."""
    if type(value) is not list:
        return False
    start = len(known) if len(known) <= len(value) and value[: len(known)] == known else 0
    return all(isinstance(one, BaseMessage) and one.type in TYPES for one in value[start:])


def _sorted_out(
    checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A checkpoint's own fields and metadata that a control may hold, and what it may not."""
    head = {name: value for name, value in checkpoint.items() if name not in _OWN}
    long: dict[str, Any] = {}
    for name in [name for name, value in head.items() if not _is_short(value)]:
        long["head " + name] = head.pop(name)
    meta = dict(metadata)
    for name in [name for name, value in meta.items() if not _is_short(value)]:
        long["meta " + name] = meta.pop(name)
    return head, meta, long


def _is_short(value: Any) -> bool:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**63)
    if kind is str:
        return len(value) <= SHORT and value.isascii()
    if kind is list:
        return all(map(_is_short, value))
    return kind is dict and all(type(key) is str and _is_short(key) for key in value) and all(
        map(_is_short, value.values())
    )
