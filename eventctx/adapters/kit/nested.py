"""Runs of an agent inside a tool of another one: each is a session that is linked to the call.

Such a run often has the name of the run around it: it inherits its thread, or the adapter was given
one session for all runs. It has a conversation of its own all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from eventctx.adapters.kit.host_session import HostSession
from eventctx.engine import Engine

_LONGEST: Final = 64
"""Characters of a call's id that a session's id takes over."""


class ToolAround(NamedTuple):
    """The recorded tool call that the running code is inside of, in whichever framework.

    ``session`` is that of the run which called the tool, ``name`` the one that a run inside
    inherits, and ``path`` where in its graphs the tool runs, for a host that says it. ``outer`` is
    the call around this one.
    """

    session: str
    call_id: str
    name: str
    path: tuple[str, ...] = ()
    outer: ToolAround | None = None


_around: ContextVar[ToolAround | None] = ContextVar("eventctx_tool_around", default=None)


def tool_around() -> ToolAround | None:
    """The tool call that the caller is inside of; None outside of all that are recorded."""
    return _around.get()


@contextmanager
def inside_tool(call: ToolAround) -> Iterator[None]:
    """A block in which a tool runs, and agents that it runs."""
    tool_entered(call)
    try:
        yield
    finally:
        tool_left()


def tool_entered(call: ToolAround) -> None:
    """As the beginning of ``inside_tool``, for a host that only calls back; in the tool's task."""
    _around.set(call._replace(outer=_around.get()))


def tool_left() -> None:
    """As the end of ``inside_tool``."""
    around = _around.get()
    _around.set(None if around is None else around.outer)


def nested_session_id(parent: str, call_id: str, number: int = 1) -> str:
    """The id of the session of a run inside a tool: ``parent.call``, of a second run ``….2``."""
    call = "".join([one if one.isalnum() or one in "-_" else "_" for one in call_id[:_LONGEST]])
    return f"{parent}.{call}" + (f".{number}" if number > 1 else "")


async def begin_turn(
    engine: Engine,
    host: HostSession,
    agent: str | None,
    around: ToolAround | None,
    turn_id: str | None = None,
) -> None:
    """Begin a run's turn. Inside a tool, its session is linked to the call where it is new.

    Raises what the store raises.
    """
    session = host.context.session_id
    info = None if around is None else await engine.store.head(session)
    await host.turns.turn_began(turn_id, agent)
    if around is not None and info is not None and info.head == 0:  # nothing but its beginning
        await engine.link(around.session, session, call_id=around.call_id)
