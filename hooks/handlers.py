"""The common parts of handlers and sinks: names, states of sessions, new locks after a fork.

A sink may serve several engines, and each of their stores may have a session of the same name: one
store per customer, and in each a session "main". So every registry has a number, and sets it in
``CALLING`` while it calls its handlers; ``PerSession`` keeps states by number and session.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import OrderedDict
from functools import partial
from itertools import count
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakSet


def name_of(handler: object) -> str:
    """``module.qualified_name`` of a function, or of an object's class: equal in every process."""
    while isinstance(handler, partial):
        handler = handler.func
    if not hasattr(handler, "__qualname__"):
        handler = type(handler)
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', '?')}"


def is_async(handler: object) -> bool:
    """Whether a call returns a coroutine, as far as the function shows without a call."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - the method itself is inspected
    )


# -- a state for each session --------------------------------------------------------------------

S = TypeVar("S")

_NOBODY: Final = 0
_numbers = count(1)


class Calling(threading.local):
    """The number of the registry that calls its handlers in this thread."""

    number: int = _NOBODY


CALLING: Final = Calling()
"""Set by registries around their handlers, and by code that calls a sink on behalf of one."""


def new_number() -> int:
    """A number for a registry, unique in this process."""
    return next(_numbers)


class PerSession(Generic[S]):
    """The states of at most ``most`` sessions; beyond that, the least recently kept is dropped.

    Not safe for several threads: users that share it need a lock. A state kept while no registry
    called belongs to every registry, until one of them keeps its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._states: OrderedDict[tuple[int, str], S] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, session_id: str) -> S | None:
        """The state of a session of the registry that is calling; None if there is none."""
        if not self._states:
            return None
        found = self._states.get((CALLING.number, session_id))
        return self._states.get((_NOBODY, session_id)) if found is None else found

    def keep(self, session_id: str, state: S) -> S | None:
        """Keep the state of a session of the registry that is calling.

        Returns the state of another session that is dropped for it; None if none is.
        """
        number, states = CALLING.number, self._states
        key = (number, session_id)
        if key in states:
            states[key] = state
            states.move_to_end(key)
            return None
        states.pop((_NOBODY, session_id), None)
        states[key] = state
        if len(states) <= self._most:
            return None
        return states.popitem(last=False)[1]

    def take(self, session_id: str | None = None, *, number: int | None = None) -> list[S]:
        """Remove and return the states of this session id, of this registry's number, or all."""
        keys = [
            key for key in self._states if session_id in (None, key[1]) and number in (None, key[0])
        ]
        return [self._states.pop(key) for key in keys]

    def clear(self) -> None:
        """Drop all states."""
        self._states.clear()


# -- after a fork --------------------------------------------------------------------------------


class Renewable(Protocol):
    """An object with locks of its own."""

    def after_fork(self) -> None:
        """Take new locks, and drop the state that only the parent may report."""
        ...


_renewable: WeakSet[Renewable] = WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Call ``one.after_fork`` in every child that the process forks, as long as ``one`` lives.

    A lock that another thread of the parent held at the fork would stay locked in the child for
    ever.
    """
    _renewable.add(one)


def _renew() -> None:
    for one in list(_renewable):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
