"""The messages that a recorded request may name: noted by their places until there is one.

The hash of every message would cost a file without recorded requests a sixth of its import, and 0.3
kB of memory for each message. So a message's place is noted, and when the file turns out to hold a
request, the messages before it are read back from the stream.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from eventctx.importers.recording.recorded_requests import RecordedRequests
from eventctx.importers.recording.track import Track
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body

_NO_NUMBER: Final = -1
_NOTE: Final = 3
"""Numbers of a note: the message's own or ``_NO_NUMBER``, position, index of the body."""


class NotedMessages:
    """Reports messages to ``RecordedRequests``, at once or when the first request is met."""

    def __init__(self, requests: RecordedRequests, track: Track) -> None:
        self._requests = requests
        self._track = track
        # The stored messages of an earlier import may have been erased, and the file has them.
        self._notes = None if track.holds_records else array("i")

    def add(self, number: int | None, record: Record, index: int, message: dict[str, Any]) -> None:
        """Take a message; one of a compaction has no number."""
        if self._notes is None:
            self._requests.said(number, record, index, message)
        elif self._requests.records:
            place = (_NO_NUMBER if number is None else number, record.position, index)
            self._notes.extend(place)

    async def read_back(self) -> None:
        """Report every message so far; each later one is reported at once."""
        notes, self._notes = self._notes, None
        if not notes:
            return
        at = 0
        async for record in self._track.written():
            while at < len(notes) and notes[at + 1] == record.position:
                number, _, index = notes[at : at + _NOTE]
                message = decode_body(record.bodies[index].data or b"")
                known = None if number == _NO_NUMBER else number
                self._requests.said(known, record, index, message)
                at += _NOTE
