"""Command handlers of a person's choices: restore, pin and unpin messages, withdraw a demand.

Also the return of what a provider's own summary stands for, before a request to a model that cannot
read it: one of another provider, or an older one. The policy of the session decides on that view.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import msgspec

from eventctx.errors import (
    AlreadyTakenBack,
    InvalidSetting,
    LogCorrupted,
    NoSuchDemand,
    WrongExpectedVersion,
)
from eventctx.log import events
from eventctx.log.arguments import shown
from eventctx.log.events import Event, InstructionWithdrawn, Located
from eventctx.log.integrity import sound_bodies
from eventctx.log.naming import demand_name, message_name
from eventctx.log.plan import Disposition, Plan, Shortening, numbers_in
from eventctx.log.record import Body, Record, make_body
from eventctx.log.store import Address, EventStore
from eventctx.messages.demands import demands_in
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts import decode_facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.native_compaction import reads_compaction
from eventctx.messages.tool_rounds import group_rows
from eventctx.policies.planner import edit_plan
from eventctx.projections.transcript import TranscriptLine
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.request_view import ViewState
from eventctx.session.open_session import OpenSession
from eventctx.session.provider_edits import draft_edit
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


def foreign_summaries(view: ViewState, model: str | None) -> list[MessageRef | InsertionRef]:
    """What a view has of providers' own summaries that ``model`` cannot read.

    The model that was called last reads them.
    """
    if model is None or model == view.calibration.model:
        return []
    return [
        ref
        for ref in (*view.layout.insertions, *view.layout.refs)
        if ref.facts.summarises
        and not reads_compaction(model, "openai" if ref.facts.item else "anthropic")
    ]


async def give_up_foreign(session: OpenSession, model: str) -> None:
    """Show from the log what ``foreign_summaries`` stand for, in their place, to ``model``.

    Raises what the store raises.
    """
    view, version = await session.appends.settle()
    foreign = foreign_summaries(view, model)
    lines = {line.number for line in (await session.lines.at(version)).lines}
    hidden = _stood_for(view, foreign) & lines
    if hidden:
        await show(session, sorted(hidden), "restore")
    while True:
        view, version = await session.appends.settle()
        foreign = foreign_summaries(view, model)
        if not foreign:
            return
        plan, bodies = await _without(session, view, foreign)
        asked = f"a request to {model}, which cannot read the provider's summary"
        drafts = draft_edit(session, view, plan, "native", bodies, asked, trigger="manual")
        with contextlib.suppress(WrongExpectedVersion):
            if await session.appends.append_exactly(version, *drafts) is not None:
                return


def _stood_for(view: ViewState, foreign: Sequence[MessageRef | InsertionRef]) -> set[int]:
    """The messages that these stand for: of one in the transcript all before it."""
    numbers: set[int] = set()
    gone = numbers_in([(run.first, run.last) for run in view.gone])
    for ref in foreign:
        if isinstance(ref, InsertionRef):
            numbers |= numbers_in(ref.stands_for)
        else:
            numbers.update([number for number in gone if number < ref.number])
    return numbers


async def _without(
    session: OpenSession, view: ViewState, foreign: Sequence[MessageRef | InsertionRef]
) -> tuple[Plan, list[Body]]:
    """A plan that shows all but these summaries, and the bodies of the messages that held one."""
    refs = [ref for ref in foreign if isinstance(ref, MessageRef)]
    texts = await session.bodies.texts([Address(ref.position, ref.index) for ref in refs])
    changed: dict[int, tuple[Disposition, str]] = {}
    shortened: list[Shortening] = []
    bodies: list[Body] = []
    for ref in refs:
        data = texts[ref.position, ref.index]
        message = {} if data is None else decode_body(data)
        blocks = message.get("content")
        left = [one for one in blocks if one.get("type") != "compaction"] if blocks else []
        if not left:
            changed[ref.number] = ("dropped", "foreign_summary")
            continue
        changed[ref.number] = ("shortened", "foreign_summary")
        shortened.append(Shortening(ref.number, len(bodies)))
        copy = {**message, "content": left}
        bodies.append(
            make_body(encode_message(copy), encode_facts(read_facts(copy)), session.random)
        )
    plan = edit_plan(view, "restored", changed, tuple(shortened))
    away = {(ref.position, ref.index) for ref in foreign}
    standing = tuple([one for one in plan.insertions if (one.at, one.body) not in away])
    return msgspec.structs.replace(plan, insertions=standing), bodies


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
