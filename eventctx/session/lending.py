"""The rows of a session's last request, which the next one hands out again.

Between two breaks a view only grows at its end (rule 5 of a request view), so a request need only
decode what is new. That a view goes on from the one before is not concluded from the records
alone: it must be the same sealed series, longer.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from eventctx.messages.encoding import collector_paused
from eventctx.messages.lent import lend
from eventctx.projections.view.layout import Entry, Layout
from eventctx.projections.view.render import addresses, render
from eventctx.projections.view.series import Series
from eventctx.session.aggregate import LiveSession
from eventctx.session.requests import PreparedRequest

Borrower = weakref.ref[asyncio.Task[Any]]


class _Lent(NamedTuple):
    """The rows of the request at ``position``, whose settled entries are ``sealed``.

    ``changed`` are the places of rows that a caller changed, ``borrower`` is the task that got
    them.
    """

    position: int
    sealed: Series[Entry]
    rows: list[dict[str, Any]]
    changed: set[int]
    borrower: Borrower | None


class Lending:
    """Hands out the rows of one session's requests. Safe to use from several tasks and threads.

    Rows are lent to one task at a time: while it runs, another one gets rows of its own.
    """

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._lent: _Lent | None = None

    def drop(self) -> None:
        """Forget the rows, as after a change that the next request cannot go on from."""
        self._taken()

    async def rows(self, request: PreparedRequest) -> list[dict[str, Any]]:
        """The messages of a request that was just recorded, in a new list."""
        # Whoever prepares meanwhile finds nothing to go on from, and makes rows of its own.
        lent = self._taken()
        task = asyncio.current_task()
        layout = request.view.layout
        tail = layout.tail()
        if lent is not None and _is_lent_to(lent, task) and _goes_on(lent, request):
            rows, changed = await self._continued(lent, layout, tail)
        else:
            lent = None  # not both views in memory
            rows, changed = await self._made(layout, tail)
        borrower = None if task is None else weakref.ref(task)
        made = _Lent(request.position, layout.sealed, rows, changed, borrower)
        handed_out = rows.copy()
        with self._lock:
            self._lent = made
        return handed_out

    def _taken(self) -> _Lent | None:
        with self._lock:
            lent, self._lent = self._lent, None
            return lent

    async def _made(
        self, layout: Layout, tail: list[Entry]
    ) -> tuple[list[dict[str, Any]], set[int]]:
        """All rows, from their bytes."""
        entries = [*layout.sealed, *tail]
        wanted = addresses(entries)
        bodies = await self._live.texts(wanted)
        changed: set[int] = set()
        with collector_paused(len(entries)):
            rows = _lent_rows(entries, range(len(entries)), bodies, changed)
        self._live.trim(wanted)
        return rows, changed

    async def _continued(
        self, lent: _Lent, layout: Layout, tail: list[Entry]
    ) -> tuple[list[dict[str, Any]], set[int]]:
        """The rows of before, with what is new behind them, and what was changed made anew."""
        rows, changed, sealed = lent.rows, lent.changed, layout.sealed
        kept = len(rows)
        new = range(kept, len(sealed) + len(tail))
        old: set[int] = set()
        while True:
            old |= _drained(changed)
            places = [*sorted(old), *new]
            entries = [
                sealed[place] if place < len(sealed) else tail[place - len(sealed)]
                for place in places
            ]
            bodies = await self._live.texts(addresses(entries))
            # A caller that does not wait for us may have changed more while bodies were fetched.
            if not changed:
                break
        with collector_paused(len(places)):
            made = _lent_rows(entries, places, bodies, changed)
        for place, row in zip(places[: len(old)], made, strict=False):
            rows[place] = row
        rows += made[len(old) :]
        return rows, changed


def _is_lent_to(lent: _Lent, task: asyncio.Task[Any] | None) -> bool:
    """Whether the task may have these rows: nobody else who runs still holds them."""
    borrower = None if lent.borrower is None else lent.borrower()
    return borrower is None or borrower is task or borrower.done()


def _goes_on(lent: _Lent, request: PreparedRequest) -> bool:
    """Whether the request begins with these rows.

    Of a round that was in progress, results may have come in the place of made-up ones: that is a
    break.
    """
    sealed = request.view.layout.sealed
    return request.continues == lent.position and sealed.continues(lent.sealed)


def _drained(changed: set[int]) -> set[int]:
    places = changed.copy()
    changed.difference_update(places)
    return places


def _lent_rows(
    entries: Sequence[Entry],
    places: Iterable[int],
    bodies: Mapping[tuple[int, int], bytes | None],
    changed: set[int],
) -> list[dict[str, Any]]:
    made = zip(places, render(entries, bodies), strict=True)
    return [lend(row, (changed, place)) for place, row in made]
