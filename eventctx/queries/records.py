"""A session in order: its records, and its transcript at any position; and their JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.log.codec import stored_harness_bodies, unpacked
from eventctx.log.integrity import damage_found, sound_bodies
from eventctx.log.naming import RequestName, iso, message_name, position_name
from eventctx.log.record import Body, Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_bodies, decode_json
from eventctx.projections import numbering, transcript
from eventctx.projections.transcript import TranscriptLine
from eventctx.queries.encoding import fill
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.requests import find_request, position_of_turn

Origin = Literal["harness", "observation"]


class Message(NamedTuple):
    """A message of the transcript: its number, the position of its record, and the message.

    ``message`` is None where the contents were erased. ``origin`` is what a recorded session says
    of the message: a harness wrote it, whatever its text looks like, or it is the observation
    after an action in a model's text.
    """

    number: int
    position: int
    message: dict[str, Any] | None
    origin: Origin | None = None


class MessageAnswer(msgspec.Struct, frozen=True):
    """A message of the transcript as JSON; ``name`` is ``#6``."""

    name: str
    number: int
    position: int
    message: dict[str, Any] | None
    origin: Origin | None


def transcript_answer(messages: Sequence[Message]) -> list[MessageAnswer]:
    """The messages as JSON."""
    return [fill(MessageAnswer, one, name=message_name(one.number)) for one in messages]


async def transcript_of(
    store: EventStore,
    info: StreamInfo,
    at: int | None = None,
    turn: RequestName | None = None,
) -> list[Message]:
    """The transcript now, after a position, at the end of a turn, or at one of its requests.

    Raises StreamNotFound, and InvalidSetting for a position that the session does not have.
    """
    if at is not None and turn is not None:
        raise InvalidSetting("transcript: expected at most one of at and turn, found both")
    if at is not None and not 0 <= at <= info.head:
        raise InvalidSetting(
            f"session {info.stream!r} has positions @0 to {position_name(info.head)}, "
            f"found --at {position_name(at)}"
        )
    if turn is not None and turn.turn is not None and turn.iteration is None:
        at = await position_of_turn(store, info.stream, turn.turn)
    elif turn is not None:
        at = (await find_request(store, info.stream, turn)).position
    return await transcript_at(store, info.stream, at)


async def transcript_at(store: EventStore, stream: str, at: int | None = None) -> list[Message]:
    """The transcript as it was after position ``at`` (None: now).

    Raises InvalidSetting for a position that is no int from 0, StreamNotFound, and LogCorrupted
    for a body that was damaged.
    """
    if at is not None and (type(at) is not int or not 0 <= at < 2**63):
        raise InvalidSetting(f"position: expected an int from 0, found {shown(at)}")
    lines, origins = await _lines(store, stream, at)
    places = [line.address for line in lines]
    bodies = await sound_bodies(store, stream, places)
    try:
        messages = decode_bodies([b"null" if body.data is None else body.data for body in bodies])
    except msgspec.DecodeError as error:
        raise damage_found(stream, places, bodies) from error
    if len(messages) != len(places):
        raise damage_found(stream, places, bodies)
    return [
        Message(
            line.number,
            line.position,
            message,
            origins.get(line.address),
        )
        for line, message in zip(lines, messages, strict=True)
    ]


async def _lines(
    store: EventStore, stream: str, at: int | None
) -> tuple[Sequence[TranscriptLine], dict[Address, Origin]]:
    """The lines of the transcript, and the places of the messages that a harness wrote."""
    try:
        state = await timeline_at(store, stream, at)
    except DecodeError:
        # A record that changes no transcript cannot be read; the transcript does not need it.
        return await _lines_alone(store, stream, at)
    origins = state.changes.origins
    listed = [number for first, last in state.changes.listed for number in range(first, last + 1)]
    numbers = [*listed, *range(state.changes.listed_to, len(origins))]
    refs = [origins[number].ref for number in numbers]
    found: dict[Address, Origin] = {
        Address(*place): "observation" if observation else "harness"
        for place, observation in state.extras.harness
    }
    return [TranscriptLine(ref.number, ref.position, ref.index) for ref in refs], found


async def _lines_alone(
    store: EventStore, stream: str, at: int | None
) -> tuple[Sequence[TranscriptLine], dict[Address, Origin]]:
    """The same from the records that change a transcript; runs of added ones are one step."""
    state = transcript.initial()
    found: dict[Address, Origin] = {}
    positions: list[int] = []
    async for record in store.read(stream, stop=at, bodies=False):
        origins = stored_harness_bodies(record.type, record.payload)
        for index in origins.harness:
            observation = index in origins.observations
            found[Address(record.position, index)] = "observation" if observation else "harness"
        if record.type == "context:message_added":
            positions.append(record.position)
        elif record.type in ("context:messages_set", "context:cleared"):
            state = transcript.evolve(transcript.add_messages(state, positions), record)
            positions = []
    return list(transcript.add_messages(state, positions).lines), found


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
    return fill(
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
