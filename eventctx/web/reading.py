"""Reads of a store for the page: in the background, the newest sessions, pictures.

A question may compute for a second. In the loop that serves, every stream and every other page
would wait for it. So it gets a thread with a loop and a reader of its own, with key
frames that no other thread touches.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, Final, TypedDict, TypeVar

from eventctx.log.store import EventStore, StreamInfo
from eventctx.projections import audit
from eventctx.projections.timeline import views
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.key_frames import timeline_at
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


_MOST: Final = 40
"""Most figures in a picture."""


class SessionPicture(TypedDict):
    """``totals`` are requests' tokens; ``lost`` counts a person's messages not in the last one."""

    totals: list[int]
    lost: int


async def session_picture(reader: Reader, session: str) -> SessionPicture:
    """The picture of a session. Raises StreamNotFound."""
    state = await timeline_at(reader.store, session)
    requests = audit.rows(state.audit).requests
    if not requests:
        return {"totals": [], "lost": 0}
    totals = [row.figures.total for row in requests]
    return {"totals": _peaks(totals), "lost": _lost_words(state, requests[-1].position)}


def _peaks(totals: list[int]) -> list[int]:
    """At most ``_MOST`` figures, the largest of each stretch: one looks for peaks."""
    if len(totals) <= _MOST:
        return totals
    edges = [len(totals) * place // _MOST for place in range(_MOST + 1)]
    return [max(totals[start:stop]) for start, stop in pairwise(edges)]


def _lost_words(state: TimelineState, position: int) -> int:
    """How many messages of a person are not in the last request, which is at ``position``."""
    entries = views.expand(state.views, len(state.views.shown) - 1)
    extras = state.views.extras
    shown = {entry if entry >= 0 else extras[-1 - entry].number for entry in entries}
    return sum(
        one.ref.facts.kind == "human" and one.ref.number not in shown
        for one in state.changes.origins
        if one.ref.position < position
    )
