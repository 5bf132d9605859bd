"""The ids of the records that a file's lines become: the same ones at every import of the file."""

from __future__ import annotations

from eventctx.importers.source.naming import event_id
from eventctx.log.events import Event
from eventctx.log.ids import RecordIds, derive_span_id


class LineIds:
    """Makes ids from the source, the line, the type of the event and the ordinal in that line.

    ``line`` is the line that is being read; -1 before the first one.
    """

    def __init__(self, key: str, stream: str) -> None:
        """``key`` names the source, ``stream`` is the session."""
        self.line = -1
        self._key = key
        self._stream = stream
        self._counted = -1
        self._ordinals: dict[str, int] = {}
        self._opening: dict[str, bytes] = {}

    def return_to_last(self) -> None:
        """Go on from the last line that became a record, for what the file's end adds."""
        self.line = self._counted

    def at_end(self, event: type[Event]) -> bytes | None:
        """The id that a record of this type had if the file had ended before the present line.

        None where the present line has become a record already.
        """
        if self.line == self._counted:
            return None
        kind = str(event.__struct_config__.tag)
        return event_id(self._key, self._counted, kind, self._ordinals.get(kind, 0))

    def of(self, event: type[Event]) -> bytes:
        """The id of the next record of this type from the present line."""
        if self.line != self._counted:
            self._counted = self.line
            self._ordinals.clear()
        kind = str(event.__struct_config__.tag)
        ordinal = self._ordinals.get(kind, 0)
        self._ordinals[kind] = ordinal + 1
        return event_id(self._key, self.line, kind, ordinal)

    def new_span(self, event: type[Event]) -> str:
        """A span's id, derived from the id of the record of this type that will begin it."""
        new_id = self.of(event)
        span_id = derive_span_id(self._stream, new_id)
        self._opening[span_id] = new_id
        return span_id

    def for_record(self, event: type[Event], ids: RecordIds) -> bytes:
        """The id of a record in the span of ``ids``: the one that the span's own id was made of."""
        return self._opening.pop(ids.span_id or "", None) or self.of(event)
