"""A set of message numbers in one integer: small enough to keep one for every request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set


class NumberSet(Set[int]):
    """Message numbers, as the bits of an integer: number 0 is the lowest one."""

    __slots__ = ("bits",)

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits

    @classmethod
    def of(cls, numbers: Iterable[int]) -> NumberSet:
        """The set of these numbers."""
        bits = 0
        for number in numbers:
            bits |= 1 << number
        return cls(bits)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number >= 0 and bool(self.bits >> number & 1)

    def __iter__(self) -> Iterator[int]:
        bits, number = self.bits, 0
        while bits:
            skipped = (bits & -bits).bit_length()
            number += skipped
            bits >>= skipped
            yield number - 1

    def __len__(self) -> int:
        return self.bits.bit_count()

    def isdisjoint(self, other: Iterable[int]) -> bool:
        """Whether no number of ``other`` is in the set."""
        bits = self.bits
        return not any(bits >> number & 1 for number in other)

    def __repr__(self) -> str:
        return f"NumberSet({list(self)})"
