"""Runs of an agent inside a tool of another one: each is a session that is linked to the call."""

from __future__ import annotations

from typing import Final

from eventctx.adapters.kit.host_session import HostSession
from eventctx.engine import Engine

_LONGEST: Final = 64
"""Characters of a call's id that a session's id takes over."""


def nested_session_id(parent: str, call_id: str, number: int = 1) -> str:
    """The id of the session of a run inside a tool: ``parent.call``, of a second run ``….2``."""
    call = "".join([one if one.isalnum() or one in "-_" else "_" for one in call_id[:_LONGEST]])
    return f"{parent}.{call}" + (f".{number}" if number > 1 else "")


async def begin_nested(
    engine: Engine, host: HostSession, parent: str, call_id: str, agent: str | None
) -> None:
    """Begin the turn of a run inside a tool, and link its session to the call where it is new.

    Raises what the store raises.
    """
    session = host.context.session_id
    info = await engine.store.head(session)
    await host.turns.turn_began(agent=agent)
    if info is None or info.head == 0:  # nothing but its beginning
        await engine.link(parent, session, call_id=call_id)
