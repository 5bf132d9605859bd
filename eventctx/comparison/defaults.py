"""Defaults of a comparison. This module loads nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

BUDGETS: Final = (100_000, 50_000, 16_000)
"""Tokens per request."""

LOSSES: Final = 10
"""The worst losses that are listed for each policy and budget."""

Progress = Callable[[int, int], None]
"""Called with the runs that are done, and with all of them."""


class Prices(NamedTuple):
    """Prices of a prompt's tokens: those read from the provider's cache, and all others.

    The defaults are in units of the plain input price: a cached token costs a tenth, and a token
    that is written to the cache a quarter more.
    """

    cached: float = 0.1
    written: float = 1.25

    def of(self, tokens: int, cached: int) -> float:
        """The price of ``tokens``, of which ``cached`` were read from the cache."""
        return self.cached * cached + self.written * (tokens - cached)


PRICES: Final = Prices()
