"""A persistent sequence: append takes amortised constant time, and old versions stay valid.

Many versions share one list, each with a length of its own. Invariant: a list's items are never
changed or removed, and only its newest version, the one as long as the list, may add to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar, overload, runtime_checkable

T = TypeVar("T")

# Guards only "if this is the newest version, add to the list". One lock for all series costs less
# than one for each of their many versions.
_growing = threading.Lock()


class AppendableSequence(Protocol[T]):
    """A sequence that holds the items of series in place of a list, and keeps less in memory.

    A slice of it is a list.
    """

    def append(self, item: T, /) -> None:
        """Add an item at the end."""
        ...

    def extend(self, items: Iterable[T], /) -> None:
        """Add items at the end."""
        ...

    def first(self, count: int, /) -> list[T] | AppendableSequence[T]:
        """A sequence of its own with the first ``count`` items."""
        ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[T]: ...
    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[T]: ...


@runtime_checkable
class IndexedByNumber(Protocol[T]):
    """Items that are found by their number without making all others."""

    def numbered(self, number: int, count: int, /) -> list[T]:
        """Those of the first ``count`` items whose ``number`` it is."""
        ...


class Series(Generic[T]):
    """An immutable view of the first ``len`` items of a shared, growing list.

    Appending to the newest version extends the shared list; appending to an older one copies it
    first, so no version ever changes. Safe to use from several threads.
    """

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] | AppendableSequence[T] = list(items)
        self._length = len(self._items)

    @classmethod
    def backed_by(cls, items: AppendableSequence[T]) -> Series[T]:
        """A series of all ``items``, which this series alone may add to from here on."""
        return cls._version(items, len(items))

    @property
    def is_backed(self) -> bool:
        """Whether the items are in a sequence that ``backed_by`` was given."""
        return not isinstance(self._items, list)

    def append(self, item: T) -> Series[T]:
        """A new version with ``item`` at the end."""
        length = self._length
        with _growing:
            shared = self._items
            if len(shared) != length:
                shared = _first(shared, length)
            shared.append(item)
        return self._version(shared, length + 1)

    def extend(self, items: Iterable[T]) -> Series[T]:
        """A new version with ``items`` at the end."""
        added = list(items)
        with _growing:
            shared = self._items
            if len(shared) != self._length:
                shared = _first(shared, self._length)
            shared.extend(added)
        return self._version(shared, self._length + len(added))

    def first(self, count: int) -> Series[T]:
        """The version of the first ``count`` items; no item is copied."""
        return self._version(self._items, min(count, self._length))

    def numbered(self, number: int) -> list[T]:
        """The items whose field ``number`` it is, of items that have one."""
        items = self._items
        if isinstance(items, IndexedByNumber):
            return items.numbered(number, self._length)
        return with_number(self, number)

    def continues(self, older: Series[T]) -> bool:
        """Whether ``older`` is a version of the same list and no longer than this one.

        Items are not compared: false does not mean that ``older`` is no beginning of this one.
        """
        return self._items is older._items and self._length >= older._length

    @staticmethod
    def _version(shared: list[T] | AppendableSequence[T], length: int) -> Series[T]:
        grown: Series[T] = Series.__new__(Series)
        grown._items = shared
        grown._length = length
        return grown

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        items, length = self._items, self._length
        return islice(items, length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._items[start : stop if stop >= 0 else None : step]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._items[index if index >= 0 else index + self._length]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Series) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Series({list(self)!r})"


def with_number(items: Iterable[T], number: int) -> list[T]:
    """The items whose field ``number`` it is."""
    return [one for one in items if one.number == number]  # type: ignore[attr-defined]


def _first(items: list[T] | AppendableSequence[T], count: int) -> list[T] | AppendableSequence[T]:
    return items[:count] if isinstance(items, list) else items.first(count)
