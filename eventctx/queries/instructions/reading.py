"""Answers "what did the person demand, and which requests held it": a fold, and few texts."""

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
from eventctx.queries.instructions.kept import KeptDemands
from eventctx.queries.instructions.ledger import Ledger, LedgerTexts, one_line
from eventctx.queries.summaries import is_sealed, text_of_summary
from eventctx.queries.timelines.key_frames import key_frames

BATCH: Final = 256
"""Bodies in memory at a time."""


async def instructions_of(
    store: EventStore, stream: str, selector: RequestSelector = NOW
) -> Instructions:
    """Every demand of a person up to a request, or until now, and how each request held it.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    (seen,), now = await states_at(store, stream, [selector])
    kept = key_frames(store).beside(stream, now, KeptDemands)
    stop = None if selector == NOW else seen.state.view.position + 1
    state = await kept.at(store, stream, now.view.position if stop is None else stop)
    # Right behind a request, the last phase is that of its view, with insertions of its own.
    shown = instructions.now(state) if stop is None else state.phases[-1]
    texts, sealed = await _texts(store, stream, state, shown, kept)
    about = None
    if stop is not None:
        asked = state.time.requests[-1]
        about = request_name(asked.turn, asked.iteration, asked.position)
    return Ledger(state, shown, texts).make(stream, about, sealed)


async def _texts(
    store: EventStore, stream: str, state: InstructionsState, shown: Phase, kept: KeptDemands
) -> tuple[LedgerTexts, int]:
    """The texts that the ledger needs, and how many of the summaries are encrypted."""
    asking = {address_of(one.ref): one.ref.number for one in state.demanding}
    for address, message in await _messages(store, stream, asking.keys() - kept.demands.keys()):
        kept.demands[address] = None if message is None else demands_in(message)
    found = {number: kept.demands[address] for address, number in asking.items()}
    demands = {number: one or () for number, one in found.items()}
    phases = [*state.phases, shown]
    wanted = {number for number, found in demands.items() if found}
    copies = {
        address_of(ref)
        for phase in phases
        for number, ref in phase.shown.items()
        if ref.shortened and number in wanted
    }
    inserted = {address_of(one) for phase in phases for one in phase.insertions}
    for address, message in await _messages(store, stream, copies - kept.texts.keys()):
        kept.texts[address] = None if message is None else one_line(text_of(message))
    for address, message in await _messages(store, stream, inserted - kept.texts.keys()):
        kept.texts[address] = None if message is None else one_line(text_of_summary(message))
        if message is not None and is_sealed(message):
            kept.sealed.add(address)
    texts = {address: kept.texts[address] or "" for address in copies | inserted}
    erased = sum(one is None for one in found.values())
    return LedgerTexts(demands, texts, erased), len(inserted & kept.sealed)


async def _messages(
    store: EventStore, stream: str, addresses: Iterable[Address]
) -> list[tuple[Address, dict[str, object] | None]]:
    wanted = sorted(addresses)
    found: list[tuple[Address, dict[str, object] | None]] = []
    for start in range(0, len(wanted), BATCH):
        some = wanted[start : start + BATCH]
        found += zip(some, await sound_messages(store, stream, some), strict=True)
    return found
