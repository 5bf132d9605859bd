"""The part of a request that the next one begins with, which a provider's cache can serve again.

Entries are compared by the bodies that they show and how they show them, not by their text. Every
body has a digest of its own, so a message that was taken out and added again counts as another one,
though the provider receives the same bytes: our share is never more than the provider's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventctx.log.plan import Insertion
from eventctx.log.record import Record
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.planned import with_insertions
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState

Erased = frozenset[tuple[int, int]]
"""Addresses ``(position, index)`` of erased bodies."""


class RequestPrefix(NamedTuple):
    """A prepared request: the view, and ``own``, the insertions of this request alone.

    ``view`` is None if it is not known. ``carrier`` is the record that holds the insertions'
    bodies, None if there are no insertions.
    """

    view: ViewState | None
    own: tuple[Insertion, ...] = ()
    carrier: Record | None = None

    def entries(self) -> list[Entry]:
        """All entries in order, in time proportional to the view's length."""
        assert self.view is not None  # noqa: S101 - callers have checked it
        view = self.view
        if self.carrier is not None:
            view = with_insertions(view, self.own, self.carrier)
        return view.layout.entries()


def reused(before: RequestPrefix, after: RequestPrefix, erased: Erased) -> float | None:
    """The share, 0 to 1, of the estimated tokens of ``before`` with which ``after`` begins.

    Only whole messages count. ``erased`` are the bodies erased in between. None if a view is not
    known.
    """
    if before.view is None or after.view is None:
        return None
    old, new = before.entries(), after.entries()
    total = sum([entry.tokens for entry in old])
    if not total:
        return 1.0
    return sum([entry.tokens for entry in _same(old, new, erased)]) / total


def _same(old: list[Entry], new: list[Entry], erased: Erased) -> Iterable[Entry]:
    for one, other in zip(old, new, strict=False):
        if _shown(one) != _shown(other) or _place(one) in erased:
            return
        yield one


def _shown(entry: Entry) -> tuple[object, ...]:
    """The parts of an entry that decide the message that a model sees: no counts, no places."""
    kind, ref, call_id, omit, end = entry
    if kind == "synthetic":
        known = None if end is None else (end.ended, end.digest)
        return kind, call_id, entry.dialect, known
    if ref is None:
        return (kind,)
    return ref.digest, isinstance(ref, MessageRef) and ref.stripped, omit


def _place(entry: Entry) -> tuple[int, int] | None:
    # A synthetic result shows nothing of its call's body, only an answer that was kept.
    if entry.end is not None and entry.end.position is not None:
        return entry.end.position, 0
    if entry.ref is None or entry.kind == "synthetic":
        return None
    return entry.ref.position, entry.ref.index
