"""The request view's state as bytes, for snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from eventctx.errors import DecodeError
from eventctx.log.events import Break
from eventctx.log.plan import Run
from eventctx.messages.calibration import Calibration
from eventctx.messages.encoding import pause_collector
from eventctx.projections.view import layout as layouts
from eventctx.projections.view.refs import CallEnd, CallEnds, InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.projections.view.series import Series
from eventctx.projections.view.state import Spoken, Unended

NAME: Final = "request_view"
"""The name under which stores keep these snapshots."""

CHECKSUM_BYTES: Final = 16

VERSION = 8
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
    ends: list[tuple[int, str, CallEnd]]
    plain_until: int
    spans: Unended
    spoken: Spoken


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


def dump(state: ViewState) -> bytes:
    """The state as bytes for a snapshot: a checksum of ``CHECKSUM_BYTES``, then the data."""
    ends = state.layout.ends
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
            [(*key, end) for key, end in sorted(ends.known.items(), key=_by_call)],
            ends.plain_until,
            state.spans,
            state.spoken,
        )
    )
    return sha256(data).digest()[:CHECKSUM_BYTES] + data


def dump_without_refs(state: ViewState) -> bytes:
    """The state as bytes without its references, for a caller who keeps these in another form."""
    return dump(replace(state, layout=replace(state.layout, refs=Series())))


def _by_call(item: tuple[tuple[int, str], CallEnd]) -> tuple[int, str]:
    return item[0]


def load(data: bytes, refs: Sequence[MessageRef] | None = None) -> ViewState:
    """The state from a snapshot; the layout is built from its references, with the same entries.

    ``refs`` are those of a state that ``dump_without_refs`` wrote. Raises DecodeError for bytes
    that neither of the two made.
    """
    if sha256(data[CHECKSUM_BYTES:]).digest()[:CHECKSUM_BYTES] != data[:CHECKSUM_BYTES]:
        raise DecodeError("the snapshot is damaged")
    stored = _decode(data[CHECKSUM_BYTES:])
    known = {(number, call_id): end for number, call_id, end in stored.ends}
    ends = CallEnds(known, stored.plain_until)
    held = Series(stored.refs if refs is None else refs)
    with pause_collector(len(held)):
        layout = layouts.build(held, stored.insertions, ends)
    return ViewState(
        stored.position,
        stored.next_number,
        stored.messages,
        layout,
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
        stored.spans,
        stored.spoken,
    )
