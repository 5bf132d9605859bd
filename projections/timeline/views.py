"""The views of all requests, each as its difference from the view before it.

Between two breaks a view only grows at its end, so a request adds a few numbers here, however long
its view is. Invariant: a view is the first ``keep`` entries of the one before, and then ``add``:
pairs of a first and a last entry id, both included. A message as it was added has its number
as id. Every other entry (a shortened copy, an insertion, a made-up result) is an ``OtherEntry``,
and has the id -1 - its place among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from eventctx.log.events import RequestPrepared
from eventctx.log.record import Record
from eventctx.projections.view import planned, request_view
from eventctx.projections.view.entries import Entry, update_digest
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import ViewState

ExtraKind = Literal["shortened", "stripped", "partial", "insertion", "synthetic", "opening"]


class OtherEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a view other than a message as it was added.

    ``number`` is the message it is of, or whose call has no result (``synthetic``); ``position``
    and ``index`` are the place of its own body, where it has one. ``group`` is one of
    ``view_diff.GROUPS``. ``name`` is an insertion's kind, and ``stands_for`` the runs of messages
    that it stands for. ``omit`` are ids of results in it that the view leaves out. ``mark`` are
    the bytes that it gives to the view's digest.
    """

    kind: ExtraKind
    group: str
    tokens: int
    mark: bytes
    number: int | None = None
    position: int | None = None
    index: int | None = None
    name: str = ""
    stands_for: tuple[tuple[int, int], ...] = ()
    call: str = ""
    omit: tuple[str, ...] = ()


class ShownView(NamedTuple):
    """One request's view: ``keep`` entries of the view before, then the runs of ids in ``add``.

    ``digest`` is the view's, as recorded with the request.
    """

    keep: int
    add: tuple[int, ...]
    digest: str


class LastView(NamedTuple):
    """The entries of the last request: those that only a break changes, and those after them."""

    sealed: Series[Entry]
    tail: tuple[Entry, ...]


class ViewsState(NamedTuple):
    """All views so far.

    ``last`` is the last view: its entries or, after a snapshot was loaded, their ids. ``places``
    finds the extras of the last view again; versions of this state share it.
    """

    shown: Series[ShownView]
    extras: Series[OtherEntry]
    last: LastView | tuple[int, ...]
    places: dict[_Key, int]


_Key = tuple[object, ...]
_NOTHING = LastView(Series(), ())


def initial() -> ViewsState:
    """No views."""
    return ViewsState(Series(), Series(), _NOTHING, {})


def restart(state: ViewsState) -> ViewsState:
    """No views, but the extras so far: a fork has no requests before its own first one."""
    return ViewsState(Series(), state.extras, _NOTHING, {})


def resume(
    shown: Series[ShownView], extras: Series[OtherEntry], last: tuple[int, ...]
) -> ViewsState:
    """The state from its series and the ids of the last view."""
    places = {_key(extras[-1 - one]): -1 - one for one in last if one < 0}
    return ViewsState(shown, extras, last, places)


def last_ids(state: ViewsState) -> tuple[int, ...]:
    """The entry ids of the last view, in time proportional to that view alone."""
    last = state.last
    if not isinstance(last, LastView):
        return last
    naming = _Naming(state.extras, state.places, {})
    return tuple([naming.id_of(entry) for entry in (*last.sealed, *last.tail)])


def add_request(
    state: ViewsState, view: ViewState, event: RequestPrepared, record: Record
) -> ViewsState:
    """The views after the request in ``record``; ``view`` is the state before it."""
    view = request_view.as_requested(view, event)
    if event.insertions:
        view = planned.with_insertions(view, event.insertions, record)
    now = LastView(view.layout.sealed, tuple(view.layout.tail()))
    last = state.last
    if isinstance(last, LastView) and now.sealed.continues(last.sealed):
        keep, added = _difference(last, now)
        naming = _Naming(state.extras, state.places, state.places)
        ids = [naming.id_of(entry) for entry in added]
    else:
        # After a break, only the entries of the last view can be found again.
        naming = _Naming(state.extras, state.places, {})
        ids = [naming.id_of(entry) for entry in (*now.sealed, *now.tail)]
        keep = same_at_start(last_ids(state), ids)
        ids = ids[keep:]
    shown = state.shown.append(ShownView(keep, runs_of(ids), event.digest))
    return ViewsState(shown, naming.extras, now, naming.places)


def kept_now(state: ViewsState, view: ViewState) -> int:
    """How many first entries of the last request's view the view still has as it is now."""
    naming = _Naming(state.extras, state.places, {})
    return same_at_start(last_ids(state), [naming.id_of(one) for one in view.layout.entries()])


def expand(state: ViewsState, request: int) -> list[int]:
    """The entry ids of the view of request ``request``, counted from 0.

    It goes back as far as the oldest entries that stayed in view.
    """
    parts: list[list[int]] = []
    need, place = -1, request
    while place >= 0 and need != 0:
        keep, add, _ = state.shown[place]
        ids = ids_of(add)
        parts.append(ids if need < 0 else ids[: max(0, need - keep)])
        need = keep if need < 0 else min(need, keep)
        place -= 1
    return [one for part in reversed(parts) for one in part]


def ids_of(runs: Sequence[int]) -> list[int]:
    """The entry ids of runs, each a first and a last one."""
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return [one for first, last in pairs for one in range(first, last + 1)]


def runs_of(ids: Sequence[int]) -> tuple[int, ...]:
    """Entry ids as runs of neighbouring messages; every other entry is a run of its own."""
    runs: list[int] = []
    for one in ids:
        if runs and one == runs[-1] + 1 and runs[-1] >= 0:
            runs[-1] = one
        else:
            runs += (one, one)
    return tuple(runs)


def same_at_start(one: Sequence[int], other: Sequence[int]) -> int:
    """How many first ids two views have in common."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def mark_of(entry: Entry) -> bytes:
    """The bytes that an entry gives to a view's digest."""
    found = _Bytes()
    update_digest(found, (entry,))
    return found.data


class _Bytes:
    """Collects the bytes that a digest would take."""

    data = b""

    def update(self, data: bytes, /) -> None:
        self.data += data


def _difference(before: LastView, now: LastView) -> tuple[int, list[Entry]]:
    """How many first entries two views share, of which one continues the other, and the rest."""
    start = len(before.sealed)
    new = [*now.sealed[start:], *now.tail]
    same = 0
    for one, other in zip(before.tail, new, strict=False):
        if one is not other and one != other:
            break
        same += 1
    return start + same, new[same:]


def _whole_number(entry: Entry) -> int | None:
    """The number of a message that is shown as it was added."""
    ref = entry.ref
    if entry.kind != "message" or entry.omit or not isinstance(ref, MessageRef):
        return None
    return None if ref.shortened or ref.stripped else ref.number


class _Naming:
    """Gives entries their ids; one that the last view showed too keeps its id."""

    def __init__(
        self, extras: Series[OtherEntry], known: dict[_Key, int], places: dict[_Key, int]
    ) -> None:
        self.extras = extras
        self.places = places
        self._known = known

    def id_of(self, entry: Entry) -> int:
        """The id of an entry."""
        whole = _whole_number(entry)
        if whole is not None:
            return whole
        made = _other_entry(entry)
        key = _key(made)
        place = self._known.get(key)
        # Another version of the state may have put another extra there.
        if place is None or place >= len(self.extras) or self.extras[place] != made:
            place = len(self.extras)
            self.extras = self.extras.append(made)
        self.places[key] = place
        return -1 - place


def _key(extra: OtherEntry) -> _Key:
    return extra.kind, extra.number, extra.position, extra.index, extra.mark


def _other_entry(entry: Entry) -> OtherEntry:
    ref, mark = entry.ref, mark_of(entry)
    if isinstance(ref, InsertionRef):
        return OtherEntry(
            "insertion",
            "inserted",
            ref.tokens,
            mark,
            position=ref.position,
            index=ref.index,
            name=ref.kind,
            stands_for=ref.stands_for,
        )
    if ref is None:
        return OtherEntry("opening", "made_up", entry.tokens, mark)
    if entry.kind == "synthetic":
        at = None if entry.end is None else entry.end.position
        index = None if at is None else 0
        own = {"number": ref.number, "position": at, "index": index, "call": entry.call_id}
        return OtherEntry("synthetic", "made_up", entry.tokens, mark, **own)  # type: ignore[arg-type]
    kind: ExtraKind = "shortened" if ref.shortened else "stripped" if ref.stripped else "partial"
    return OtherEntry(
        kind,
        ref.facts.kind,
        ref.tokens,
        mark,
        number=ref.number,
        position=ref.position if ref.shortened else None,
        index=ref.index if ref.shortened else None,
        omit=entry.omit,
    )
