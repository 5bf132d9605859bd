"""How much of a request the next one begins with: what a provider's prompt cache can serve again.

Entries are compared by the bodies that they show and how they show them, never by their text. A
body has a digest of its own, so a message that was taken out and added again counts as another
one, though a provider sees the same bytes: the share is never more than theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventctx.log.plan import Insertion
from eventctx.log.record import Record
from eventctx.projections.view.layout import Entry
from eventctx.projections.view.planned import with_insertions
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.request_view import ViewState

Erased = frozenset[tuple[int, int]]
"""Addresses ``(position, index)`` of bodies that were emptied."""


class RequestPrefix(NamedTuple):
    """A request as it was prepared: the view, and the insertions of this request alone.

    ``view`` is None where it is not known; ``carrier``, the record that holds the insertions'
    bodies, where there are none.
    """

    view: ViewState | None
    own: tuple[Insertion, ...] = ()
    carrier: Record | None = None

    def entries(self) -> list[Entry]:
        """All entries in order; costs as much as the view is long."""
        assert self.view is not None  # noqa: S101 - asked by callers that looked
        view = self.view
        if self.carrier is not None:
            view = with_insertions(view, self.own, self.carrier)
        return view.layout.entries()


def reused(before: RequestPrefix, after: RequestPrefix, erased: Erased) -> float | None:
    """The share, 0 to 1, of the estimated tokens of ``before`` with which ``after`` begins.

    Whole messages count. ``erased`` are the bodies emptied in between. None where a view is not
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
    """What makes the message that a model sees; token counts and places are no part of it."""
    kind, ref, call_id, omit = entry
    if kind == "synthetic":
        return kind, call_id, entry.dialect
    if ref is None:
        return (kind,)
    return ref.digest, isinstance(ref, MessageRef) and ref.stripped, omit


def _place(entry: Entry) -> tuple[int, int] | None:
    # A made-up result shows nothing of its call's body.
    if entry.ref is None or entry.kind == "synthetic":
        return None
    return entry.ref.position, entry.ref.index
