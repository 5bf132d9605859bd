"""Command handlers of a person's choices: restore, pin and unpin messages, withdraw a demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from eventctx.errors import AlreadyTakenBack, InvalidSetting, LogCorrupted, NoSuchDemand
from eventctx.log import events
from eventctx.log.arguments import shown
from eventctx.log.events import Event, InstructionWithdrawn, Located
from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import demand_name, message_name
from eventctx.log.record import Body, Record
from eventctx.log.store import EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.messages.tool_rounds import group_rows
from eventctx.projections.transcript import TranscriptLine
from eventctx.projections.view.request_view import ViewState
from eventctx.session.open_session import OpenSession
from eventctx.session.transcript import stripped_by


async def show(
    session: OpenSession, numbers: Sequence[int], command: str, then: Sequence[Event] = ()
) -> tuple[int, ...]:
    """Bring messages back into view with their tool rounds, and append ``then`` after them.

    Returns the numbers that came back. Raises InvalidSetting, which names ``command``, for a
    number that is not in the transcript, and WrongExpectedVersion when another process wrote in
    between.
    """
    while True:
        view, version = await session.appends.synchronise()
        lines = (await session.lines.at(version)).lines
        rounds = await whole_rounds(session.store, session.stream, list(lines), numbers, command)
        whole = {ref.number for ref in view.layout.in_play() if not ref.shortened}
        hidden = tuple([one for one in rounds if one.number not in whole])
        drafts = []
        if hidden:
            event = events.Restored(messages=hidden, before=_followers(view, lines, hidden))
            unbound = stripped_by(session, view, event)
            drafts.append(session.drafts.make(msgspec.structs.replace(event, unbound=unbound)))
        drafts += [session.drafts.make(event) for event in then]
        if not drafts or await session.appends.append_exactly(version, *drafts) is not None:
            return tuple([one.number for one in hidden])


async def unpin(session: OpenSession, numbers: Sequence[int]) -> None:
    """Let pinned messages be compacted again. Raises InvalidSetting for one that is not pinned."""
    view, _ = await session.appends.synchronise()
    unknown = [n for n in numbers if type(n) is not int or n not in view.pins]
    if unknown:
        raise InvalidSetting(
            f"unpin: expected some of {sorted(view.pins)}, which are pinned, found {shown(unknown)}"
        )
    await session.appends.append(session.drafts.make(events.Unpinned(numbers=tuple(numbers))))


async def whole_rounds(
    store: EventStore,
    stream: str,
    lines: Sequence[TranscriptLine],
    numbers: Sequence[int],
    command: str,
) -> list[Located]:
    """The messages ``numbers`` of a transcript, and all others of the same tool rounds.

    Raises InvalidSetting for a number that is not in the transcript.
    """
    known = {line.number for line in lines}
    unknown = [number for number in numbers if type(number) is not int or number not in known]
    if unknown:
        raise InvalidSetting(
            f"{command}: expected message numbers of the transcript, found {shown(unknown)}; "
            f"`eventctx transcript {stream}` lists them"
        )
    bodies = await _without_data(store, stream, lines)
    wanted = set(numbers)
    groups = group_rows([decode_facts(body.facts) for body in bodies])
    rows = sorted(
        row
        for group in groups
        if any(lines[row].number in wanted for row in group.rows)
        for row in group.rows
    )
    return [
        Located(
            lines[row].number,
            lines[row].position,
            lines[row].index,
            bodies[row].digest,
            bodies[row].facts,
        )
        for row in rows
    ]


async def _without_data(
    store: EventStore, stream: str, lines: Sequence[TranscriptLine]
) -> list[Body]:
    """Digests and facts of the lines' bodies, in one pass over the records."""
    places: dict[int, list[int]] = {}
    for row, line in enumerate(lines):
        places.setdefault(line.position, []).append(row)
    found: dict[int, Body] = {}
    first, last = min(places), max(places)
    async for record in store.read(stream, start=first, stop=last, bodies=False):
        for row in places.get(record.position, ()):
            found[row] = record.bodies[lines[row].index]
    return [found[row] for row in range(len(lines))]


def _followers(
    view: ViewState, lines: Iterable[TranscriptLine], hidden: Sequence[Located]
) -> tuple[int | None, ...]:
    """For each hidden message the next one of the transcript that is in view, None at the end."""
    shown = {ref.number for ref in view.layout.refs}
    following: dict[int, int | None] = {}
    after: int | None = None
    for line in reversed(list(lines)):
        following[line.number] = after
        after = line.number if line.number in shown else after
    return tuple([following[one.number] for one in hidden])


async def withdraw(session: OpenSession, event: InstructionWithdrawn) -> Record:
    """Append ``event``; return its record.

    Raises NoSuchDemand, AlreadyTakenBack, InvalidSetting for a number that is not in the
    transcript, and WrongExpectedVersion when another process wrote in between.
    """
    while True:
        view, version = await session.appends.synchronise()
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
                f"{name}: expected an instruction of a person, found {len(demands)} in "
                f"{message_name(event.number)}; `eventctx instructions {session.stream}` lists them"
            )
        if (event.number, event.demand) in view.spoken.withdrawn:
            raise AlreadyTakenBack(
                f"{name}: expected an instruction that holds, found one taken back"
            )
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
