"""The bodies of a record that a harness wrote, as its event says.

Facts of a body are read from its message and from this, so they can be rebuilt from the record.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.log.events import Event, MessageAdded, MessagesSet

_NONE: Final[frozenset[int]] = frozenset()


class _Payload(msgspec.Struct):
    origin: str | None = None
    harness: tuple[int, ...] = ()


_decode: Final = msgspec.json.Decoder(_Payload).decode


def by_harness(event: Event) -> frozenset[int]:
    """The indexes of the bodies that ``event`` says are a harness's."""
    if isinstance(event, MessageAdded):
        return _NONE if event.origin is None else frozenset((0,))
    return frozenset(event.harness) if isinstance(event, MessagesSet) else _NONE


def stored_by_harness(kind: str, payload: bytes) -> frozenset[int]:
    """The same for an event as it is stored; none for a payload that cannot be read."""
    if b'"harness"' not in payload:
        return _NONE  # nearly all
    try:
        found = _decode(payload)
    except msgspec.DecodeError:
        return _NONE
    if kind == "context:message_added":
        return _NONE if found.origin is None else frozenset((0,))
    return frozenset(found.harness) if kind == "context:messages_set" else _NONE
