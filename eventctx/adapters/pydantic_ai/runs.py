"""The session that a run is recorded in: its conversation's, or one for a run inside a tool."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic_ai.tools import RunContext

from eventctx.adapters.kit.nested import nested_session_id, tool_around


class RunSessions:
    """The sessions of the runs under way; ``session`` is the one of all runs, if one was named.

    A run inside a tool has a session of its own where that of its name is taken by another run:
    by the one around it, or by one beside it.
    """

    def __init__(self, session: str | None) -> None:
        self._session = session
        self._sessions: dict[str, str] = {}

    def own_name(self, run: RunContext[Any]) -> str:
        """The session that a run asks for."""
        return str(self._session or run.conversation_id or run.run_id)

    def session_of(self, run: RunContext[Any]) -> str:
        """The session that a run has."""
        return self._sessions.get(str(run.run_id), self.own_name(run))

    @contextmanager
    def under_way(self, run: RunContext[Any]) -> Iterator[str]:
        """A block in which a run is under way, in the session that it gets."""
        key = str(run.run_id)
        session = self._sessions[key] = self._free(self.own_name(run))
        try:
            yield session
        finally:
            del self._sessions[key]

    def _free(self, name: str) -> str:
        around, taken = tool_around(), set(self._sessions.values())
        if around is None or (name != around.name and name not in taken):
            return name
        parent = around.session if name == around.name else name
        names = (nested_session_id(parent, around.call_id, n) for n in itertools.count(1))
        return next(one for one in names if one not in taken)
