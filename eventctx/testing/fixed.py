"""A clock and ids that are the same in every run, so that a program writes the same log again."""

from __future__ import annotations

from hashlib import blake2b

from eventctx.errors import InvalidSetting

NANOSECONDS = 1_000_000_000


class FixedClock:
    """UTC nanoseconds that begin at ``start`` and grow by ``step`` with every call.

    For ``eventctx.open(clock=…)``. The default start is 2023-11-14 22:13:20 UTC, the default step
    a millisecond. ``now`` is the time that the next call returns. Raises InvalidSetting for a step
    below 0.
    """

    def __init__(
        self, start: int = 1_700_000_000 * NANOSECONDS, step: int = NANOSECONDS // 1000
    ) -> None:
        if step < 0:
            raise InvalidSetting(f"FixedClock: expected a step from 0, found {step}")
        self.now = start
        self.step = step

    def __call__(self) -> int:
        """The time in UTC nanoseconds."""
        now = self.now
        self.now += self.step
        return now

    def stopwatch(self) -> int:
        """The time, which does not move on; durations in the log are measured with this."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the time on by so many seconds."""
        self.now += int(seconds * NANOSECONDS)


class FixedRandom:
    """Bytes that look random and depend on ``seed`` alone; for ``eventctx.open(random=…)``.

    They are BLAKE2b of the seed and a counter, so no two calls return the same bytes, which ids
    and salts need.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._drawn = 0

    def __call__(self, size: int) -> bytes:
        """``size`` bytes."""
        found = b""
        while len(found) < size:
            found += blake2b(f"{self.seed}/{self._drawn}".encode(), digest_size=64).digest()
            self._drawn += 1
        return found[:size]
