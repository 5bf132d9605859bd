"""Checks of a context that holds more than a request may hold, and of what its host hears."""

from __future__ import annotations

import asyncio
import copy
from itertools import pairwise
from typing import Any, Final

from eventctx.testing.contract.conversations import (
    CHARACTERS_PER_TOKEN,
    Row,
    characters,
    check_order,
    check_pairs,
    check_same,
    giant,
    payload_of,
    short,
    talk,
)
from eventctx.testing.contract.subject import POST, PRE, MountedModule, Subject, mounted
from eventctx.testing.contract.verdicts import NotChecked, sees
from eventctx.testing.providers import ScriptedProvider

ROUNDS: Final = 24
"""A conversation of about 104,000 characters: 26,000 tokens and more."""

BUDGETS: Final = (16_000, 10_000, 6_000)
ROOMY: Final = 1_000_000
WINDOW: Final = 12_000


def small_provider() -> ScriptedProvider:
    """A provider whose context window is ``WINDOW`` tokens."""
    return ScriptedProvider(context_window=WINDOW, max_output_tokens=2_000)


async def _full(one: MountedModule) -> list[Row]:
    rows = talk(ROUNDS)
    await one.add(copy.deepcopy(rows))
    return rows


async def compacts(subject: Subject) -> None:
    """A request is reduced when the messages exceed its budget."""
    async with mounted(subject) as one:
        rows = await _full(one)
        whole, sent = characters(rows), characters(await one.request(BUDGETS[-1]))
        sees(sent < whole * 0.9, f"{sent:,} of {whole:,} characters for {BUDGETS[-1]:,} tokens")


async def fits(subject: Subject) -> None:
    """A request fits its budget."""
    async with mounted(subject) as one:
        await _full(one)
        for budget in BUDGETS:
            _check_size(await one.request(budget), budget)


async def giant_result(subject: Subject) -> None:
    """One tool result of 600,000 characters does not break the budget, and is not lost."""
    rows = giant(600_000)
    budget = 20_000
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        _check_size(await one.request(budget), budget)
        check_same(await one.transcript(), rows, "get_messages() with a giant result")


def _check_size(view: list[Row], budget: int) -> None:
    size = characters(view)
    sees(
        size <= budget * CHARACTERS_PER_TOKEN,
        f"{size:,} characters for a budget of {budget:,} tokens",
    )


async def ephemeral(subject: Subject) -> None:
    """A compaction is a view: it changes no stored message."""
    async with mounted(subject) as one:
        rows = await _full(one)
        before = copy.deepcopy(await one.transcript())
        for budget in BUDGETS:
            await one.request(budget)
        await one.request(provider=small_provider())
        after = await one.transcript()
        check_same(after, rows, "get_messages() after compactions")
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
            changed = [key for key in changed if key not in ("metadata", "timestamp")]
            sees(not changed, f"compactions changed {', '.join(changed)} of message {place}")


async def pairs(subject: Subject) -> None:
    """In every view each result has its call, and each call its result."""
    rows = talk(ROUNDS)
    ends = [place for place, row in enumerate(rows, 1) if row["role"] == "assistant"]
    async with mounted(subject) as one:
        before = 0
        for count, end in enumerate(e for e in ends if "tool_calls" not in rows[e - 1]):
            await one.add(copy.deepcopy(rows[before:end]))
            before = end
            budget = BUDGETS[count % len(BUDGETS)]
            view = await one.request(budget)
            check_pairs(view, f"a request of {budget:,} tokens after {end} messages")
        for budget in BUDGETS:
            check_pairs(await one.request(budget), f"a request of {budget:,} tokens")
        # Most requests of an agent end in the results of the tools that it has just called.
        await one.add(talk(ROUNDS + 1)[len(rows) : -1])
        for budget in BUDGETS:
            where = f"a request of {budget:,} tokens that ends in results"
            check_pairs(await one.request(budget), where)


async def order(subject: Subject) -> None:
    """Views keep the order of the conversation."""
    async with mounted(subject) as one:
        rows = await _full(one)
        check_order(await one.transcript(), rows, "get_messages()")
        for budget in (ROOMY, *BUDGETS):
            view = await one.request(budget)
            check_order(view, rows, f"a request of {budget:,} tokens")


async def small_is_whole(subject: Subject) -> None:
    """A conversation far below the budget is sent whole, also after a long one was cleared."""
    rows = talk(3)
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        _check_whole(await one.request(ROOMY // 5), rows)
        await _full(one)
        await one.request(BUDGETS[-1])
        await one.context.clear()
        await one.add(copy.deepcopy(rows))
        _check_whole(await one.request(BUDGETS[0]), rows)


def _check_whole(found: list[Row], rows: list[Row]) -> None:
    view = [payload_of(row) for row in found]
    missing = [short(row) for row in rows if payload_of(row) not in view]
    sees(not missing, f"{len(missing)} messages are not in the request, such as {missing[:1]}")


async def repeatable(subject: Subject) -> None:
    """The same request returns the same messages again."""
    async with mounted(subject) as one:
        await _full(one)
        views = [[payload_of(row) for row in await one.request(BUDGETS[1])] for _ in range(3)]
    for first, second in pairwise(views):
        sees(first == second, f"a request of {len(first)} messages, and then one of {len(second)}")


async def provider_budget(subject: Subject) -> None:
    """Without a ``token_budget``, the provider's window is the budget."""
    async with mounted(subject) as one:
        await _full(one)
        _check_size(await one.request(provider=small_provider()), WINDOW)


async def configurable(subject: Subject) -> None:
    """The setting ``max_tokens`` is the budget where the call and the provider give none."""
    async with mounted(subject, {"max_tokens": 8_000}) as one:
        await _full(one)
        small = characters(await one.request())
    async with mounted(subject, {"max_tokens": ROOMY}) as one:
        await _full(one)
        large = characters(await one.request())
    sees(
        small < large * 0.9,
        f"{small:,} characters with max_tokens 8,000, {large:,} with {ROOMY:,}",
    )


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
