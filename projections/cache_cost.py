"""The cost of a compaction in its provider's prompt cache: as predicted, and as reported after it.

A provider charges little for the beginning of a prompt that it has seen before. A compaction
changes the prompt near its beginning, so the next request writes again what it keeps; then each
request is smaller by what was taken out.

Invariant: a prediction uses only what was known when the compaction was made. What was reported
later is in ``CacheOutcome`` alone, so the two can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import msgspec


class CacheOutcome(msgspec.Struct, frozen=True):
    """What the ``requests`` since a compaction reported, until the next compaction or until now.

    ``read`` and ``write`` are the first one's cached tokens. ``misses`` counts requests that the
    cache served fewer tokens than it had of their beginning, ``missed`` sums these tokens. ``over``
    is whether another compaction followed.
    """

    requests: int
    over: bool
    read: int
    write: int
    misses: int
    missed: int


class CacheCost(msgspec.Struct, frozen=True):
    """The cost of a compaction, and what it saves, in tokens.

    Of the ``held`` tokens of the prompt before it, which a cache has, the first ``kept`` stay equal
    and ``given_up`` are lost to the next request; ``rewritten`` of these stay in view at another
    place, and are written once more. Each request is smaller by ``saved``. The next compaction is
    expected at request ``expected`` after this one, as each request since the compaction before
    added ``growth`` tokens on average (None: none did). ``thinking`` left the view as its
    signatures hold no longer, by our estimate. ``hour``: what is written lives an hour, as by the
    last report before it. ``reported`` is None where no request after it had its cached tokens
    reported.
    """

    held: int
    kept: int
    given_up: int
    rewritten: int
    saved: int
    growth: int | None
    expected: int | None
    thinking: int = 0
    hour: bool = False
    reported: CacheOutcome | None = None

    @property
    def rewritten_by_report(self) -> int | None:
        """``rewritten``, by what the cache served of the first request after the compaction."""
        if self.reported is None:
            return None
        return min(self.held, max(0, self.rewritten + self.kept - self.reported.read))


def predict(
    *, held: int, kept: int, saved: int, room: int, growth: int, hour: bool = False
) -> CacheCost:
    """The cost of a compaction that leaves ``room`` tokens until the next one.

    ``kept`` of the ``held`` tokens stay equal from the start; ``saved`` leave every request.
    """
    kept = min(held, kept)
    given_up = held - kept
    return CacheCost(
        held=held,
        kept=kept,
        given_up=given_up,
        rewritten=max(0, given_up - saved),
        saved=saved,
        growth=growth or None,
        expected=max(1, -(-room // growth)) if growth else None,
        hour=hour,
    )


class Growth:
    """How many tokens each prompt has more than the one before it; ``sizes`` are those of all."""

    def __init__(self, sizes: Sequence[int]) -> None:
        added = [one - before if one >= before else None for before, one in pairwise(sizes)]
        self._sums = [0, *accumulate([one or 0 for one in added])]
        self._counts = [0, *accumulate([one is not None for one in added])]

    def mean(self, since: int, until: int) -> int:
        """The mean over the prompts from number ``since`` to before ``until``, 1 or more.

        Where that is one alone, over all before ``until``. On recorded sessions the growth since
        the last compaction foretells the next better than that of the whole session: agents read
        most at first.
        """
        first, last = since if until - since > 1 else 0, until - 1
        count = self._counts[last] - self._counts[first]
        return round((self._sums[last] - self._sums[first]) / count) if count else 0
