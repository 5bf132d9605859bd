"""The request view's state as bytes, for snapshots."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from eventctx.errors import DecodeError
from eventctx.log.events import Break
from eventctx.log.plan import Run
from eventctx.messages.calibration import Calibration
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series

NAME: Final = "request_view"
"""The name under which stores keep these snapshots."""

CHECKSUM_BYTES: Final = 16

VERSION = 5
"""Version of the stored state; a snapshot of another version is not read."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    position: int
    next_number: int
    messages: int
    refs: list[MessageRef]
    insertions: list[InsertionRef]
    gone: tuple[Run, ...]
    plan_position: int | None
    pins: list[int]
    breaks: tuple[Break, ...]
    size_after_compaction: int
    messages_after_compaction: int
    compactions: int
    hidden: tuple[int, int, int]
    turns: int
    shown: tuple[int, int, str] | None
    calibration: Calibration
    tools: list[str]
    mirror: str | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


def dump(state: ViewState) -> bytes:
    """The state as bytes for a snapshot: a checksum of ``CHECKSUM_BYTES``, then the data."""
    data = _encode(
        _Stored(
            state.position,
            state.next_number,
            state.messages,
            list(state.layout.refs),
            list(state.layout.insertions),
            state.gone,
            state.plan_position,
            sorted(state.pins),
            state.breaks,
            state.size_after_compaction,
            state.messages_after_compaction,
            state.compactions,
            state.hidden,
            state.turns,
            state.shown,
            state.calibration,
            sorted(state.tools),
            state.mirror,
        )
    )
    return sha256(data).digest()[:CHECKSUM_BYTES] + data


def load(data: bytes) -> ViewState:
    """The state from a snapshot; the layout is built from its references, with the same entries.

    Raises DecodeError for bytes that ``dump`` did not make.
    """
    if sha256(data[CHECKSUM_BYTES:]).digest()[:CHECKSUM_BYTES] != data[:CHECKSUM_BYTES]:
        raise DecodeError("the snapshot is damaged")
    stored = _decode(data[CHECKSUM_BYTES:])
    return ViewState(
        stored.position,
        stored.next_number,
        stored.messages,
        layouts.build(Series(stored.refs), stored.insertions),
        stored.gone,
        stored.plan_position,
        frozenset(stored.pins),
        stored.breaks,
        stored.size_after_compaction,
        stored.messages_after_compaction,
        stored.compactions,
        stored.hidden,
        stored.turns,
        stored.shown,
        stored.calibration,
        frozenset(stored.tools),
        stored.mirror,
    )
