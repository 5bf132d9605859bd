"""The appends of one process: those that wait share an atomic batch, each session in its order.

There is no timer. A lone append is sent at once; while some batches are under way, appends queue
up, and the next batch takes those of many sessions. A batch is stored as a whole or not at all, and
expects of every session in it the end that this process knows. If one of them ended elsewhere, or
no answer came, the appends of that batch are sent again one by one, each behind an end that is
read anew; so one session cannot hold up another for long.

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
    NOTHING,
    AppendLog,
    QueuedAppend,
    Tip,
    Try,
    Undecided,
    appended,
    appending,
    behind,
    made_before,
    maybe_made_before,
)
from eventctx.stores.jetstream.batch import EXPECTED, Outgoing, send
from eventctx.stores.jetstream.early_bodies import EarlyBodies
from eventctx.stores.jetstream.packing import (
    BATCH_BYTES,
    Packed,
    UnitAppend,
    pack,
    pack_without_bodies,
    records_of,
    registered,
)
from eventctx.stores.jetstream.wire.connection import DOUBTS, ApiError, ServerLink
from eventctx.stores.jetstream.wire.layout import BATCH_MESSAGES
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
"""What was in the way may be stored and not yet to be read."""


class Staged(NamedTuple):
    """An append that is part of a batch: its messages begin at ``offset``."""

    append: QueuedAppend
    appending: UnitAppend
    packed: Packed
    offset: int


class ExclusiveSlot:
    """A place in a session's line for work that must be alone there, as its deletion."""

    def __init__(self) -> None:
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class SessionQueue:
    """What waits to be done in one session, in order. ``busy``: its front is under way."""

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
        self._lines: dict[str, SessionQueue] = {}
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
        """Put what arrived into the lines of its sessions, and send what can be."""
        with self._room:
            arrived = list(self._arrived)
            self._arrived.clear()
        for pending in arrived:
            self._queue(pending.session, pending)
        self._pump()

    def _queue(self, session: str, item: QueuedAppend | ExclusiveSlot) -> None:
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = SessionQueue(session)
            self._idle.clear()
        line.waiting.append(item)
        if len(line.waiting) == 1:
            self._ready[self._names.shard(session)].append(line)

    def _pump(self) -> None:
        """Begin as many batches as may be under way."""
        for shard, ready in enumerate(self._ready):
            while ready and self._under_way[shard] < BATCHES:
                lines: list[SessionQueue] = []
                batch: list[Staged] = []
                messages: list[Outgoing] = []
                room = BATCH_BYTES
                while ready and len(lines) < _BATCH_SESSIONS:
                    line = ready[0]
                    if not line.waiting:
                        ready.popleft()
                        self._drop(line)
                        continue
                    if self._must_be_alone(line):
                        if self._under_way[shard] >= BATCHES:
                            break
                        ready.popleft()
                        self._begin_alone(shard, line)
                        continue
                    staged = self._stage(line, messages, room)
                    if not staged:
                        if line.waiting and not line.alone:
                            break  # it comes first in the next batch
                        continue
                    ready.popleft()
                    line.busy = True
                    lines.append(line)
                    batch += staged
                    room -= sum(one.packed.size for one in staged)
                if lines:
                    self._under_way[shard] += 1
                    self._link.keep(self._send(shard, lines, batch, messages))

    def _must_be_alone(self, line: SessionQueue) -> bool:
        front = line.waiting[0]
        if line.alone or isinstance(front, ExclusiveSlot):
            return True
        return line.session not in self._tips and not front.starts

    def _stage(self, line: SessionQueue, messages: list[Outgoing], room: int) -> list[Staged]:
        """Add the messages of a line's first appends, as many as fit and need no look at the log.

        Empty if the line must wait for the next batch, or ``alone`` was set.
        """
        tip = self._tips.get(line.session, NOTHING)
        expected = str(tip.sequence)
        staged: list[Staged] = []
        failed: list[Outcome] = []
        for pending in list(line.waiting):
            if isinstance(pending, ExclusiveSlot):
                break
            try:
                if maybe_made_before(pending, tip):
                    line.alone = not staged
                    break
                place = appending(pending, tip)
                packed = pack(self._names, place, self._link.client.max_payload)
            except InvalidSetting as error:
                if staged:
                    break  # it fails in its turn
                line.waiting.popleft()
                failed.append((pending.ack, None, error))
                self._free(pending.size)
                continue
            new = 1 if place.origin is not None else 0
            fits = len(messages) + len(packed.messages) + new <= BATCH_MESSAGES
            if not fits or packed.size > room:
                line.alone = not packed.fits and not staged
                break
            if not staged:
                packed.messages[0].headers[EXPECTED] = expected
            staged.append(Staged(pending, place, packed, len(messages)))
            messages += packed.messages
            if place.origin is not None:
                messages.append(registered(self._names, line.session, place.origin))
            room -= packed.size
            tip = behind(place, 0)
        settle(failed)
        return staged

    async def _send(
        self, shard: int, lines: list[SessionQueue], batch: list[Staged], messages: list[Outgoing]
    ) -> None:
        try:
            first = await send(self._link, messages)
        except (ApiError, *DOUBTS) as error:
            # Whatever it was, each of them finds out for itself.
            definite = isinstance(error, ApiError) and error.conflict
            ends: dict[str, int] = {}
            for one in batch:
                first = one.appending.first
                behind = ends.setdefault(one.append.session, first - 1)
                if not definite:
                    one.append.tried.append(Try(behind, first))
            for line in lines:
                line.alone = True
                self._tips.pop(line.session, None)
        except BaseException as error:
            self._fail(lines, error)
            raise
        else:
            self._settle(batch, first)
        finally:
            self._under_way[shard] -= 1
            for line in lines:
                self._next(shard, line)
            self._pump()

    def _settle(self, batch: Sequence[Staged], first: int) -> None:
        outcomes: list[Outcome] = []
        freed = 0
        for pending, place, packed, offset in batch:
            begins = first + offset
            records = records_of(self._names, place, packed.units, begins)
            outcomes.append((pending.ack, appended(place.session, records), None))
            self._lines[place.session].waiting.popleft()
            self.know(place.session, behind(place, begins + packed.units[-1].offset))
            freed += pending.size
        settle(outcomes)
        self._free(freed)

    def know(self, session: str, tip: Tip) -> None:
        """Remember the end of a session."""
        self._tips[session] = tip
        self._tips.move_to_end(session)
        if len(self._tips) > _TIPS:
            self._tips.popitem(last=False)

    def _begin_alone(self, shard: int, line: SessionQueue) -> None:
        line.busy = True
        front = line.waiting[0]
        if isinstance(front, ExclusiveSlot):
            if front.reached.done():  # whoever wanted it gave up
                line.waiting.popleft()
                self._next(shard, line)
            else:
                front.reached.set_result(None)
            return
        self._under_way[shard] += 1
        self._link.keep(self._alone(shard, line, front))

    async def _alone(self, shard: int, line: SessionQueue, pending: QueuedAppend) -> None:
        """Make one append behind an end that the leader tells, until its fate is known."""
        line.alone = False
        try:
            done = await self._made(line.session, pending)
            settle([(pending.ack, done, None)])
            line.waiting.popleft()
            self._free(pending.size)
        except StoreUnavailable as error:
            self._tips.pop(line.session, None)
            self._fail([line], error)
        except EventctxError as error:
            settle([(pending.ack, None, error)])
            line.waiting.popleft()
            self._free(pending.size)
        except BaseException as error:
            self._fail([line], error)
            raise
        finally:
            self._under_way[shard] -= 1
            self._next(shard, line)
            self._pump()

    async def _made(self, session: str, pending: QueuedAppend) -> Appended:
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
                packed = await self._packed(pending, place)
                try:
                    return await self._sent(session, place, packed, tip)
                except ApiError as error:
                    if not (error.conflict or error.passing):
                        raise self._link.translated(error, f"append to {session!r}") from error
                    lost: Exception = error
                except DOUBTS as error:
                    lost = error
                if isinstance(lost, ApiError) and lost.conflict:
                    await asyncio.sleep(_SHORT_PAUSE_SECONDS)
                    continue
                pending.tried.append(Try(tip.position, place.first))
                if time.monotonic() > until:
                    raise self._link.translated(lost, f"append to {session!r}") from lost
                await asyncio.sleep(_PAUSE_SECONDS)
        except BaseException:
            if pending.written:
                self._early.waste(session, pending.written)
            raise

    async def _packed(self, pending: QueuedAppend, place: UnitAppend) -> Packed:
        most = self._link.client.max_payload
        if pending.written is None:
            packed = pack(self._names, place, most)
            if packed.fits:
                return packed
            pending.written = await self._early.write(place)
        return pack_without_bodies(self._names, place, most, pending.written)

    async def _sent(self, session: str, place: UnitAppend, packed: Packed, tip: Tip) -> Appended:
        messages = packed.messages
        messages[0].headers[EXPECTED] = str(tip.sequence)
        if place.origin is not None:
            messages.append(registered(self._names, session, place.origin))
        first = await send(self._link, messages)
        self.know(session, behind(place, first + packed.units[-1].offset))
        return appended(session, records_of(self._names, place, packed.units, first))

    def _next(self, shard: int, line: SessionQueue) -> None:
        """Let a line's next turn come, or drop it."""
        line.busy = False
        if line.waiting:
            self._ready[shard].append(line)
        else:
            self._drop(line)

    def _drop(self, line: SessionQueue) -> None:
        if self._lines.get(line.session) is line:
            del self._lines[line.session]
        if not self._lines:
            self._idle.set()

    def _fail(self, lines: Iterable[SessionQueue], error: BaseException) -> None:
        """Fail all appends of these lines that lie before the next hold."""
        known = error if isinstance(error, EventctxError) else self._link.gone()
        for line in lines:
            failed: list[Outcome] = []
            while line.waiting:
                pending = line.waiting[0]
                if isinstance(pending, ExclusiveSlot):
                    break
                line.waiting.popleft()
                failed.append((pending.ack, None, known))
                self._free(pending.size)
            settle(failed)

    def _free(self, size: int) -> None:
        with self._room:
            self._bytes -= size
            self._room.notify_all()

    @asynccontextmanager
    async def holding(self, sessions: Iterable[str]) -> AsyncIterator[Callable[[str], None]]:
        """Have these sessions alone, behind all that was appended before.

        Gives a function that forgets the end of one of them, as its last record is another now.
        """
        async with AsyncExitStack() as held:
            for session in sorted(set(sessions)):  # in one order, so that two never wait in a ring
                await held.enter_async_context(self._hold(session))
            yield self._forget

    @asynccontextmanager
    async def _hold(self, session: str) -> AsyncIterator[None]:
        self._take()
        hold = ExclusiveSlot()
        self._queue(session, hold)
        self._pump()
        line = self._lines[session]
        try:
            await hold.reached
            yield
        finally:
            if hold.reached.done() and not hold.reached.cancelled():
                line.waiting.popleft()
                self._next(self._names.shard(session), line)
            elif hold in line.waiting:
                line.waiting.remove(hold)
            self._pump()

    def _forget(self, session: str) -> None:
        self._tips.pop(session, None)

    async def idle(self) -> None:
        """Wait until nothing is queued or under way."""
        self._take()
        await self._idle.wait()
