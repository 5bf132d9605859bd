"""Answers "what did the person demand, and which requests held it": one fold, and few texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventctx.log.naming import request_name
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.recall_text import text_of
from eventctx.projections import instructions
from eventctx.projections.instructions import InstructionsState, Phase
from eventctx.queries.bodies import address_of, sound_messages
from eventctx.queries.explain.selectors import NOW, RequestSelector, states_at
from eventctx.queries.instructions.answers import Instructions
from eventctx.queries.instructions.ledger import Ledger, LedgerTexts, one_line
from eventctx.queries.summaries import is_sealed, text_of_summary

BATCH: Final = 256
"""Bodies in memory at a time."""


async def instructions_of(
    store: EventStore, stream: str, selector: RequestSelector = NOW
) -> Instructions:
    """Every demand of a person up to a request, or until now, and how each request held it.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    stop = None
    if selector != NOW:
        (seen,), _ = await states_at(store, stream, [selector])
        stop = seen.state.view.position + 1
    state = instructions.initial()
    async for record in store.read(stream, stop=stop, bodies=False):
        state = instructions.evolve(state, record)
    # Right behind a request, the last phase is that of its view, with insertions of its own.
    shown = instructions.now(state) if stop is None else state.phases[-1]
    texts, sealed = await _texts(store, stream, state, shown)
    about = None
    if stop is not None:
        asked = state.time.requests[-1]
        about = request_name(asked.turn, asked.iteration, asked.position)
    return Ledger(state, shown, texts).make(stream, about, sealed)


async def _texts(
    store: EventStore, stream: str, state: InstructionsState, shown: Phase
) -> tuple[LedgerTexts, int]:
    """The texts that the ledger needs, and how many of the summaries are encrypted."""
    demands: dict[int, tuple[str, ...]] = {}
    erased = 0
    asking = list(state.demanding)
    for start in range(0, len(asking), BATCH):
        some = asking[start : start + BATCH]
        messages = await sound_messages(store, stream, [address_of(one.ref) for one in some])
        for one, message in zip(some, messages, strict=True):
            erased += message is None
            demands[one.ref.number] = () if message is None else demands_in(message)
    phases = [*state.phases, shown]
    wanted = {number for number, found in demands.items() if found}
    copies = {
        address_of(ref)
        for phase in phases
        for number, ref in phase.shown.items()
        if ref.shortened and number in wanted
    }
    inserted = {address_of(one) for phase in phases for one in phase.insertions}
    held: dict[Address, str] = {}
    sealed = 0
    for address, message in await _messages(store, stream, copies):
        held[address] = one_line(text_of(message))
    for address, message in await _messages(store, stream, inserted):
        held[address] = one_line(text_of_summary(message))
        sealed += is_sealed(message)
    return LedgerTexts(demands, held, erased), sealed


async def _messages(
    store: EventStore, stream: str, addresses: Iterable[Address]
) -> list[tuple[Address, dict[str, object]]]:
    wanted = sorted(addresses)
    found: list[tuple[Address, dict[str, object]]] = []
    for start in range(0, len(wanted), BATCH):
        some = wanted[start : start + BATCH]
        messages = await sound_messages(store, stream, some)
        found += [
            (address, message)
            for address, message in zip(some, messages, strict=True)
            if message is not None
        ]
    return found
