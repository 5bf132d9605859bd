"""Checks of what a host hears of compactions."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from eventctx.testing.contract.compacting import BUDGETS, ROOMY, ROUNDS, small_provider
from eventctx.testing.contract.conversations import characters, talk
from eventctx.testing.contract.subject import POST, PRE, MountedModule, Subject, mounted
from eventctx.testing.contract.verdicts import NotChecked, sees


async def told(subject: Subject) -> None:
    """A request that holds less than the one before comes with an event that says so.

    Contract, "Observability": "Register compaction events". It recommends two names; any name
    counts that a host can know, as Amplifier's own ``context:compaction``, or one that the module
    declares. A beginning alone (``context:pre_compact``) does not say what became of it.
    """
    asked = [(f"of {budget:,} tokens", {"budget": budget}) for budget in BUDGETS]
    by_provider = ("for a small provider", {"provider": small_provider()})
    reduced = [await _tells(subject, asked), await _tells(subject, [by_provider])]
    if not any(reduced):
        raise NotChecked("no request was reduced")


async def _tells(subject: Subject, requests: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether a request of these was reduced. Raises Broken if none of its events says so."""
    reduced = False
    async with mounted(subject) as one:
        await one.add(talk(ROUNDS))
        size = characters(await one.request(ROOMY))
        for which, arguments in requests:
            heard = len(one.events)
            now = characters(await one.request(**arguments))
            if now < size * 0.95:
                reduced = True
                names = await _heard_since(one, heard)
                sees(
                    [name for name in names if name != PRE],
                    f"a request {which} has {now:,} of {size:,} characters, and the events for it "
                    f"are: {', '.join(names) or 'none'}",
                )
            size = min(size, now)
    return reduced


async def _heard_since(one: MountedModule, count: int) -> list[str]:
    for _ in range(10):
        # A module may emit in a task of its own.
        await asyncio.sleep(0)
    return one.events.names[count:]


async def events(subject: Subject) -> None:
    """A compaction emits an event at its beginning and its end, each with the view's counts.

    Contract, "Observability": "Standard events to emit".
    """
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(talk(ROUNDS)))
        await one.request(BUDGETS[-1])
        names, emitted = one.events.names, list(one.events)
    sees(PRE in names, f"no {PRE} was emitted")
    sees(POST in names, f"no {POST} was emitted")
    sees(names.index(PRE) < names.index(POST), f"{POST} came before {PRE}")
    for name, data in emitted:
        if name not in (PRE, POST):
            continue
        for key in ("message_count", "token_count"):
            value = data.get(key)
            sees(type(value) is int, f"{key} of {name} is {value!r}, expected an int")


async def told_only_then(subject: Subject) -> None:
    """No compaction is told of where the request is the whole conversation."""
    async with mounted(subject) as one:
        await one.add(talk(3))
        await one.request(ROOMY)
        names = await _heard_since(one, 0)
    sees(not names, f"a request far below its budget came with {', '.join(names)}")
