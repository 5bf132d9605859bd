"""The records of a session, each as one JSON object."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.errors import DecodeError
from eventctx.log.naming import iso, position_name
from eventctx.log.raw_parts import unpacked
from eventctx.log.record import Body, Record
from eventctx.log.store import EventStore
from eventctx.messages.encoding import decode_json
from eventctx.projections import numbering
from eventctx.queries.encoding import filled
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.read_errors import ReadErrors

MOST_RAW: Final = 16 * 1024 * 1024
"""Bytes of one container's parts that are unpacked for a screen or a line of JSON."""


async def record_rows(
    store: EventStore,
    session: str,
    start: int,
    stop: int | None,
    errors: ReadErrors,
    *,
    contents: bool,
) -> AsyncIterator[RecordAnswer]:
    """The records from ``start`` to ``stop`` (inclusive), each with the number of its turn.

    Raises StreamNotFound and InvalidSetting.
    """
    state = numbering.initial()
    if start:
        state = await _numbering_at(store, session, start - 1, errors)
    async for record in store.read(session, start=start, stop=stop):
        state = errors.fold(numbering.evolve, state, record)
        turn = numbering.turn_number(state, record.turn_id)
        yield record_answer(record, turn, contents=contents)


async def _numbering_at(
    store: EventStore, session: str, position: int, errors: ReadErrors
) -> numbering.Numbering:
    """The turns before a record: turns are numbered from the beginning of the log."""
    try:
        return (await timeline_at(store, session, position)).changes.time
    except DecodeError:
        state = numbering.initial()
    async for record in store.read(session, stop=position, bodies=False):
        state = errors.fold(numbering.evolve, state, record)
    return state


class BodyAnswer(msgspec.Struct, frozen=True):
    """A body: its digest, and where contents are asked for what it holds.

    The parts of an imported file have the sizes of their text and of their container, or the error
    for which they cannot be shown.
    """

    digest: str
    erased: bool
    content: Any = UNSET
    error: str | UnsetType = UNSET
    content_bytes: int | UnsetType | None = UNSET
    container_bytes: int | UnsetType = UNSET


class RecordAnswer(msgspec.Struct, frozen=True):
    """A record, with the number of its turn."""

    session: str
    at: str
    position: int
    global_position: int
    type: str
    version: int
    id: str
    time: str
    turn_id: str | None
    iteration: int | None
    span_id: str | None
    parent_span_id: str | None
    payload: Any
    bodies: list[BodyAnswer]
    digest: str
    turn: int | None


def record_answer(record: Record, turn: int | None, *, contents: bool) -> RecordAnswer:
    """The record as JSON. ``contents`` embeds the bodies, else only their digests."""
    return filled(
        RecordAnswer,
        record,
        session=record.stream,
        at=position_name(record.position),
        id=record.id.hex(),
        time=iso(record.time),
        payload=_embedded(record.payload),
        bodies=[_body(record, body, contents) for body in record.bodies],
        digest=record.digest.hex(),
        turn=turn,
    )


def _body(record: Record, body: Body, contents: bool) -> BodyAnswer:
    digest = body.digest.hex()
    if contents and record.type == "import:raw":
        return _raw_parts(record, digest, body.erased)
    if contents:
        content = None if body.data is None else _embedded(body.data)
        return BodyAnswer(digest, body.erased, content)
    return BodyAnswer(digest, body.erased)


def _raw_parts(record: Record, digest: str, erased: bool) -> BodyAnswer:
    try:
        raw = unpacked(record, MOST_RAW)
    except DecodeError as error:
        return BodyAnswer(digest, erased, None, str(error))
    if raw is None:
        return BodyAnswer(digest, erased, None)
    content = raw.data.decode("utf-8", errors="backslashreplace")
    return BodyAnswer(digest, erased, content, content_bytes=raw.length, container_bytes=raw.stored)


def _embedded(data: bytes) -> Any:
    """Stored JSON as it is; other bytes as text."""
    try:
        return msgspec.Raw(data) if decode_json(data) is not None else None
    except msgspec.DecodeError:
        return data.decode("utf-8", errors="backslashreplace")
