"""Runs inside a tool (``agent.as_tool``), each recorded as a session that is linked to its parent.

The SDK gives such a run the parent's ``RunConfig``, so our filter is asked before its calls, too,
and nothing else is said of it: no hook is called, no item is stored. Its list is all that is known.
A list that continues one of the runs that are under way is of that run, any other begins a new one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eventctx.adapters.kit.host_run import call_failed, turn_failed
from eventctx.adapters.kit.host_session import HostSession, Row
from eventctx.adapters.kit.nested import ToolAround, begin_turn, nested_session_id

if TYPE_CHECKING:
    from eventctx.engine import Engine


class _ToolCall:
    """A tool call under way, the text that it asks, and the runs that it has begun."""

    def __init__(self, call_id: str, arguments: str | None) -> None:
        self.call_id = call_id
        self.asks = _input_of(arguments)
        self.runs: list[HostSession] = []


class NestedRuns:
    """The runs inside the tools of one session's runs. Used in the loop of its engine.

    Without an ``engine`` they are recognised, and not recorded.
    """

    def __init__(self, engine: Engine | None, session_id: str, settings: dict[str, Any]) -> None:
        self._engine = engine
        self._parent = session_id
        self._settings = settings
        self._calls: dict[str, _ToolCall] = {}

    def sends(self, rows: list[Row]) -> bool:
        """Whether a run inside a tool is about to send this list.

        The session's own run calls no model while a tool runs, and then sends the tool's call.
        """
        own = any(row.get("call_id") in self._calls for row in rows)
        return bool(self._calls) and not own

    def tool_began(self, call_id: str, arguments: str | None) -> None:
        """A tool of the session's own run began."""
        self._calls[call_id] = _ToolCall(call_id, arguments)

    async def tool_ended(self, call_id: str, error: BaseException | None = None) -> None:
        """The tool ended, with an ``error`` if it failed, and what ran inside it with it."""
        call = self._calls.pop(call_id, None)
        for host in [] if call is None else call.runs:
            if error is None:
                await host.turns.turn_ended()
            else:
                await call_failed(host.turns, error)
                await turn_failed(host.turns, error)
            host.close()

    async def run_ended(self, error: BaseException | None = None) -> None:
        """The session's own run ended, or another one began: no tool of it is under way."""
        for call_id in list(self._calls):
            await self.tool_ended(call_id, error)

    def call_of(self, asked: object) -> str | None:
        """The call in which a run with this input was made; None outside of tools."""
        rows = asked if isinstance(asked, list) else [{"content": asked}]
        return self._beginning(rows).call_id if self._calls else None

    async def host_of(self, rows: list[Row], agent: str) -> HostSession | None:
        """The session of the run that is about to send this list; None if it is not recorded."""
        for call in self._calls.values():
            for host in call.runs:
                found = await host.held(rows)
                if found.whole and found.new:
                    return host
        if self._engine is None:
            return None
        return await self._begun(self._engine, self._beginning(rows), agent)

    def _beginning(self, rows: list[Row]) -> _ToolCall:
        """The call in which a run begins with this list: one that asks so, else the idlest."""
        texts = [row.get("content") for row in rows]
        return min(self._calls.values(), key=lambda one: (one.asks not in texts, len(one.runs)))

    async def _begun(self, engine: Engine, call: _ToolCall, agent: str) -> HostSession:
        session = nested_session_id(self._parent, call.call_id, len(call.runs) + 1)
        host = HostSession(await engine.session(session, **self._settings))
        around = ToolAround(self._parent, call.call_id, self._parent)
        await begin_turn(engine, host, agent, around)
        call.runs.append(host)
        return host


def _input_of(arguments: str | None) -> str | None:
    """The text that an agent is asked as a tool; None for arguments of a form of its own."""
    try:
        found = json.loads(arguments or "")
    except (ValueError, RecursionError):
        return None
    asked = found.get("input") if isinstance(found, dict) else None
    return asked if isinstance(asked, str) else None
