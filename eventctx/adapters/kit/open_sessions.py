"""The sessions that an adapter holds open, for a host that runs many conversations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

MAX_SESSIONS: Final = 256
"""Most sessions whose transcripts are held; the least recently used is left first."""


class Closes(Protocol):
    """What is held of a session: a ``HostSession``, or an object of the adapter with one."""

    def close(self) -> None:
        """Stop observing the session."""
        ...


S = TypeVar("S", bound=Closes)


class OpenSessions(Generic[S]):
    """What an adapter holds of each session, by name, made when it is first asked for.

    It is used in the loop of the engine. Of more than ``MAX_SESSIONS`` the least recently used is
    closed; its session stays in the log, and is opened again when it is asked for.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[str, S] = OrderedDict()

    async def of(self, name: str, opened: Callable[[], Awaitable[S]]) -> S:
        """What is held of the session ``name``; ``opened`` makes it. Raises what that raises."""
        if name not in self._open:
            made = await opened()
            if name in self._open:  # opened by another call in the meantime
                made.close()
            else:
                self._open[name] = made
            while len(self._open) > MAX_SESSIONS:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return self._open[name]
