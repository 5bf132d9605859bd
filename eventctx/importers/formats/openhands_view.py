"""The events that an OpenHands conversation shows its model, and how a condensation changes them.

A condensation names events: ``forgotten_event_ids``, and an offset at which a summary is inserted
into the list of the remaining events. Here these become places of messages. Several events can be
one message, which is forgotten when all of them are. A summary that no message follows is put
before the next message to come.
"""

from __future__ import annotations

from typing import Any

from eventctx.importers.formats.openhands_messages import summary_of
from eventctx.importers.source.items import CompactionItem
from eventctx.importers.source.lines import text_or_none


class View:
    """Ids of the events that the model is shown, in order."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self._summaries: dict[str, int] = {}
        self._known: set[str] = set()
        self._condensations = 0

    def known(self, event_id: str) -> bool:
        """Whether there was an event of this id."""
        return event_id in self._known

    def add(self, event_id: str) -> None:
        """Add an event that may or may not be shown to the model."""
        self._known.add(event_id)

    def show(self, event_id: str, place: int) -> None:
        """Note that an event became the message in this place, or a part of it."""
        self._shown[event_id] = place

    def condense(
        self,
        line: int,
        time: int | None,
        event: dict[str, Any],
        trigger: str | None,
        next_place: int,
    ) -> CompactionItem | None:
        """The compaction of a condensation; None if it does not name the events that it forgets.

        ``next_place`` is that of the next message.
        """
        ids = event.get("forgotten_event_ids")
        if not isinstance(ids, list):
            return None
        forgotten = {one for one in ids if isinstance(one, str)}
        if forgotten - self._known:
            # Older releases gave summaries a new id on every read: an unknown id is a summary.
            forgotten |= self._summaries.keys()
        left = {one: place for one, place in self._shown.items() if one not in forgotten}
        standing = [number for one, number in self._summaries.items() if one in left]
        messages = {place for one, place in self._shown.items() if one not in self._summaries}
        stay = {place for one, place in left.items() if one not in self._summaries}
        summary, offset = text_or_none(event.get("summary")), event.get("summary_offset")
        before: int | None = None
        summaries: tuple[dict[str, Any], ...] = ()
        if summary is not None and isinstance(offset, int) and offset >= 0:
            behind = list(left)[offset:]
            places = (left[one] for one in behind if one not in self._summaries)
            before = next(places, next_place)
            summaries = (summary_of(summary),)
            summary_id = f"{event.get('id')}-summary"
            left = _with(left, offset, summary_id)
            self._summaries[summary_id] = self._condensations
            self._known.add(summary_id)
        self._shown = left
        self._condensations += 1
        return CompactionItem(
            line,
            time,
            trigger,
            summaries,
            forgotten=frozenset(messages - stay),
            before=before,
            standing=tuple(standing),
        )


def _with(shown: dict[str, int], offset: int, summary_id: str) -> dict[str, int]:
    entries = list(shown.items())
    entries.insert(min(offset, len(entries)), (summary_id, -1))
    return dict(entries)
