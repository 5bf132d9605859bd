"""One thread of LangGraph as a session: what a step appends, and how its state is read again.

Invariant: a checkpoint is appended together with the messages that it has and the writes that led
to it, in one append. So after a crash the newest checkpoint in the log is whole. A task's writes
wait for the next checkpoint, at most ``WAIT_SECONDS``; errors, interrupts and resumes go at once.

The messages of the outermost graph are the session's transcript. Those of a list that only grew are
not looked at again: Python compares it with the list before by its objects.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from eventctx.adapters.kit.host_session import writing_lock
from eventctx.adapters.langgraph.index import Saved, ThreadIndex
from eventctx.adapters.langgraph.loading import Loader
from eventctx.adapters.langgraph.parts import (
    META,
    SOURCE,
    Control,
    PartWriter,
    TaskWrites,
    Whole,
    control_part,
    relative,
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
    is_short,
    numbers_of,
)
from eventctx.errors import EventctxError
from eventctx.log.store import EventStore, last_position
from eventctx.messages.overlap import match_in_order
from eventctx.session.context import Context
from eventctx.session.transcript import Extension, HostPart

WAIT_SECONDS: Final = 0.05
"""Seconds that the writes of a task wait at most for a checkpoint to go with."""

MOST_SECONDS: Final = 2.0
"""Seconds after which they go, though the checkpoint that they are for is not saved."""

_LOOKED_AT: Final = 32
"""Most messages that are looked into again, since a program may change one in place.

They are the newest answer of a model, which a person may edit, and what follows it.
"""

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


class HeldMessages(NamedTuple):
    """A state's messages as objects, with their numbers, as a list and as runs."""

    objects: list[BaseMessage]
    numbers: list[int]
    runs: Runs


class Alignment(NamedTuple):
    """How the transcript becomes a list of messages: by ``added`` ones, or by a set to ``order``.

    ``pieces`` are those of messages that were compared, by number.
    """

    state: HeldMessages | None = None
    pieces: Mapping[int, Piece] = {}
    added: Sequence[Piece] = ()
    order: list[int | Piece] | None = None


class Step(NamedTuple):
    """What one append brings: ``taken`` are the writes among it, ``held`` the values.

    ``small``: the control holds them; ``whole`` is
    the whole one. ``state`` are the messages of the outermost graph, where it has a list of them; ``rows`` those
    of the messages that were looked at, by number.
    """

    extension: Extension
    taken: list[TaskPut]
    state: HeldMessages | None
    rows: dict[int, Row]
    held: dict[tuple[str, str], Held]
    small: bool = False
    whole: Control | None = None


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
        self.boxer = Boxer(serde, self._known)
        self._channel = channel
        self._context = context
        self._held = HeldMessages([], [], [])
        self._places: dict[int, int] = {}
        self._drafted: dict[int, Piece] = {}
        self._recent: OrderedDict[int, Row] = OrderedDict()
        self._values = HeldValues()
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

    async def _append(self, compose: Callable[[], Step]) -> None:
        step: list[Step] = []

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

    def _done(self, step: Step) -> None:
        """Note what was appended."""
        self._sets = self.index.sets
        self.pending = [one for one in self.pending if not any(one is it for it in step.taken)]
        if not self.pending:
            self._drafted.clear()
        if step.state is not None:
            self._hold(step.state)
        self._recent.update(step.rows)
        while len(self._recent) > 2 * _LOOKED_AT:
            self._recent.popitem(last=False)
        last = self.index.position  # that of the control
        self._values.store(step.held, last if step.small else last - 1)
        if step.whole is not None:
            self.index.hold_whole(step.whole, last)

    def add(self, task: TaskPut) -> None:
        """Let the writes of a task wait for a checkpoint."""
        self.pending.append(task)
        for _, _, box in task.writes:
            self._drafted.update({id(one.message): one for one in box.messages if one.row})

    def in_task(self, flush: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Append the writes that wait. What fails is tried again with the next step."""

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
            self._hold(HeldMessages([], [], []))

    def _hold(self, state: HeldMessages) -> None:
        """Hold the objects of the transcript's first messages, to know them again."""
        old, new = self._held.objects, state.objects
        self._held = state
        same = old and len(old) <= len(new) and old[0] is new[0] and old[-1] is new[len(old) - 1]
        if same:
            for at in range(len(old), len(new)):
                self._places[id(new[at])] = at
        else:
            self._places = {id(one): at for at, one in enumerate(new)}

    def _known(self, message: BaseMessage) -> Piece | None:
        held = self._held
        at = self._places.get(id(message))
        if at is None or at >= len(held.objects) or held.objects[at] is not message:
            made = self._drafted.get(id(message))
            same = made is not None and made.message is message and made.row["id"] == message.id
            return made if same and made is not None and not changed(message, made.row) else None
        index, number = self.index, held.numbers[at]
        if self._is_changed(number, message):
            return None
        rest_print = index.rest_prints.get(number, b"")
        return Piece(message, {}, index.said[number], None, rest_print, number)

    def _is_changed(self, number: int, message: BaseMessage) -> bool:
        row = self._recent.get(number)
        return row is not None and (row.get("id") != message.id or changed(message, row))

    def _ready(self, put: Put | None, *, force: bool = False) -> list[TaskPut]:
        """The writes that go with a checkpoint, or by themselves."""
        if put is not None:
            own = put.checkpoint["id"]
            return [
                one
                for one in self.pending
                if one.ns == put.ns and one.checkpoint == (own if one.again else put.parent)
            ]
        old = time.monotonic() - MOST_SECONDS
        return [
            one
            for one in self.pending
            if force or one.since < old or self.index.find(one.ns, one.checkpoint) is not None
        ]

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
            numbers = numbers_of(runs)
            if sorted(numbers) == sorted(index.order[: len(numbers)]):
                # The graph goes on with these objects, so they are known again.
                self._hold(HeldMessages(list(messages), numbers, runs))
                recent = numbers[-_LOOKED_AT:]
                self._recent.update({n: loader.rows[n] for n in recent if n in loader.rows})
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
        aligned = Alignment()
        if put.runs is None and put.ns == "" and _are_messages(value, self._held.objects):
            aligned = self._align(value)
        writer = PartWriter(partial(self._number, self._numbered(aligned)))
        taken = self._write_pending(self._ready(put), writer)
        for number, piece in aligned.pieces.items():
            if piece.rest_print != index.rest_prints.get(number, b""):
                _write_rest(writer, number, piece)
        for number, piece in put.rests.items():
            _write_rest(writer, number, piece)
        runs = put.runs if aligned.state is None else aligned.state.runs
        whole, control, held = self._control(put, runs, writer)
        part = None if control.state is not None else writer.part()
        parts = [one for one in (part, control_part(control)) if one is not None]
        return Step(_extension(aligned, parts), taken, aligned.state, _rows(aligned), held, part is None, whole)

    def _compose_writes(self, force: bool) -> Step:
        """The writes alone. Messages that the outermost graph will have are added ahead."""
        pieces: dict[int, Piece] = {}
        tasks = self._ready(None, force=force)
        latest = self.index.latest("")
        for task in tasks:
            if latest is None or task.ns or task.checkpoint != latest.id:
                continue
            boxes = [box for channel, _, box in task.writes if channel == self._channel]
            for piece in [self._renewed(one) for box in boxes for one in box.messages]:
                if piece.addable and self._number({}, piece) is None:
                    pieces[len(self.index.addresses) + len(pieces)] = piece
        aligned = Alignment(None, pieces, list(pieces.values()))
        writer = PartWriter(partial(self._number, self._numbered(aligned)))
        taken = self._write_pending(tasks, writer)
        for number, piece in pieces.items():
            if piece.rest is not None:
                _write_rest(writer, number, piece)
        part = writer.part()
        extension = _extension(aligned, [] if part is None else [part])
        return Step(extension, taken, None, _rows(aligned), {})

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

    def _write_pending(self, tasks: list[TaskPut], writer: PartWriter) -> list[TaskPut]:
        for task in tasks:
            writes = [(name, index, writer.stored(box)) for name, index, box in task.writes]
            writer.state.writes.append(
                TaskWrites(task.checkpoint, task.task, writes, task.path, task.ns, task.again)
            )
        return tasks

    # -- messages --------------------------------------------------------------------------------

    def _align(self, messages: list[BaseMessage]) -> Alignment:
        """Compare the messages of the outermost graph's state with the transcript."""
        index, held = self.index, self._held
        start = self._unchanged(messages)
        if start < len(held.objects) and held.numbers[:start] != index.order[:start]:
            return self._set_to(messages)
        later = index.order[start:]
        made = [self.boxer.piece(one) for one in messages[start:]]
        known = [
            later[at] if at < len(later) and index.said[later[at]] == piece.said
            else self._number({}, piece)
            for at, piece in enumerate(made)
        ]  # fmt: skip
        added = self._fits(made, known, later)
        if added is None:
            return self._set_to(messages)
        following = len(index.addresses)
        fresh = iter(range(following, following + len(added)))
        tail = [next(fresh) if number is None else number for number in known]
        runs = first_of(held.runs, start)
        for number in tail:
            add_run(runs, number)
        numbers = [*held.numbers[:start], *tail]
        pieces = dict(zip(tail, made, strict=True))
        return Alignment(HeldMessages(list(messages), numbers, runs), pieces, added)

    def _fits(
        self, made: list[Piece], known: list[int | None], later: list[int]
    ) -> list[Piece] | None:
        """The messages that the transcript lacks, if it needs no more than these at its end.

        ``known`` are the numbers of those that it has; ``later`` those that it has in their place.
        """
        there = [number for number in known if number is not None]
        new = [piece for piece, number in zip(made, known, strict=True) if number is None]
        first = [number is None for number in known].index(True) if new else len(known)
        if first == len(there) and there == later[: len(there)]:
            # Those that the list lacks are ahead, by a task or a middleware, or were taken out.
            late = [self.index.addresses[number].position for number in later[len(there) :]]
            ahead = not new and all(position > self.index.last_put for position in late)
            return new if ahead or not late else None
        # Results of parallel tools come in the order in which they end.
        last = max(at for at, number in enumerate(known) if number is not None) if there else -1
        results = all(isinstance(piece.message, ToolMessage) for piece in made[: last + 1])
        return new if results and sorted(there) == sorted(later) else None

    def _unchanged(self, messages: list[BaseMessage]) -> int:
        """How many messages at the beginning are those before, by their objects."""
        held = self._held.objects
        count = min(len(held), len(messages))
        if held[:count] != messages[:count]:
            count = next(at for at in range(count) if held[at] != messages[at])
        for at in range(count - 1, max(-1, count - _LOOKED_AT - 1), -1):
            if self._is_changed(self._held.numbers[at], messages[at]):
                count = at
            if isinstance(messages[at], AIMessage):
                break  # what comes before was answered
        return count

    def _set_to(self, messages: list[BaseMessage]) -> Alignment:
        """Set the transcript. Messages that stay keep their numbers, as far as these still rise."""
        index = self.index
        made = [self.boxer.piece(one) for one in messages]
        known = [self._number({}, one) for one in made]
        keys: list[int] = [-1 - at if number is None else number for at, number in enumerate(known)]
        order: list[int | Piece] = []
        numbers: list[int] = []
        pieces: dict[int, Piece] = {}
        following = len(index.addresses)
        for piece, place in zip(made, match_in_order(index.order, keys), strict=True):
            if place is not None:
                order.append(index.order[place])
                numbers.append(index.order[place])
                continue
            # One that is known, but stands elsewhere, is a new message here.
            order.append(piece if piece.number is None else self.boxer.made(piece.message))
            numbers.append(following)
            pieces[following] = self.boxer.made(piece.message)
            following += 1
        runs: Runs = []
        for number in numbers:
            add_run(runs, number)
        return Alignment(HeldMessages(list(messages), numbers, runs), pieces, (), order)

    # -- the control -----------------------------------------------------------------------------

    def _control(
        self, put: Put, runs: Runs | None, writer: PartWriter
    ) -> tuple[Control, Control, dict[tuple[str, str], Held]]:
        """The control whole and as it is written, and the values to hold."""
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
            state=writer.state if writer.is_small else None,
        )
        fresh = {(put.ns, name): held for name, held in stored.items() if held is not None}
        if saved is not None and base is not None and not saved.grown:
            return control, relative(control, base, saved.position) or control, fresh
        return control, control, fresh


def _extension(aligned: Alignment, parts: Sequence[HostPart]) -> Extension:
    order = aligned.order
    rows = None if order is None else [one if isinstance(one, int) else one.row for one in order]
    return Extension(SOURCE, parts, [piece.row for piece in aligned.added], rows)


def _rows(aligned: Alignment) -> dict[int, Row]:
    return {number: piece.row for number, piece in aligned.pieces.items() if piece.row}


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
    for name in [name for name, value in head.items() if not is_short(value)]:
        long["head " + name] = head.pop(name)
    meta = dict(metadata)
    for name in [name for name, value in meta.items() if not is_short(value)]:
        long["meta " + name] = meta.pop(name)
    return head, meta, long
