"""What a sink knows of each session, told apart by the registry that it hears of it from.

A sink may serve several engines, and each of their stores may have a session of the same name: one
store a customer, and in each a session "main". So a registry says, while it calls handlers, which
one it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from itertools import count
from typing import Final, Generic, TypeVar

S = TypeVar("S")

_NOBODY: Final = 0
_numbers = count(1)


class Calling(threading.local):
    """The number of the registry that calls its handlers in this thread."""

    number: int = _NOBODY


CALLING: Final = Calling()
"""Set by registries around their handlers, and by who calls a sink on behalf of one."""


def new_number() -> int:
    """A number for a registry, that no other one has in this process."""
    return next(_numbers)


class PerSession(Generic[S]):
    """The states of at most ``most`` sessions; the least recently heard of goes first.

    Not safe for several threads: who shares it has a lock. What was kept while no registry called
    is anybody's, until a registry keeps its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: OrderedDict[tuple[int, str], S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, session_id: str) -> S | None:
        """What is known of a session of the registry that is calling; else None."""
        found = self._states.get((CALLING.number, session_id))
        return self._states.get((_NOBODY, session_id)) if found is None else found

    def keep(self, session_id: str, state: S) -> S | None:
        """Know this of a session of the registry that is calling from here on.

        Returns what is forgotten for it.
        """
        key = (CALLING.number, session_id)
        if CALLING.number != _NOBODY and self._states:
            self._states.pop((_NOBODY, session_id), None)
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) <= self._most:
            return None
        return self._states.popitem(last=False)[1]

    def take(self, session_id: str | None = None, *, number: int | None = None) -> list[S]:
        """Forget the sessions of this name, of the registry of this number, or all; return them."""
        keys = [
            key for key in self._states if session_id in (None, key[1]) and number in (None, key[0])
        ]
        return [self._states.pop(key) for key in keys]

    def clear(self) -> None:
        """Forget all."""
        self._states.clear()
