"""The transcript of a stored session, as it was at any position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.log.naming import message_name, position_name
from eventctx.log.origins import stored_origins
from eventctx.log.soundness import damaged, sound_bodies
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_bodies
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptLine
from eventctx.queries.encoding import filled
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.requests import position_of_turn

Origin = Literal["harness", "observation"]


class Message(NamedTuple):
    """A message of the transcript: its number, the position of its record, and the message.

    ``message`` is None where the contents were erased. ``origin`` is what a recorded session says
    beside the message: a harness wrote it, whatever its text looks like, or it is the observation
    behind an action in a model's text.
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
    return [filled(MessageAnswer, one, name=message_name(one.number)) for one in messages]


async def transcript_of(
    store: EventStore, info: StreamInfo, at: int | None = None, turn: int | None = None
) -> list[Message]:
    """The transcript now, after a position, or at the end of a turn.

    Raises StreamNotFound, and InvalidSetting for a position that the session does not have.
    """
    if at is not None and turn is not None:
        raise InvalidSetting("transcript: expected at most one of at and turn, found both")
    if at is not None and not 0 <= at <= info.head:
        raise InvalidSetting(
            f"session {info.stream!r} has positions @0 to {position_name(info.head)}, "
            f"found --at {position_name(at)}"
        )
    if turn is not None:
        at = await position_of_turn(store, info.stream, turn)
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
        raise damaged(stream, places, bodies) from error
    if len(messages) != len(places):
        raise damaged(stream, places, bodies)
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
        for place, observation in state.beside.harness
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
        origins = stored_origins(record.type, record.payload)
        for index in origins.harness:
            observation = index in origins.observations
            found[Address(record.position, index)] = "observation" if observation else "harness"
        if record.type == "context:message_added":
            positions.append(record.position)
        elif record.type in ("context:messages_set", "context:cleared"):
            state = transcript.evolve(transcript.added(state, positions), record)
            positions = []
    return list(transcript.added(state, positions).lines), found
