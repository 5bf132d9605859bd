"""The sessions of agents inside agents, and their links."""

from __future__ import annotations

from eventctx.engine import Engine
from eventctx.log.codec import decode_event
from eventctx.log.events import SessionLinked


async def names(engine: Engine) -> list[str]:
    return sorted([one.stream for one in await engine.sessions()])


async def links(engine: Engine, session: str) -> list[tuple[str, str | None]]:
    found = [
        decode_event(one) async for one in engine.records(session) if one.type == "session:linked"
    ]
    return [(one.session, one.call_id) for one in found if isinstance(one, SessionLinked)]
