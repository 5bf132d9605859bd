"""The request that a session prepared last, held against what the host's provider sent of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from eventctx.adapters.amplifier import sent
from eventctx.log.codec import decode_known
from eventctx.log.events import RequestPrepared
from eventctx.log.record import Record


class Sent(NamedTuple):
    """What was sent of a request: the arguments of ``Context.record_sent``."""

    prepared: int
    messages: int
    additions: list[tuple[int, dict[str, Any]]]
    missing: int


class LastRequest:
    """The last ``context:request_prepared`` of a session, and a copy of its messages.

    A copy costs time in proportion to the view, so only hosts that report their requests get one.
    The second request shows whether a host does; the first is copied always.
    """

    def __init__(self) -> None:
        self._prepared: Record | None = None
        self._returned: tuple[int, list[dict[str, Any]] | None] | None = None
        self._reports = False

    def prepared(self, record: Record) -> None:
        """Take the record of a request."""
        self._prepared = record

    @property
    def budget(self) -> int | None:
        """The budget of the last request; None without any."""
        if self._prepared is None:
            return None
        prepared: RequestPrepared = decode_known(self._prepared)
        return prepared.budget

    def returned(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Keep what is about to be returned to the host, to be held against its report."""
        if self._prepared is not None:
            compares = self._reports or self._returned is None
            rows = sent.kept(messages) if compares else None
            self._returned = self._prepared.position, rows

    def recorded(self, prepared: int, additions: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Note additions that are recorded, as the provider's report holds them, too."""
        position, rows = self._returned or (None, None)
        if position == prepared and rows is not None:
            rows.extend([message for _, message in additions])

    def compared(self, data: Mapping[str, Any]) -> Sent | None:
        """What a provider's report holds besides the request, or lacks; None if it is the same."""
        messages = sent.messages_of(data)
        if messages is None or self._returned is None:
            return None
        self._reports = True
        position, prepared = self._returned
        if prepared is None:
            return None  # the provider began to report in mid-session; the next one is compared
        found = sent.compare(prepared, messages)
        if not (found.additions or found.missing):
            return None
        added = [
            (behind, {"role": text.role, "content": text.text}) for behind, text in found.additions
        ]
        return Sent(position, found.messages, added, found.missing)
