"""Answers which demands a person made and which requests held them: a fold, and few texts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from eventctx.log.naming import RequestName, request_name
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.mentions import SummaryMentions
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import text_of
from eventctx.projections import instructions
from eventctx.projections.instructions import InstructionsState, Phase
from eventctx.queries.explaining import NOW, states_at
from eventctx.queries.instructions import Instructions, Ledger, LedgerTexts
from eventctx.queries.key_frames import key_frames
from eventctx.queries.requests import address_of, sound_messages

EVERY: Final = 1_000
"""Records from one kept state to the next: the most that a question about the past folds."""


class KeptDemands:
    """The fold at some records, the demands of messages, and the texts of copies and insertions.

    None is a message without contents.
    """

    def __init__(self) -> None:
        self.demands: dict[Address, tuple[str, ...] | None] = {}
        self.copies: dict[Address, str] = {}
        self.inserted: dict[Address, SummaryMentions] = {}
        self._states: list[InstructionsState] = [instructions.initial()]
        self._ends: list[int] = [-1]

    def __len__(self) -> int:
        return self._states[-1].view.next_number

    async def at(self, store: EventStore, stream: str, position: int) -> InstructionsState:
        """The fold after the record at ``position``."""
        place = bisect_right(self._ends, position) - 1
        state, end = self._states[place], self._ends[place]
        if end == position:
            return state
        async for record in store.read(stream, start=end + 1, stop=position, bodies=False):
            state = instructions.evolve(state, record)
            if (record.position + 1) % EVERY == 0 or record.position == position:
                self._keep(state, record.position)
        return state

    def _keep(self, state: InstructionsState, position: int) -> None:
        """Keep a state after all others; the last one may be of any record."""
        if position <= self._ends[-1]:
            return
        if len(self._ends) > 1 and (self._ends[-1] + 1) % EVERY:
            self._states.pop()
            self._ends.pop()
        self._states.append(state)
        self._ends.append(position)


BATCH: Final = 256
"""Bodies in memory at a time."""


async def instructions_of(
    store: EventStore, stream: str, selector: RequestName = NOW
) -> Instructions:
    """Every demand of a person up to a request, or until now, and how each request held it.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    (seen,), now = await states_at(store, stream, [selector])
    kept = key_frames(store).beside(stream, now, KeptDemands)
    stop = None if selector == NOW else seen.state.view.position + 1
    state = await kept.at(store, stream, now.view.position if stop is None else stop)
    # Right after a request, the last phase is that of its view, with insertions of its own.
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
    inserted = {address_of(one) for phase in phases for one in phase.for_others}
    for address, message in await _messages(store, stream, copies - kept.copies.keys()):
        kept.copies[address] = "" if message is None else normal(text_of(message))
    for address, message in await _messages(store, stream, inserted - kept.inserted.keys()):
        kept.inserted[address] = SummaryMentions([] if message is None else [message])
    erased = sum(one is None for one in found.values())
    sealed = sum(kept.inserted[address].sealed for address in inserted)
    return LedgerTexts(demands, kept.copies, kept.inserted, erased), sealed


async def _messages(
    store: EventStore, stream: str, addresses: Iterable[Address]
) -> list[tuple[Address, dict[str, object] | None]]:
    wanted = sorted(addresses)
    found: list[tuple[Address, dict[str, object] | None]] = []
    for start in range(0, len(wanted), BATCH):
        some = wanted[start : start + BATCH]
        found += zip(some, await sound_messages(store, stream, some), strict=True)
    return found
