"""Answers "what is no longer in view" from a store: each body is read once, not once a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventctx.log.naming import RequestName
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.extracts import instructions, words_of_person
from eventctx.messages.mentions import SummaryMentions
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import text_of
from eventctx.messages.superseding import find_superseded
from eventctx.projections.explain.changes import ChangesState
from eventctx.projections.silent_loss import SuspectedLoss
from eventctx.projections.timeline.losses import suspected_losses
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.queries.explaining import NOW
from eventctx.queries.key_frames import key_frames, timeline_at
from eventctx.queries.lost.answers import Lost
from eventctx.queries.lost.gathering import GatheredItem, Occurrence
from eventctx.queries.lost.report import Report, Scene, WithdrawnSentences
from eventctx.queries.lost.session_index import MOST_SHORTENED, MOST_SUMMARIES, SessionIndex
from eventctx.queries.lost.views import ViewContents, find_states
from eventctx.queries.requests import ProviderClearing, address_of, sound_messages

BATCH: Final = 256
"""Bodies in memory at a time."""

_REMOVED: Final = ("set", "clear", "erased")
_IN_VIEW: Final = ("", 0)


async def what_left(
    store: EventStore,
    stream: str,
    *,
    compaction: int | None = None,
    selector: RequestName = NOW,
) -> Lost:
    """Report what is no longer in the view after a compaction, of a request, or now.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    while True:
        about = await find_states(store, stream, compaction=compaction, selector=selector)
        index = key_frames(store).beside(stream, about.now, SessionIndex)
        reader = _Reader(store, stream, index)
        await reader.follow(about.now)
        after = await reader.scene(about.after, about.clearing)
        before = None if about.before is None else await reader.scene(about.before)
        taken_back = await reader.taken_back(about.after)
        # Another question may have read messages meanwhile that came after this one was asked.
        if index.count == len(about.now.origins):
            found = Report(about, after, before, index, taken_back).make(stream)
            return msgspec.structs.replace(found, suspected=await _suspected(store, found))


async def _suspected(store: EventStore, found: Lost) -> tuple[SuspectedLoss, ...]:
    state = await timeline_at(store, found.session)
    return tuple(
        one
        for one in suspected_losses(state)
        if one.kind == "prompt" and (found.position is None or one.position <= found.position)
    )


class _Reader:
    """Reads the texts of a session that its index does not have yet."""

    def __init__(self, store: EventStore, stream: str, index: SessionIndex) -> None:
        self._store = store
        self._stream = stream
        self._index = index

    async def follow(self, now: ChangesState) -> None:
        """Take the messages that came, and their changes, into the index."""
        index = self._index
        while index.count < len(now.origins):
            start = index.count
            origins = now.origins[start : start + BATCH]
            messages = await self._messages([one.ref for one in origins])
            if index.count == start:  # else another task took the same ones
                index.read(origins, messages)
        index.follow(now)

    async def scene(self, state: ChangesState, clearing: ProviderClearing | None = None) -> Scene:
        """The view of a state with its texts."""
        view = ViewContents(state, self._index, clearing)
        held = self._index.shortened
        shown = [ref for ref in view.shown.values() if ref.number not in view.cleared]
        cut = [ref for ref in shown if ref.shortened]
        shortened = {ref.number: held.get(address_of(ref)) for ref in cut}
        fresh = [ref for ref in cut if shortened[ref.number] is None]
        for start in range(0, len(fresh), BATCH):
            some = fresh[start : start + BATCH]
            for ref, message in zip(some, await self._messages(some), strict=True):
                text = "" if message is None else normal(text_of(message))
                shortened[ref.number] = held[address_of(ref)] = text
        while len(held) > MOST_SHORTENED:
            held.popitem(last=False)
        texts = {number: text or "" for number, text in shortened.items()}
        texts.update({number: normal(text_of(one)) for number, one in view.cleared.items()})
        return Scene(view, texts, await self._summaries(view))

    async def _summaries(self, view: ViewContents) -> SummaryMentions:
        held = self._index.summaries
        addresses: tuple[Address, ...] = tuple(map(address_of, view.summaries))
        found = held.get(addresses)
        if found is None:
            messages = await self._messages(view.summaries)
            found = SummaryMentions([one for one in messages if one is not None])
            held[addresses] = found
            while len(held) > MOST_SUMMARIES:
                held.popitem(last=False)
        return found

    async def taken_back(self, state: ChangesState) -> WithdrawnSentences:
        """The sentences that a person had taken back by then, or replaced by later ones."""
        places: dict[int, set[int]] = {}
        for number, place in (*state.view.spoken.withdrawn, *self._superseded(state)):
            places.setdefault(number, set()).add(place)
        if not places:
            return WithdrawnSentences()
        refs = [state.origins[number].ref for number in places]
        gone: dict[Occurrence, None] = {}
        for number, message in zip(places, await self._messages(refs), strict=True):
            named = [] if message is None else _taken_back_in(message, places[number])
            for one in self._index.gathering.by_message.get(number, ()):
                if one.item.kind == "instruction" and one.text in named:
                    gone[one] = None
        changed: dict[GatheredItem, GatheredItem | None] = {}
        for item in dict.fromkeys([one.item for one in gone]):
            left = [one for one in item.occurrences if one not in gone]
            changed[item] = GatheredItem(item.kind, left) if left else None
        return WithdrawnSentences(gone, changed)

    def _superseded(self, state: ChangesState) -> list[tuple[int, int]]:
        """The demands, by message and place, whose values a later demand had changed by then."""
        known, made = len(state.origins), len(state.changes)
        ended = set(state.view.spoken.withdrawn)
        causes = self._index.causes
        holding = [
            (number, place, said)
            for number, demands in self._index.demands.items()
            if number < known and (causes.at(number, made) or _IN_VIEW)[0] not in _REMOVED
            for place, said in enumerate(demands, 1)
            if (number, place) not in ended
        ]
        found = find_superseded([(number, said) for number, _, said in holding])
        return [holding[one][:2] for one in found]

    async def _messages(
        self, refs: Sequence[MessageRef | InsertionRef]
    ) -> list[dict[str, Any] | None]:
        return await sound_messages(self._store, self._stream, [address_of(ref) for ref in refs])


def _taken_back_in(message: dict[str, Any], places: set[int]) -> list[str]:
    """The sentences of a person that are no item once the demands at ``places`` hold no longer.

    Places are from 1.
    """
    words, demands = words_of_person(message), demands_in(message)
    named = [one for place, one in enumerate(demands, 1) if place in places]
    left = set(instructions(words, demands, named))
    return [one for one in instructions(words, demands) if one not in left]
