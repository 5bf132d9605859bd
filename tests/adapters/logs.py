"""What the log says of an agent's sessions; long conversations that are interrupted, by policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from eventctx.engine import Engine
from eventctx.log.codec import decode_event
from eventctx.log.events import SessionLinked
from eventctx.log.record import Record
from eventctx.policies.named import POLICIES, policy_named
from tests.how_much import some


async def records_of(engine: Engine, session: str = "s") -> list[Record]:
    return [one async for one in engine.records(session)]


async def types_of(engine: Engine, session: str = "s") -> list[str]:
    return [one.type for one in await records_of(engine, session)]


async def count(engine: Engine, *types: str, session: str = "s") -> list[int]:
    made = await types_of(engine, session)
    return [made.count(one) for one in types]


async def payloads(engine: Engine, kind: str, session: str = "s") -> list[Any]:
    records = await records_of(engine, session)
    return [json.loads(one.payload) for one in records if one.type == kind]


async def audited(engine: Engine, session: str = "s") -> list[tuple[int, int]]:
    """How many messages of the transcript each request is without, and how many it has beside."""
    return [(one.missing, one.additions) for one in (await engine.audit(session)).requests]


async def views(engine: Engine, session: str = "s") -> list[list[dict[str, Any]]]:
    """The verified view of every request of the session, in order."""
    found = []
    for one in await records_of(engine, session):
        if one.type == "context:request_prepared":
            view = await engine.request_view(session, position=one.position)
            assert view.verified
            found.append(list(view.messages))
    return found


async def names(engine: Engine) -> list[str]:
    return sorted([one.stream for one in await engine.sessions()])


async def links(engine: Engine, session: str) -> list[tuple[str, str | None]]:
    """The sessions that it is linked to, each with the call."""
    linked = [one for one in await records_of(engine, session) if one.type == "session:linked"]
    found = [decode_event(one) for one in linked]
    return [(one.session, one.call_id) for one in found if isinstance(one, SessionLinked)]


TURNS = some(25, 60)
NAMES = sorted(POLICIES.keys() - {"custom"})
"""The policies that need no function of the caller."""


async def _told(request: Any) -> str:
    return "They read pages."


def settings_for(policy: str) -> dict[str, Any]:
    """The settings of a session with this policy."""
    more: dict[str, dict[str, Any]] = {
        "pipeline": {"policies": [policy_named("simple"), policy_named("truncate")]},
        "summarize": {"summarizer": _told},
        "native": {"summarizer": _told},
    }
    return {"policy": policy, "max_tokens": 4_000, "reserve_tokens": 0, **more.get(policy, {})}


async def interrupted_at(
    waits: asyncio.Event, work: Coroutine[Any, Any, Any], steps_later: Callable[[], int] = int
) -> None:
    """Run ``work`` to its end. Work that waits for ever is cancelled, so many steps later."""
    asking = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(waits.wait())
    await asyncio.wait((asking, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not asking.done():
        for _ in range(steps_later()):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait((asking,))
