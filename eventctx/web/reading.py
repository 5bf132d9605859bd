"""Reads of a store for the page: in the background, the list of sessions, words that are lost.

A question may compute for a second. In the loop that serves, every stream and every other page
would wait for it. So it gets a thread with a loop and a reader of its own, with key
frames that no other thread touches.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from eventctx.errors import EventctxError
from eventctx.log.store import EventStore, StreamInfo
from eventctx.projections import audit
from eventctx.projections.session_sums import SessionSums
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import (
    ListedSession,
    SessionStatsCache,
    Summed,
    is_live,
    list_row,
    sort_sessions,
    sum_session,
)
from eventctx.reader import Reader, read

T = TypeVar("T")


class BackgroundReader:
    """A second reader on the store at ``url``, opened by the first question."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opening = asyncio.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._reader: Reader

    async def ask(self, question: Callable[[Reader], Coroutine[Any, Any, T]]) -> T:
        """The answer to a question; raises what the question raises."""
        async with self._opening:
            if self._thread is None:
                await self._open()
        asked = asyncio.run_coroutine_threadsafe(question(self._reader), self._loop)
        return await asyncio.wrap_future(asked)

    async def close(self) -> None:
        """End the thread; what it is asked at that moment is cancelled."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    async def _open(self) -> None:
        ready: Future[None] = Future()

        def run() -> None:
            try:
                asyncio.run(self._main(ready))
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=run, name="eventctx-questions", daemon=True)
        thread.start()
        await asyncio.wrap_future(ready)
        self._thread = thread

    async def _main(self, ready: Future[None]) -> None:
        async with read(self._url) as reader:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._reader = reader
            ready.set_result(None)
            await self._stop.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


MOST: Final = 2_000
"""Sessions in the list. Each is asked about again with every look, and has a row in the page."""


class NewestSessions:
    """The last ``most`` sessions of a store in order of creation, without deleted ones.

    ``older`` is how many were made before them. The first look reads the names of all; later ones
    begin after the last session that was left out.
    """

    def __init__(self, store: EventStore, most: int = MOST) -> None:
        self.older = 0
        self._store = store
        self._most = most
        self._before: str | None = None

    async def look(self) -> list[StreamInfo]:
        """The sessions as they are now."""
        shown: deque[StreamInfo] = deque()
        before, older = self._before, self.older
        async for info in self._store.streams(after=before):
            if info.deleted:
                continue
            shown.append(info)
            if len(shown) > self._most:
                before = shown.popleft().stream
                older += 1
        # Another look may have gone on meanwhile.
        if older >= self.older:
            self._before, self.older = before, older
        return list(shown)


SLICE: Final = 0.5
"""Seconds that a question for lost words takes at most, but for its last session."""


class SessionList:
    """The rows of the newest sessions, each summed up again only when it has grown.

    ``read`` of ``sessions`` are summed up, ``older`` are not in the list. A list of a hundred long
    sessions takes seconds at first, so the page asks meanwhile how far it is. Words that are lost
    take ten times as long, and come a slice of time at a time.
    """

    def __init__(self, store: EventStore, background: BackgroundReader, most: int = MOST) -> None:
        self.read = 0
        self.sessions = 0
        self._newest = NewestSessions(store, most)
        self._background = background
        self._asking = asyncio.Lock()
        self._sums: dict[str, SessionSums] = {}
        self._rows: dict[str, ListedSession] = {}
        self._lost: dict[str, tuple[bytes, int]] = {}

    @property
    def older(self) -> int:
        """How many sessions were made before those of the list."""
        return self._newest.older

    async def rows(self) -> list[ListedSession]:
        """The rows as ``eventctx sessions`` has them: the last used first."""
        async with self._asking:
            infos = await self._newest.look()
            self.read, self.sessions = 0, len(infos)
            return await self._background.ask(partial(self._read, infos=infos))

    async def _read(self, reader: Reader, infos: Sequence[StreamInfo]) -> list[ListedSession]:
        saved = None if self._sums else SessionStatsCache(reader.store)
        now = time.time_ns()
        found: list[Summed] = []
        for info in infos:
            known = self._sums.get(info.stream) if saved is None else saved.get(info.stream)
            sums = await sum_session(reader.store, info, ReadErrors(), known)
            if sums is not self._sums.get(info.stream):
                self._rows[info.stream] = await list_row(reader.store, info, sums, now)
                self._sums[info.stream] = sums
            found.append(Summed(info, sums))
            self.read += 1
        names = {info.stream for info in infos}
        for left in self._sums.keys() - names:
            del self._sums[left], self._rows[left]
        return [
            msgspec.structs.replace(self._rows[info.stream], live=is_live(sums, now))
            for info, sums in sort_sessions(found, "last")
        ]

    async def lost(self) -> dict[str, int]:
        """By session, how many messages of a person its last request lacks, as far as known.

        Each call looks a slice of time further, the last made session first.
        """
        infos = await self._newest.look()
        return await self._background.ask(partial(self._look_for_lost, infos=infos))

    async def _look_for_lost(self, reader: Reader, infos: Sequence[StreamInfo]) -> dict[str, int]:
        until = time.monotonic() + SLICE
        found: dict[str, tuple[bytes, int]] = {}
        for info in reversed(infos):
            known = self._lost.get(info.stream)
            if known is not None and known[0] == info.digest:
                found[info.stream] = known
            elif time.monotonic() < until:
                found[info.stream] = info.digest, await lost_words(reader, info.stream)
        self._lost = found
        return {name: count for name, (_, count) in found.items()}


async def lost_words(reader: Reader, session: str) -> int:
    """How many messages of a person the session's last request lacks; 0 if it is damaged."""
    try:
        state = await timeline_at(reader.store, session)
    except EventctxError:
        return 0
    requests = audit.rows(state.audit).requests
    return _words_out_of_view(state, requests[-1].position) if requests else 0


def _words_out_of_view(state: TimelineState, position: int) -> int:
    """How many messages of a person are not in the last request, which is at ``position``."""
    entries = views.expand(state.views, len(state.views.shown) - 1)
    extras = state.views.extras
    shown = {entry if entry >= 0 else extras[-1 - entry].number for entry in entries}
    return sum(
        one.ref.facts.kind == "human" and one.ref.number not in shown
        for one in state.changes.origins
        if one.ref.position < position
    )
