"""Long conversations with interruptions, under each policy, at a small budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from eventctx.policies.named import POLICIES, policy_named
from tests.how_much import some

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
