"""Answers which demands a person made and which requests held them: a timeline, and few texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventctx.log.naming import RequestName, request_name
from eventctx.log.store import Address, EventStore
from eventctx.log.wire import BodyAt
from eventctx.messages.demands import demands_in
from eventctx.messages.mentions import SummaryMentions
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import text_of
from eventctx.projections.timeline import instructions
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.instructions import Phase
from eventctx.queries.explaining import NOW
from eventctx.queries.instructions import Instructions, Ledger, LedgerTexts
from eventctx.queries.key_frames import key_frames, timeline_at
from eventctx.queries.requests import find_request, sound_messages


class KeptDemands:
    """The demands of messages, and the texts of copies and insertions, by their places.

    None is a message without contents.
    """

    def __init__(self) -> None:
        self.demands: dict[BodyAt, tuple[str, ...] | None] = {}
        self.copies: dict[BodyAt, str] = {}
        self.inserted: dict[BodyAt, SummaryMentions] = {}

    def __len__(self) -> int:
        return len(self.demands)


BATCH: Final = 256
"""Bodies in memory at a time."""


async def instructions_of(
    store: EventStore, stream: str, selector: RequestName = NOW
) -> Instructions:
    """Every demand of a person up to a request, or until now, and how each request held it.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    now = state = await timeline_at(store, stream)
    about = None
    if selector == NOW:
        shown = instructions.now(state.instructions, state.changes)
    else:
        position = (await find_request(store, stream, selector)).position
        state = await timeline_at(store, stream, position)
        asked = state.changes.time.requests[-1]
        about = request_name(asked.turn, asked.iteration, asked.position)
        # Right after a request, the last phase is that of its view, with insertions of its own.
        shown = state.instructions.phases[-1]
    kept = key_frames(store).beside(stream, now.changes, KeptDemands)
    texts, sealed = await _texts(store, stream, state, shown, kept)
    return Ledger(state, shown, texts).make(stream, about, sealed)


async def _texts(
    store: EventStore, stream: str, state: TimelineState, shown: Phase, kept: KeptDemands
) -> tuple[LedgerTexts, int]:
    """The texts that the ledger needs, and how many of the summaries are encrypted."""
    asking = {one.body: one.number for one in state.instructions.demanding}
    for body, message in await _messages(store, stream, asking.keys() - kept.demands.keys()):
        kept.demands[body] = None if message is None else demands_in(message)
    found = {number: kept.demands[body] for body, number in asking.items()}
    demands = {number: one or () for number, one in found.items()}
    phases = [*state.instructions.phases, shown]
    copies = {body for phase in phases for number, body in phase.cut.items() if demands.get(number)}
    inserted = {one.body for phase in phases for one in phase.others}
    for body, message in await _messages(store, stream, copies - kept.copies.keys()):
        kept.copies[body] = "" if message is None else normal(text_of(message))
    for body, message in await _messages(store, stream, inserted - kept.inserted.keys()):
        kept.inserted[body] = SummaryMentions([] if message is None else [message])
    erased = sum(one is None for one in found.values())
    sealed = sum(kept.inserted[body].sealed for body in inserted)
    return LedgerTexts(demands, kept.copies, kept.inserted, erased), sealed


async def _messages(
    store: EventStore, stream: str, bodies: Iterable[BodyAt]
) -> list[tuple[BodyAt, dict[str, object] | None]]:
    wanted = sorted(bodies)
    found: list[tuple[BodyAt, dict[str, object] | None]] = []
    for start in range(0, len(wanted), BATCH):
        some = wanted[start : start + BATCH]
        places = [Address(*one) for one in some]
        found += zip(some, await sound_messages(store, stream, places), strict=True)
    return found
