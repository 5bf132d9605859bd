"""Losses: what handlers failed at, and what they never got or could not pass on, as counts.

Operational figures live outside the log. A loss book keeps them beside a store, so that another
process can show what became of the hooks of one that has ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, Protocol

import msgspec

LossKind = Literal["error", "dropped"]
"""``error``: a handler raised, was cancelled or took too long. ``dropped``: a record that a handler
never got, or something that it took and could not pass on, such as a span nobody accepted."""


class Loss(msgspec.Struct, frozen=True):
    """How often a handler (``module.qualified_name``) lost something, of one kind.

    ``last`` is when it did last, in UTC nanoseconds.
    """

    handler: str
    kind: LossKind
    count: int
    last: int


class LossBook(Protocol):
    """Sums of losses by handler and kind, of all processes that ever wrote them. Blocks."""

    @property
    def place(self) -> Hashable:
        """Equal for two books that hold the same sums."""
        ...

    def add(self, losses: Sequence[Loss]) -> None:
        """Add to the sums, all or nothing. Raises StoreError or one of its kinds."""
        ...

    def read(self) -> tuple[Loss, ...]:
        """The sums, ordered by handler and kind; writes and creates nothing. Raises as ``add``."""
        ...


def summed(losses: Sequence[Loss]) -> tuple[Loss, ...]:
    """One loss per handler and kind, ordered by them."""
    sums: dict[tuple[str, LossKind], Loss] = {}
    for one in losses:
        key = (one.handler, one.kind)
        known = sums.get(key)
        if known is not None:
            one = Loss(*key, known.count + one.count, max(known.last, one.last))
        sums[key] = one
    return tuple([sums[key] for key in sorted(sums)])
