"""A clock and ids that are the same in every run: the same program then writes the same log."""

from __future__ import annotations

from hashlib import blake2b

from eventctx.errors import InvalidSetting

NANOSECONDS = 1_000_000_000


class FixedClock:
    """UTC nanoseconds that begin at ``start`` and go on by ``step`` with every call.

    For ``eventctx.open(clock=…)``. The default start is 2023-11-14 22:13:20 UTC, the step a
    millisecond. ``now`` is what the next call returns.
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
        """The time without letting any pass: what durations in the log are measured by."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += int(seconds * NANOSECONDS)


class FixedRandom:
    """Bytes that look random and follow from ``seed`` alone; for ``eventctx.open(random=…)``.

    Never two equal runs of bytes, as ids and salts need: BLAKE2b of the seed and a counter.
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
