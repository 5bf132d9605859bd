"""One machine's copy is damaged while it is down, and then it leads: what do readers see?

Every answer must be whole or an error. A short answer without an error is the worst there is:
nobody looks for what nobody misses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from eventctx.errors import EventctxError
from eventctx.log.record import Record, body_digest
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.histories import Seen

Harm = Callable[[Path, random.Random], None]
Outcome = Literal["whole", "an error", "silently short"]

SESSIONS = ("a", "b", "c")


def flip_a_bit(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut_the_end(file: Path, chance: random.Random) -> None:
    """Leave a file half of its length, or less, at a multiple of a page's."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(chance.randrange(size // 4, size // 2) // 8192 * 8192)


def delete(file: Path, _: random.Random) -> None:
    file.unlink()


HARMS: tuple[Harm, ...] = (flip_a_bit, cut_the_end, delete)


async def fill(store: EventStore, appends: int = 300, prefix: str = "") -> list[Seen]:
    """Append to three sessions in turn, with bodies; returns what was acknowledged, in order."""
    there: list[Seen] = []
    heads = dict.fromkeys((prefix + name for name in SESSIONS), -1)
    for number in range(appends):
        session = prefix + SESSIONS[number % len(SESSIONS)]
        drafts = [make_draft(f"{number} " * 60), make_draft("x" * 900)]
        expected = heads[session] if heads[session] >= 0 else NO_STREAM
        appended = await store.append(session, drafts, expected)
        there += map(Seen.of, appended.records)
        heads[session] += len(drafts)
    return there


async def judge(store: EventStore, there: list[Seen]) -> Counter[Outcome]:
    """What the ways of reading make of a damaged store; ``there`` is what was acknowledged."""
    own = {name: [one for one in there if one.stream == name] for name in SESSIONS}
    # Each prints what went wrong.
    found = [await _outcome(_read(store, session), own[session]) for session in SESSIONS]
    found.append(await _outcome(map_seen(store.read_all()), there))
    backward = map_seen(store.read("a", backward=True, bodies=False))
    found.append(await _outcome(backward, own["a"][::-1]))
    ends = {(one.stream, one.position, one.digest) for one in (one[-1] for one in own.values())}
    found.append(await _outcome(_heads(store), sorted(ends)))
    return Counter(found)


async def map_seen(records: AsyncIterator[Record]) -> list[Seen]:
    return [Seen.of(one) async for one in records]


async def _heads(store: EventStore) -> list[tuple[str, int, bytes]]:
    return sorted([(one.stream, one.head, one.digest) async for one in store.streams()])


async def _outcome(asked: Awaitable[object], wanted: list[Any]) -> Outcome:
    try:
        answer = await asked
    except EventctxError as error:
        print(f"  {type(error).__name__}: {str(error)[:160]}")
        return "an error"
    if answer == wanted:
        return "whole"
    assert isinstance(answer, list)
    print(f"  silent: {len(answer)} instead of {len(wanted)}")
    return "silently short"


async def _read(store: EventStore, session: str) -> list[Seen]:
    found = []
    async for record in store.read(session):
        for body in record.bodies:
            assert body.data is not None and body.salt is not None
            assert body_digest(body.salt, body.data) == body.digest, "changed words were read"
        found.append(Seen.of(record))
    return found
