"""The bodies of a record that a harness wrote, as its event says, and the observations among them.

Facts of a body are read from its message and from this, so they can be rebuilt from the record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from eventctx.log.events import Event, MessageAdded, MessagesSet


class Origins(NamedTuple):
    """The indexes of the bodies that a harness wrote; ``observations`` are among them."""

    harness: frozenset[int] = frozenset()
    observations: frozenset[int] = frozenset()


_NONE: Final = Origins()
_FIRST: Final = frozenset((0,))


class _Payload(msgspec.Struct):
    origin: str | None = None
    observation: bool = False
    harness: tuple[int, ...] = ()
    observations: tuple[int, ...] = ()


_decode: Final = msgspec.json.Decoder(_Payload).decode


def origins(event: Event) -> Origins:
    """The origins of the bodies of ``event``, as it says."""
    if isinstance(event, MessageAdded):
        return _of_one(event.origin is not None, event.observation)
    if isinstance(event, MessagesSet):
        return Origins(frozenset(event.harness), frozenset(event.observations))
    return _NONE


def stored_origins(kind: str, payload: bytes) -> Origins:
    """The same for an event as it is stored; none for a payload that cannot be read."""
    if b'"harness"' not in payload:
        return _NONE  # nearly all; an observation is a harness's, too
    try:
        found = _decode(payload)
    except msgspec.DecodeError:
        return _NONE
    if kind == "context:message_added":
        return _of_one(found.origin is not None, found.observation)
    if kind == "context:messages_set":
        return Origins(frozenset(found.harness), frozenset(found.observations))
    return _NONE


def _of_one(harness: bool, observation: bool) -> Origins:
    if not harness:
        return _NONE
    return Origins(_FIRST, _FIRST if observation else frozenset())
