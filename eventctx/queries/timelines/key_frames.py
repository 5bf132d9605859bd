"""Key frames: a timeline's state at every thousandth record, so that no question folds from zero.

A state shares nearly all of its data with the one before, so a frame costs about its view. The
records behind the last frame are folded anew for every question: a session of fewer than a thousand
records is always read as the store holds it now.

A frame is used only while the store holds the record that it was made at, by digest. An erasure
changes the facts of earlier messages, so a session's frames go when one is found behind them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from eventctx.log.record import Record
from eventctx.log.store import EventStore, last_position
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.fold import TimelineState

KEY_FRAME: Final = 1_000
"""Records from one key frame to the next: the most that a question about the past folds."""

MOST_MESSAGES: Final = 250_000
"""Messages of all sessions whose frames are held; a message takes about half a kilobyte."""


class Frames(NamedTuple):
    """The key frames of a session in the order of their positions.

    ``known`` is the position up to which the session was looked through for erasures.
    """

    states: tuple[TimelineState, ...] = ()
    known: int = -1

    def before(self, position: int) -> TimelineState | None:
        """The last frame at or before a position."""
        place = bisect_right(self.states, position, key=_position)
        return self.states[place - 1] if place else None

    @property
    def messages(self) -> int:
        """How many messages the last frame knows."""
        return len(self.states[-1].changes.origins) if self.states else 0


class FrameCache(Protocol):
    """Where frames outlive the process. What it loses is folded again."""

    async def load(self, stream: str) -> Sequence[TimelineState]:
        """The frames of a session; none where there are none that can be used."""
        ...

    async def save(self, stream: str, frames: Sequence[TimelineState]) -> None:
        """Keep the frames of a session, in place of those that it had."""
        ...

    async def forget(self, stream: str) -> None:
        """Let go of a session's frames."""
        ...


class KeyFrames:
    """The key frames of the sessions of one store, those used last."""

    def __init__(self, store: EventStore, cache: FrameCache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._held: OrderedDict[str, Frames] = OrderedDict()

    async def at(self, stream: str, position: int | None = None) -> TimelineState:
        """The timeline after the record at ``position``, or after the last one.

        Raises StreamNotFound, and what the log's records raise when they are damaged.
        """
        head = await last_position(self._store, stream)
        frames = await self._frames(stream)
        if frames.known != head or position is None or position >= head:
            now = await self._folded_to_head(stream, frames)
            if position is None or position >= now.position:
                return now
            frames = self._held.get(stream, Frames())
        found = await self._folded(stream, frames.before(position), position)
        if found is None:  # the store holds another log by now
            self._held.pop(stream, None)
            return await self.at(stream, position)
        return found

    async def forget(self, stream: str) -> None:
        """Let go of a session's frames, here and on disk."""
        self._held.pop(stream, None)
        if self._cache is not None:
            await self._cache.forget(stream)

    async def _frames(self, stream: str) -> Frames:
        frames = self._held.get(stream)
        if frames is None:
            states = () if self._cache is None else await self._cache.load(stream)
            frames = Frames(tuple(states), states[-1].position if states else -1)
            self._hold(stream, frames)
        else:
            self._held.move_to_end(stream)
        return frames

    def _hold(self, stream: str, frames: Frames) -> None:
        self._held[stream] = frames
        self._held.move_to_end(stream)
        while len(self._held) > 1 and self._messages() > MOST_MESSAGES:
            self._held.popitem(last=False)

    def _messages(self) -> int:
        return sum([frames.messages for frames in self._held.values()])

    async def _folded_to_head(self, stream: str, frames: Frames) -> TimelineState:
        """The state at the end of the log; keeps the frames on the way."""
        made = list(frames.states)
        state = await self._folded(stream, made[-1] if made else None, None, made, frames.known)
        if state is None:
            await self.forget(stream)
            made = []
            state = await self._folded(stream, None, None, made)
            assert state is not None  # noqa: S101 - without a frame nothing can differ
        self._hold(stream, Frames(tuple(made), state.position))
        if self._cache is not None and len(made) != len(frames.states):
            await self._cache.save(stream, made)
        return state

    async def _folded(
        self,
        stream: str,
        frame: TimelineState | None,
        stop: int | None,
        made: list[TimelineState] | None = None,
        known: int | None = None,
    ) -> TimelineState | None:
        """The state at ``stop`` from ``frame`` on; None where the frame is not of this log.

        It is not, either, where an erasure lies behind ``known``. New frames go to ``made``.
        """
        state = fold.initial() if frame is None else frame
        start = 0 if frame is None else frame.position
        met = frame is None
        async for record in self._store.read(stream, start=start, stop=stop, bodies=False):
            if not met:
                met = frame is not None and record.digest == frame.digest
                if not met:
                    return None
                continue
            if frame is not None and known is not None and _erases(record, known):
                return None
            state = fold.evolve(state, record)
            if made is not None and (record.position + 1) % KEY_FRAME == 0:
                made.append(state)
        return state if met else None


def _erases(record: Record, known: int) -> bool:
    return record.type == "context:erased" and record.position > known


def _position(state: TimelineState) -> int:
    return state.position


_of_stores: WeakKeyDictionary[EventStore, KeyFrames] = WeakKeyDictionary()
"""A store's frames live as long as the store: whoever asks about it shares them."""


def key_frames(store: EventStore) -> KeyFrames:
    """The key frames of a store's sessions in this process."""
    found = _of_stores.get(store)
    if found is None:
        found = _of_stores[store] = KeyFrames(store)
    return found


async def timeline_at(store: EventStore, stream: str, position: int | None = None) -> TimelineState:
    """The timeline of a session after the record at ``position``, or after the last one.

    Raises StreamNotFound.
    """
    return await key_frames(store).at(stream, position)


async def record_at(store: EventStore, stream: str, position: int) -> Record | None:
    """The record at ``position``, without its bodies' data; None where there is none.

    Raises StreamNotFound.
    """
    async for record in store.read(stream, start=position, stop=position, bodies=False):
        return record
    return None
