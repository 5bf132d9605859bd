"""The command handler that records that a demand of a person no longer holds."""

from __future__ import annotations

import msgspec

from eventctx.errors import AlreadyTakenBack, InvalidSetting, LogCorrupted, NoSuchDemand
from eventctx.log.events import InstructionWithdrawn
from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import demand_name, message_name
from eventctx.log.record import Record
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.projections.transcript import TranscriptLine
from eventctx.session.open_session import OpenSession


async def withdraw(session: OpenSession, event: InstructionWithdrawn) -> Record:
    """Append ``event``; return its record.

    Raises NoSuchDemand, AlreadyTakenBack, InvalidSetting for a number that is not in the
    transcript, and WrongExpectedVersion when another process wrote in between.
    """
    while True:
        view, version = await session.appends.synchronised()
        lines = (await session.lines.at(version)).lines
        known = {line.number: line for line in lines}
        line = known.get(event.number)
        if line is None:
            raise InvalidSetting(
                _not_in(session.stream, "instruction: expected a message", event.number)
            )
        demands = await _demands(session, line)
        name = demand_name(event.number, event.demand)
        if event.demand > len(demands):
            raise NoSuchDemand(
                f"{name}: expected a demand of a person, found {len(demands)} demands in "
                f"{message_name(event.number)}; `eventctx instructions {session.stream}` lists them"
            )
        if (event.number, event.demand) in view.spoken.withdrawn:
            raise AlreadyTakenBack(f"{name}: expected a demand that holds, found one taken back")
        if event.by is not None and (event.by not in known or event.by <= event.number):
            expected = f"by: expected a message behind {message_name(event.number)}"
            raise InvalidSetting(_not_in(session.stream, expected, event.by))
        appended = await session.appends.append_exactly(version, session.drafts.make(event))
        if appended is not None:
            return appended[-1]


async def _demands(session: OpenSession, line: TranscriptLine) -> tuple[str, ...]:
    """The demands in a message of a person; none in any other, nor in one that was erased."""
    [body] = await sound_bodies(session.store, session.stream, [line.address])
    if body.data is None or not decode_facts(body.facts).human:
        return ()
    try:
        return demands_in(decode_body(body.data))
    except msgspec.DecodeError as error:
        problem = f"body {line.index} is no JSON"
        raise LogCorrupted(session.stream, line.position, problem) from error


def _not_in(stream: str, expected: str, found: int) -> str:
    name = message_name(found)
    return f"{expected} of the transcript, found {name}; `eventctx transcript {stream}` lists them"
