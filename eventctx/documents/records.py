"""``log`` as documents: each record as one JSON object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventctx.documents.times import iso
from eventctx.documents.unread import ReadErrors
from eventctx.errors import DecodeError
from eventctx.importers.recording.packing import unpacked
from eventctx.log.naming import position_name
from eventctx.log.record import Body, Record
from eventctx.messages.encoding import decode_json
from eventctx.projections import numbering
from eventctx.queries.timelines.key_frames import timeline_at

if TYPE_CHECKING:
    from eventctx.engine import Engine

MOST_RAW: Final = 16 * 1024 * 1024
"""Bytes of one container's parts that are unpacked for a screen or a line of JSON."""


async def record_rows(
    engine: Engine,
    session: str,
    start: int,
    stop: int | None,
    unread: ReadErrors,
    *,
    contents: bool,
) -> AsyncIterator[dict[str, Any]]:
    """The records from ``start`` to ``stop`` (inclusive), each with the number of its turn.

    Raises StreamNotFound and InvalidSetting.
    """
    state = numbering.initial()
    if start:
        state = await _numbering_at(engine, session, start - 1, unread)
    async for record in engine.records(session, start, stop, bodies=True):
        state = unread.fold(numbering.evolve, state, record)
        turn = numbering.turn_number(state, record.turn_id)
        yield record_document(record, turn, contents=contents)


async def _numbering_at(
    engine: Engine, session: str, position: int, unread: ReadErrors
) -> numbering.Numbering:
    """The turns before a record: turns are numbered from the beginning of the log."""
    try:
        return (await timeline_at(engine.store, session, position)).changes.time
    except DecodeError:
        state = numbering.initial()
    async for record in engine.records(session, 0, position):
        state = unread.fold(numbering.evolve, state, record)
    return state


def record_document(record: Record, turn: int | None, *, contents: bool) -> dict[str, Any]:
    """The record with stable keys. ``contents`` embeds the bodies, else only their digests."""
    return {
        "session": record.stream,
        "at": position_name(record.position),
        "position": record.position,
        "global_position": record.global_position,
        "type": record.type,
        "version": record.version,
        "id": record.id.hex(),
        "time": iso(record.time),
        "turn_id": record.turn_id,
        "iteration": record.iteration,
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "payload": _embedded(record.payload),
        "bodies": [_body(record, body, contents) for body in record.bodies],
        "digest": record.digest.hex(),
        "turn": turn,
    }


def _body(record: Record, body: Body, contents: bool) -> dict[str, Any]:
    described: dict[str, Any] = {"digest": body.digest.hex(), "erased": body.erased}
    if contents and record.type == "import:raw":
        return {**described, **_raw_json(record)}
    if contents:
        described["content"] = None if body.data is None else _embedded(body.data)
    return described


def _raw_json(record: Record) -> dict[str, Any]:
    """The parts of a file in a record as text, with their size and that of the container."""
    found: dict[str, Any] = {"content": None}
    try:
        raw = unpacked(record, MOST_RAW)
    except DecodeError as error:
        return {**found, "error": str(error)}
    if raw is None:
        return found
    found["content"] = raw.data.decode("utf-8", errors="backslashreplace")
    return {**found, "content_bytes": raw.length, "container_bytes": raw.stored}


def _embedded(data: bytes) -> Any:
    """Stored JSON as it is; other bytes as text."""
    try:
        return msgspec.Raw(data) if decode_json(data) is not None else None
    except msgspec.DecodeError:
        return data.decode("utf-8", errors="backslashreplace")
