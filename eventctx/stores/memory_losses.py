"""The losses of a store that ends with its process."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from eventctx.log.hook_failures import Loss, summed


class MemoryLosses:
    """A ``LossBook`` in memory."""

    def __init__(self) -> None:
        self._sums: tuple[Loss, ...] = ()

    @property
    def place(self) -> Hashable:
        """Itself: nobody else has its sums."""
        return id(self)

    def add(self, losses: Sequence[Loss]) -> None:
        """See ``LossBook.add``."""
        self._sums = summed((*self._sums, *losses))

    def read(self) -> tuple[Loss, ...]:
        """See ``LossBook.read``."""
        return self._sums
