"""Answers "what is no longer in view" from a store: one fold, and every body once, in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventctx.log.store import EventStore
from eventctx.messages.mentions import Mentions
from eventctx.messages.overlap import normal
from eventctx.messages.recall_text import is_sealed, text_of, text_of_summary
from eventctx.queries.explaining import NOW, RequestSelector
from eventctx.queries.lost.answers import Lost
from eventctx.queries.requests import address_of, sound_messages
from tests.lost.rereading.gathering import Gathering
from tests.lost.rereading.report import Report, Scene
from tests.lost.rereading.views import Asked, ViewContents, asked

BATCH: Final = 256
"""Bodies in memory at a time."""


async def what_left(
    store: EventStore,
    stream: str,
    *,
    compaction: int | None = None,
    selector: RequestSelector = NOW,
) -> Lost:
    """What is no longer in the view after a compaction, of a request, or now.

    Raises StreamNotFound, InvalidSetting, and LogCorrupted for a body that was damaged.
    """
    about = await asked(store, stream, compaction=compaction, selector=selector)
    after, sealed = await _scene(store, stream, about.after)
    before = None if about.before is None else (await _scene(store, stream, about.before))[0]
    gathering = Gathering(_whole_in(after), _since(about), about.taken_back)
    erased = 0
    origins = about.origins
    for last in range(len(origins), 0, -BATCH):
        numbers = range(last - 1, max(0, last - BATCH) - 1, -1)
        messages = await sound_messages(
            store, stream, [address_of(origins[one].ref) for one in numbers]
        )
        for number, message in zip(numbers, messages, strict=True):
            ref = origins[number].ref
            if message is not None:
                gathering.read(number, ref.position, ref.facts, message)
            elif number < about.after.known:
                erased += 1
    return Report(about, after, before, gathering).make(stream, erased, sealed)


async def _scene(store: EventStore, stream: str, view: ViewContents) -> tuple[Scene, int]:
    """A view with its texts, and how many of its summaries are encrypted."""
    cut = [ref for ref in view.shown.values() if ref.shortened]
    shortened: dict[int, str] = {}
    for start in range(0, len(cut), BATCH):
        some = cut[start : start + BATCH]
        messages = await sound_messages(store, stream, [address_of(ref) for ref in some])
        for ref, message in zip(some, messages, strict=True):
            shortened[ref.number] = "" if message is None else normal(text_of(message))
    summaries = await sound_messages(store, stream, [address_of(ref) for ref in view.summaries])
    found = [one for one in summaries if one is not None]
    sealed = sum(map(is_sealed, found))
    return Scene(view, shortened, Mentions([text_of_summary(one) for one in found])), sealed


def _whole_in(scene: Scene) -> Callable[[int], bool]:
    """A question by a message's number: whether the view shows it as it was added."""
    shown = scene.view.shown

    def is_whole(number: int) -> bool:
        ref = shown.get(number)
        return ref is not None and not ref.shortened

    return is_whole


def _since(about: Asked) -> Callable[[int], int | None]:
    """A question by a message's number: from which position on a use of it counts as "again".

    None where none does.
    """
    before, left, position = about.before, about.after.left, about.position

    def since(number: int) -> int | None:
        if before is not None:
            return position if number in before.shown else None
        found = left.get(number)
        return None if found is None else found.position

    return since
