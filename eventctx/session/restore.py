"""Bringing messages back into view: which of them belong together, and where their bodies lie."""

from __future__ import annotations

from collections.abc import Sequence

from eventctx.errors import InvalidSetting
from eventctx.log.events import Located
from eventctx.log.record import Body
from eventctx.log.store import EventStore
from eventctx.messages.facts import decode_facts
from eventctx.messages.tool_rounds import group_rows
from eventctx.projections.transcript import TranscriptLine


async def whole_rounds(
    store: EventStore,
    stream: str,
    lines: Sequence[TranscriptLine],
    numbers: Sequence[int],
    what: str,
) -> list[Located]:
    """The messages ``numbers`` of a transcript, and all that belong to the same tool rounds.

    Raises InvalidSetting for a number that is not in the transcript.
    """
    known = {line.number for line in lines}
    unknown = [number for number in numbers if type(number) is not int or number not in known]
    if unknown:
        raise InvalidSetting(
            f"{what}: expected message numbers of the transcript, found {unknown}; "
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
