"""Key frames: a timeline's state at every thousandth record, so that no question folds from zero.

A state shares nearly all of its data with the one before, so a frame costs about its view. The
records after the last frame are folded anew for every question: a session of fewer than a thousand
records is always read as the store holds it now.

A frame is used only while the store holds the record that it was made at, by digest. An erasure
changes the facts of earlier messages, so a session's frames go when one is found after them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import TYPE_CHECKING, Final, Protocol, TypeVar
from weakref import WeakKeyDictionary

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.store import EventStore, last_position
from eventctx.projections import figures
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.fold import TimelineState

if TYPE_CHECKING:
    from eventctx.log.record import Record
    from eventctx.projections.explain.changes import ChangesState
    from eventctx.projections.figures import Figures
    from eventctx.projections.timeline.columns import Document
    from eventctx.projections.timeline.snapshot import LoadedFrames, StoredFrame


KEY_FRAME: Final = 1_000
"""Records from one key frame to the next: the most that a question about the past folds."""

_TURN: Final = 100
"""Records, or 2 ms, after which a fold lets the other tasks of its loop go on."""

MOST_RECORDS: Final = 1_000_000
"""Records of all sessions whose frames are held; a record takes about 150 bytes of them."""


MOST_BESIDE: Final = 50_000
"""Most messages, over all sessions, with data that is cached with the key frames: 3 KB each.

The session asked about last is kept however long it is.
"""

K = TypeVar("K", bound=Sized)


class Frames:
    """The key frames of a session in the order of their positions.

    ``known`` is the position up to which the session was looked through for erasures, ``now`` the
    state there, if it is held. ``loaded`` are frames from a file, whose states are made when they
    are asked for. ``beside`` is what questions keep for as long as the frames are held.
    """

    def __init__(self, packed: LoadedFrames | None = None) -> None:
        self.now: TimelineState | None = None
        self.beside: dict[type[Sized], Sized] = {}
        self._packed = packed
        self._states: list[TimelineState] = []
        self.positions = [] if packed is None else list(packed.positions)
        self.known = self.positions[-1] if self.positions else -1

    def last(self) -> TimelineState | None:
        """The last frame."""
        return self._at(len(self.positions) - 1)

    def before(self, position: int) -> TimelineState | None:
        """The last frame at or before a position."""
        return self._at(bisect_right(self.positions, position) - 1)

    @property
    def damaged(self) -> bool:
        """Whether a part of a file, read late, was not what was stored."""
        return self._packed is not None and self._packed.damaged

    def begin(self) -> NewFrames:
        """Frames to come after the last one."""
        return NewFrames(self.positions[-1:], self._packed, self.last)

    def take(self, new: NewFrames, known: int) -> bool:
        """Take the frames after the last one; False if others were taken since ``begin``."""
        if new.after != self.positions[-1:] or not new.positions:
            return False
        self._packed = new.packed or self._packed
        self._states += new.states
        self.positions += new.positions
        self.known = known
        return True

    def _at(self, place: int) -> TimelineState | None:
        if place < 0:
            return None
        packed = self._packed
        if packed is None or place >= len(packed.positions):
            return self._states[place - (0 if packed is None else len(packed.positions))]
        return packed.state(place)


class NewFrames:
    """The frames of one fold. A frame is packed at once, and the fold goes on from its bytes.

    So a long session takes some tens of bytes a record instead of a thousand. Those of a fork are
    held as states: its rows begin anew at its own first record.
    """

    def __init__(
        self,
        after: list[int],
        packed: LoadedFrames | None,
        last: Callable[[], TimelineState | None],
    ) -> None:
        self.after = after
        self.positions: list[int] = []
        self.states: list[TimelineState] = []
        self.stored: list[StoredFrame] = []
        self.packed: LoadedFrames | None = None
        self._before = packed
        self._last = last

    def keep(self, state: TimelineState) -> TimelineState:
        """Keep ``state`` as a frame; return what to fold the next records on."""
        from eventctx.projections.timeline.snapshot import LoadedFrames, dump

        before = self._last() if not self.positions else None
        self.positions.append(state.position)
        if state.extras.provenance.parent is not None:
            self.states.append(state)
            return state
        if self.packed is None:
            self.packed = LoadedFrames() if self._before is None else self._before.copy()
        place = len(self.packed.positions)
        if place and before is None:
            before = self.packed.state(place - 1)
        one = dump(state, before)
        self.stored.append(one)
        self.packed.add(one)
        return self.packed.state(place)


class FrameCache(Protocol):
    """Where frames outlive the process. What it loses is folded again."""

    async def load(self, stream: str) -> LoadedFrames | None:
        """The frames of a session; None where there are none that can be used."""
        ...

    async def save(
        self, stream: str, before: TimelineState | None, fresh: Sequence[StoredFrame]
    ) -> None:
        """Keep ``fresh`` frames after those up to ``before`` (None: they are the first)."""
        ...

    async def forget(self, stream: str) -> None:
        """Let go of a session's frames."""
        ...


class KeyFrames:
    """The key frames of the sessions of one store, those used last: one every ``every`` records."""

    def __init__(
        self, store: EventStore, cache: FrameCache | None = None, *, every: int = KEY_FRAME
    ) -> None:
        self._store = store
        self._cache = cache
        self._every = every
        self._held: OrderedDict[str, Frames] = OrderedDict()

    async def at(self, stream: str, position: int | None = None) -> TimelineState:
        """The timeline after the record at ``position``, or after the last one.

        Raises StreamNotFound, and what the log's records raise when they are damaged.
        """
        head = await last_position(self._store, stream)
        frames = await self._frames(stream)
        if frames.known != head or position is None or position >= head:
            now = await self._now(stream, frames, head)
            if position is None or position >= now.position:
                return now
            frames = self._held.get(stream, frames)
        try:
            found = await self._folded(stream, frames.before(position), position)
        except DecodeError:
            if not frames.positions:
                raise
            found = None
        if found is None:  # the store holds another log by now, or a frame is damaged
            await self.forget(stream)
            # Not those of a file that cannot be deleted: they would be found damaged for ever.
            self._held[stream] = Frames()
            return await self.at(stream, position)
        return found

    def beside(self, stream: str, now: ChangesState, kind: type[K]) -> K:
        """The cache of one kind that questions keep with the frames of a session; empty at first.

        It goes when the frames go: what is in it holds for this log alone, and may have texts. It
        is not kept for a session without frames, nor where ``now`` is not the state that is held.
        """
        frames = self._held.get(stream)
        if frames is None or frames.now is None or frames.now.changes is not now:
            return kind()
        found = frames.beside.get(kind)
        if found is None:
            found = frames.beside[kind] = kind()
        self._let_go_beside(frames, len(now.origins))
        assert isinstance(found, kind)  # noqa: S101 - tells the type checker
        return found

    def forget_beside(self, stream: str) -> None:
        """Evict the caches kept with a session's frames. Other threads may call it."""
        frames = self._held.get(stream)
        if frames is not None:
            frames.beside = {}

    def _let_go_beside(self, asked: Frames, messages: int) -> None:
        """Keep as many caches of other sessions as there is room for, those used last."""
        room = MOST_BESIDE - messages
        for frames in reversed(self._held.values()):
            if frames is not asked:
                room -= max(map(len, frames.beside.values()), default=0)
                if room < 0:
                    frames.beside.clear()

    async def continued(self, stream: str, state: TimelineState) -> TimelineState | None:
        """The timeline after the last record, folded from an earlier ``state`` of it.

        None where ``state`` does not hold any more: another session has its name by now, or an
        erasure changed what earlier messages are. Raises StreamNotFound.
        """
        return await self._folded(stream, state, None, known=state.position)

    async def save(self, stream: str) -> None:
        """Keep the frames of a session in its file, and hold no more of it than before.

        Not of a fork, which has no file. Raises as ``at``.
        """
        info = await self._store.head(stream)
        if info is None or info.deleted or info.parent is not None:
            return
        held = stream in self._held
        await self.at(stream)
        if not held:
            self._held.pop(stream, None)

    async def forget(self, stream: str) -> None:
        """Evict a session's frames, here and on disk, and all texts kept with them.

        Also of those that other stores of this process keep, which have the same file open.
        """
        self._held.pop(stream, None)
        path = self._store.cache_path
        if path is not None:
            for store, frames in list(_of_stores.items()):
                if store.cache_path == path:
                    frames.forget_beside(stream)
        if self._cache is not None:
            await self._cache.forget(stream)

    async def _frames(self, stream: str) -> Frames:
        frames = self._held.get(stream)
        if frames is not None and frames.damaged:
            await self.forget(stream)
            frames = self._held[stream] = Frames()
        if frames is None:
            loaded = None if self._cache is None else await self._cache.load(stream)
            frames = self._held[stream] = Frames(loaded)
        self._held.move_to_end(stream)
        while len(self._held) > 1 and self._records() > MOST_RECORDS:
            self._held.popitem(last=False)
        return frames

    def _records(self) -> int:
        return sum([frames.known + 1 for frames in self._held.values()])

    async def _now(self, stream: str, frames: Frames, head: int) -> TimelineState:
        now = frames.now
        if now is not None and now.position == head:
            record = await record_at(self._store, stream, head)
            if record is not None and record.digest == now.digest:
                return now
        return await self._at_head(stream, frames)

    async def _at_head(self, stream: str, frames: Frames) -> TimelineState:
        """The state at the end of the log; keeps the frames on the way."""
        made = frames.begin()
        last: TimelineState | None = None
        try:
            last = frames.last()
            state = await self._folded(stream, frames.now or last, None, made, frames.known)
        except DecodeError:
            if not frames.positions:
                raise
            state = None
        if state is None:
            await self.forget(stream)
            frames = self._held[stream] = Frames()
            last, made = None, frames.begin()
            state = await self._folded(stream, None, None, made)
            assert state is not None  # noqa: S101 - without a frame nothing can differ
        # Another task may have taken the same frames meanwhile, or forgotten them: an erasure does.
        if (
            frames.take(made, state.position)
            and self._held.get(stream) is frames
            and self._cache is not None
            and state.extras.provenance.parent is None
        ):
            await self._cache.save(stream, last, made.stored)
        frames.known = max(frames.known, state.position)
        # A short session is read as the store holds it now, each time.
        frames.now = state if frames.positions else None
        return state

    async def _folded(
        self,
        stream: str,
        frame: TimelineState | None,
        stop: int | None,
        made: NewFrames | None = None,
        known: int | None = None,
    ) -> TimelineState | None:
        """The state at ``stop`` from ``frame`` on; None where the frame is not of this log.

        It is not, either, where an erasure comes after ``known``. New frames go to ``made``.
        """
        import asyncio  # a command that only prints its help loads no loop

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
            if record.position % _TURN == 0:
                await asyncio.sleep(0)
            if made is not None and (record.position + 1) % self._every == 0:
                state = made.keep(state)
        return state if met else None


def _erases(record: Record, known: int) -> bool:
    return record.type == "context:erased" and record.position > known


_of_stores: WeakKeyDictionary[EventStore, KeyFrames] = WeakKeyDictionary()
"""A store's frames live as long as the store: whoever asks about it shares them."""


def key_frames(store: EventStore) -> KeyFrames:
    """The key frames of a store's sessions in this process."""
    found = _of_stores.get(store)
    if found is None:
        path = store.cache_path
        from eventctx.queries.frame_files import FrameFiles  # with the first question

        cache = None if path is None else FrameFiles(path, read_only=store.read_only)
        found = _of_stores[store] = KeyFrames(store, cache)
    return found


def save_frames_of(store: EventStore) -> None:
    """Save the key frames of a store that is opened read-only, too: a cache of its reader's own."""
    if store.cache_path is not None:
        from eventctx.queries.frame_files import FrameFiles

        _of_stores.setdefault(store, KeyFrames(store, FrameFiles(store.cache_path)))


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


StateAt = Callable[[str, int | None], Awaitable[TimelineState]]
"""The timeline of a session after the record at a position, or after the last one (None)."""


async def timeline_document(state_at: StateAt, session: str, after: int | None = None) -> Document:
    """The document of a session as it is now, or what continues that of position ``after``.

    Raises what ``state_at`` raises, and InvalidSetting for a position that no document ends at.
    """
    import asyncio

    from eventctx.projections.timeline.document import document

    state = await state_at(session, None)
    if after is None:
        return await asyncio.to_thread(document, state, session)
    parent = state.extras.provenance.parent
    # The records up to there are the parent's: a document of the fork has its own first one.
    first = 0 if parent is None else parent[1] + 1
    if not first <= after <= state.position:
        raise InvalidSetting(
            f"after: expected a position from {first} to {state.position}, found {after}"
        )
    since = await state_at(session, after)
    return await asyncio.to_thread(document, state, session, since=since)


async def figures_of(store: EventStore, stream: str) -> Figures:
    """The figures of every request and compaction of a session. Raises StreamNotFound."""
    return figures.read((await timeline_at(store, stream)).audit.sizes)
