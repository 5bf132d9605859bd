"""The transcript of a stored session, as it was at any position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.log.codec import stored_harness_bodies
from eventctx.log.integrity import damaged, sound_bodies
from eventctx.log.store import Address, EventStore
from eventctx.messages.encoding import decode_bodies
from eventctx.projections import transcript
from eventctx.projections.transcript import TranscriptLine
from eventctx.queries.timelines.key_frames import timeline_at

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
            state = transcript.evolve(transcript.added(state, positions), record)
            positions = []
    return list(transcript.added(state, positions).lines), found
