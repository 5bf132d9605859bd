"""The appends of one process: waiting ones share an atomic batch, each session in its order.

There is no timer. A lone append is sent at once; while some batches are under way, appends queue
up, and the next batch takes those of many sessions. A batch is stored as a whole or not at all, and
expects of every session in it the end that this process knows. If one of them ended elsewhere, or
no answer came, the appends of that batch are sent again one by one, each after an end that is
read anew; so one session cannot delay another for long.

Invariants: of one session one batch is under way at most. An ack is settled when the servers have
said that its batch is stored, or when its records were found in the log.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from eventctx.errors import EventctxError, InvalidSetting, StoreUnavailable
from eventctx.log.record import Draft
from eventctx.log.store import Appended, Expected
from eventctx.stores.ack import Ack, Outcome, settle
from eventctx.stores.jetstream.append import (
    BATCH_BYTES,
    NOTHING,
    AppendLog,
    EarlyBodies,
    Packed,
    QueuedAppend,
    Tip,
    Try,
    Undecided,
    UnitAppend,
    append_result,
    appending,
    made_before,
    maybe_made_before,
    pack,
    pack_without_bodies,
    records_of,
    registry_entry,
    tip_after,
)
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    EXPECTED,
    ApiError,
    Outgoing,
    ServerLink,
    send,
)
from eventctx.stores.jetstream.layout import BATCH_MESSAGES
from eventctx.stores.rules import sizes

QUEUE_BYTES: Final = 64 * 2**20
BATCHES: Final = 6
"""Most batches of a shard under way: the servers take 50 of all clients together.

Measured with 100 sessions: one at a time takes 10,800 appends a second, eight 12,200.
"""

_BATCH_SESSIONS: Final = 64
_TIPS: Final = 50_000
_PAUSE_SECONDS: Final = 0.05
_SHORT_PAUSE_SECONDS: Final = 0.001
"""The append that was in the way may be stored and not readable yet."""


class Staged(NamedTuple):
    """An append that is part of a batch: its messages begin at ``offset``."""

    append: QueuedAppend
    appending: UnitAppend
    packed: Packed
    offset: int


class ExclusiveSlot:
    """A place in a session's queue for work that needs exclusive access, as a deletion does."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class SessionQueue:
    """The appends and slots that wait in one session, in order.

    ``busy``: the front is under way. ``alone``: the front append goes into no shared batch, because
    the log must be read first or it is too large.
    """

    __slots__ = ("alone", "busy", "session", "waiting")

    def __init__(self, session: str) -> None:
        self.session = session
        self.waiting: deque[QueuedAppend | ExclusiveSlot] = deque()
        self.busy = False
        self.alone = False


class JetStreamWriter:
    """Sends appends. ``append`` may be called from any thread, all else in the store's loop."""

    def __init__(self, link: ServerLink, log: AppendLog, early: EarlyBodies) -> None:
        self._link = link
        self._log = log
        self._names = link.names
        self._early = early
        self._queues: dict[str, SessionQueue] = {}
        self._tips: OrderedDict[str, Tip] = OrderedDict()
        self._ready: list[deque[SessionQueue]] = [deque() for _ in range(link.names.shards)]
        self._under_way = [0] * link.names.shards
        self._room = threading.Condition()
        self._bytes = 0
        self._arrived: deque[QueuedAppend] = deque()
        self._idle = asyncio.Event()
        self._idle.set()

    def append(self, session: str, drafts: Sequence[Draft], expected: Expected) -> Ack[Appended]:
        """Queue an append; blocks its thread while more than 64 MiB are queued."""
        pending = QueuedAppend(session, drafts, expected, sizes(drafts))
        with self._room:
            while self._bytes >= QUEUE_BYTES and not self._link.closed:
                self._room.wait(1.0)
            self._bytes += pending.size
            self._arrived.append(pending)
            first = len(self._arrived) == 1
        if first:
            try:
                self._link.loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                return Ack.failed(self._link.gone())
        return pending.ack

    def _take(self) -> None:
        """Move the appends that arrived into the queues of their sessions, and send what can be."""
        with self._room:
            arrived = list(self._arrived)
            self._arrived.clear()
        for pending in arrived:
            self._queue(pending.session, pending)
        self._pump()

    def _queue(self, session: str, item: QueuedAppend | ExclusiveSlot) -> None:
        queue = self._queues.get(session)
        if queue is None:
            queue = self._queues[session] = SessionQueue(session)
            self._idle.clear()
        queue.waiting.append(item)
        if len(queue.waiting) == 1:
            self._ready[self._names.shard(session)].append(queue)

    def _pump(self) -> None:
        """Begin as many batches as may be under way."""
        for shard, ready in enumerate(self._ready):
            while ready and self._under_way[shard] < BATCHES:
                queues: list[SessionQueue] = []
                batch: list[Staged] = []
                messages: list[Outgoing] = []
                room = BATCH_BYTES
                while ready and len(queues) < _BATCH_SESSIONS:
                    queue = ready[0]
                    if not queue.waiting:
                        ready.popleft()
                        self._drop(queue)
                        continue
                    if self._must_be_alone(queue):
                        if self._under_way[shard] >= BATCHES:
                            break
                        ready.popleft()
                        self._begin_alone(shard, queue)
                        continue
                    staged = self._stage(queue, messages, room)
                    if not staged:
                        if queue.waiting and not queue.alone:
                            break  # it comes first in the next batch
                        continue
                    ready.popleft()
                    queue.busy = True
                    queues.append(queue)
                    batch += staged
                    room -= sum(one.packed.size for one in staged)
                if queues:
                    self._under_way[shard] += 1
                    self._link.keep(self._send(shard, queues, batch, messages))

    def _must_be_alone(self, queue: SessionQueue) -> bool:
        front = queue.waiting[0]
        if queue.alone or isinstance(front, ExclusiveSlot):
            return True
        return queue.session not in self._tips and not front.starts

    def _stage(self, queue: SessionQueue, messages: list[Outgoing], room: int) -> list[Staged]:
        """Add the messages of a queue's first appends: those that fit and need no look at the log.

        Empty if the queue must wait for the next batch, or ``alone`` was set.
        """
        tip = self._tips.get(queue.session, NOTHING)
        expected = str(tip.sequence)
        staged: list[Staged] = []
        failed: list[Outcome] = []
        for pending in list(queue.waiting):
            if isinstance(pending, ExclusiveSlot):
                break
            try:
                if maybe_made_before(pending, tip):
                    # The appends before it are sent first: the look would not see them yet.
                    queue.alone = not staged
                    break
                place = appending(pending, tip)
                packed = pack(self._names, place, self._link.client.max_payload)
            except InvalidSetting as error:
                if staged:
                    break  # it fails in its turn
                queue.waiting.popleft()
                failed.append((pending.ack, None, error))
                self._free(pending.size)
                continue
            new = 1 if place.origin is not None else 0
            fits = len(messages) + len(packed.messages) + new <= BATCH_MESSAGES
            if not fits or packed.size > room:
                queue.alone = not packed.fits and not staged
                break
            if not staged:
                # Only the first message of a session states the end that it expects: the batch is
                # atomic, so the others follow it or are not stored either.
                packed.messages[0].headers[EXPECTED] = expected
            staged.append(Staged(pending, place, packed, len(messages)))
            messages += packed.messages
            if place.origin is not None:
                messages.append(registry_entry(self._names, queue.session, place.origin))
            room -= packed.size
            tip = tip_after(place, 0)
        settle(failed)
        return staged

    async def _send(
        self, shard: int, queues: list[SessionQueue], batch: list[Staged], messages: list[Outgoing]
    ) -> None:
        try:
            first = await send(self._link, messages)
        except (ApiError, *DOUBTS) as error:
            # Whatever the cause, each append finds out for itself. Only a conflict proves that the
            # batch was not stored; after any other error it may still be stored a moment later, so
            # the places where its records would lie are kept.
            definite = isinstance(error, ApiError) and error.conflict
            ends: dict[str, int] = {}
            for one in batch:
                first = one.appending.first
                end = ends.setdefault(one.append.session, first - 1)
                if not definite:
                    one.append.tried.append(Try(end, first))
            for queue in queues:
                queue.alone = True
                self._tips.pop(queue.session, None)
        except BaseException as error:
            self._fail(queues, error)
            raise
        else:
            self._settle(batch, first)
        finally:
            self._under_way[shard] -= 1
            for queue in queues:
                self._next(shard, queue)
            self._pump()

    def _settle(self, batch: Sequence[Staged], first: int) -> None:
        outcomes: list[Outcome] = []
        freed = 0
        for pending, place, packed, offset in batch:
            begins = first + offset
            records = records_of(self._names, place, packed.units, begins)
            outcomes.append((pending.ack, append_result(place.session, records), None))
            self._queues[place.session].waiting.popleft()
            self.know(place.session, tip_after(place, begins + packed.units[-1].offset))
            freed += pending.size
        settle(outcomes)
        self._free(freed)

    def know(self, session: str, tip: Tip) -> None:
        """Remember the end of a session."""
        self._tips[session] = tip
        self._tips.move_to_end(session)
        if len(self._tips) > _TIPS:
            self._tips.popitem(last=False)

    def _begin_alone(self, shard: int, queue: SessionQueue) -> None:
        queue.busy = True
        front = queue.waiting[0]
        if isinstance(front, ExclusiveSlot):
            if front.reached.done():  # its caller was cancelled
                queue.waiting.popleft()
                self._next(shard, queue)
            else:
                front.reached.set_result(None)
            return
        self._under_way[shard] += 1
        self._link.keep(self._alone(shard, queue, front))

    async def _alone(self, shard: int, queue: SessionQueue, pending: QueuedAppend) -> None:
        """Make one append after the leader's end of the session, until its fate is known."""
        queue.alone = False
        try:
            done = await self._append_alone(queue.session, pending)
            settle([(pending.ack, done, None)])
            queue.waiting.popleft()
            self._free(pending.size)
        except StoreUnavailable as error:
            self._tips.pop(queue.session, None)
            self._fail([queue], error)
        except EventctxError as error:
            settle([(pending.ack, None, error)])
            queue.waiting.popleft()
            self._free(pending.size)
        except BaseException as error:
            self._fail([queue], error)
            raise
        finally:
            self._under_way[shard] -= 1
            self._next(shard, queue)
            self._pump()

    async def _append_alone(self, session: str, pending: QueuedAppend) -> Appended:
        until = pending.since + self._link.patience
        try:
            while True:
                tip = await self._log.tip(session)
                self.know(session, tip)
                if maybe_made_before(pending, tip):
                    try:
                        done = await made_before(self._log, pending, tip)
                    except Undecided as doubt:
                        if time.monotonic() > until:
                            raise StoreUnavailable(f"append to {session!r}: {doubt}") from doubt
                        await asyncio.sleep(_PAUSE_SECONDS)
                        continue
                    if done is not None:
                        return done
                place = appending(pending, tip)
                packed = await self._pack(pending, place)
                try:
                    return await self._send_packed(session, place, packed, tip)
                except ApiError as error:
                    if not (error.conflict or error.passing):
                        raise self._link.translate(error, f"append to {session!r}") from error
                    lost: Exception = error
                except DOUBTS as error:
                    lost = error
                if isinstance(lost, ApiError) and lost.conflict:
                    # Certainly not stored, so this try leaves no place to look at.
                    await asyncio.sleep(_SHORT_PAUSE_SECONDS)
                    continue
                pending.tried.append(Try(tip.position, place.first))
                if time.monotonic() > until:
                    raise self._link.translate(lost, f"append to {session!r}") from lost
                await asyncio.sleep(_PAUSE_SECONDS)
        except BaseException:
            if pending.written:
                self._early.waste(session, pending.written)
            raise

    async def _pack(self, pending: QueuedAppend, place: UnitAppend) -> Packed:
        most = self._link.client.max_payload
        if pending.written is None:
            packed = pack(self._names, place, most)
            if packed.fits:
                return packed
            pending.written = await self._early.write(place)
        return pack_without_bodies(self._names, place, most, pending.written)

    async def _send_packed(
        self, session: str, place: UnitAppend, packed: Packed, tip: Tip
    ) -> Appended:
        messages = packed.messages
        messages[0].headers[EXPECTED] = str(tip.sequence)
        if place.origin is not None:
            messages.append(registry_entry(self._names, session, place.origin))
        first = await send(self._link, messages)
        self.know(session, tip_after(place, first + packed.units[-1].offset))
        return append_result(session, records_of(self._names, place, packed.units, first))

    def _next(self, shard: int, queue: SessionQueue) -> None:
        """Make the next of a queue ready, or drop an empty queue."""
        queue.busy = False
        if queue.waiting:
            self._ready[shard].append(queue)
        else:
            self._drop(queue)

    def _drop(self, queue: SessionQueue) -> None:
        if self._queues.get(queue.session) is queue:
            del self._queues[queue.session]
        if not self._queues:
            self._idle.set()

    def _fail(self, queues: Iterable[SessionQueue], error: BaseException) -> None:
        """Fail all appends of these queues before their next slot."""
        known = error if isinstance(error, EventctxError) else self._link.gone()
        for queue in queues:
            failed: list[Outcome] = []
            while queue.waiting:
                pending = queue.waiting[0]
                if isinstance(pending, ExclusiveSlot):
                    break
                queue.waiting.popleft()
                failed.append((pending.ack, None, known))
                self._free(pending.size)
            settle(failed)

    def _free(self, size: int) -> None:
        with self._room:
            self._bytes -= size
            self._room.notify_all()

    @asynccontextmanager
    async def exclusive(self, sessions: Iterable[str]) -> AsyncIterator[Callable[[str], None]]:
        """Exclusive access to these sessions, after all queued appends.

        The value is a function that forgets the known end of a session: its last record is another
        one afterwards.
        """
        async with AsyncExitStack() as held:
            # In one order for all callers, so that no two wait for each other.
            for session in sorted(set(sessions)):
                await held.enter_async_context(self._exclusive_in(session))
            yield self._forget

    @asynccontextmanager
    async def _exclusive_in(self, session: str) -> AsyncIterator[None]:
        self._take()
        slot = ExclusiveSlot()
        self._queue(session, slot)
        self._pump()
        queue = self._queues[session]
        try:
            await slot.reached
            yield
        finally:
            if slot.reached.done() and not slot.reached.cancelled():
                queue.waiting.popleft()
                self._next(self._names.shard(session), queue)
            elif slot in queue.waiting:
                queue.waiting.remove(slot)
            self._pump()

    def _forget(self, session: str) -> None:
        self._tips.pop(session, None)

    async def idle(self) -> None:
        """Wait until nothing is queued or under way."""
        self._take()
        await self._idle.wait()
