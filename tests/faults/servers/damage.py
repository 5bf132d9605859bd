"""One machine's copy is damaged while it is down, and then it leads: what do readers see?

Every answer must be whole or an error. A short answer without an error is the worst there is:
nobody looks for what nobody misses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from eventctx.errors import EventctxError
from eventctx.log.record import body_digest
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.histories import Seen

Harm = Callable[[Path, random.Random], None]
Outcome = Literal["whole", "an error", "silently short"]

SESSIONS = ("a", "b", "c")


def flip_a_bit(file: Path, chance: random.Random) -> None:
    """Change one bit of a file."""
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut_the_end(file: Path, chance: random.Random) -> None:
    """Leave a file half of its length, or less, at a multiple of a page's."""
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(chance.randrange(size // 4, size // 2) // 8192 * 8192)


def delete(file: Path, _: random.Random) -> None:
    """Delete a file."""
    file.unlink()


HARMS: tuple[Harm, ...] = (flip_a_bit, cut_the_end, delete)


async def fill(store: EventStore, appends: int = 300) -> list[Seen]:
    """Append to three sessions in turn, with bodies; returns what was acknowledged, in order."""
    there: list[Seen] = []
    heads = dict.fromkeys(SESSIONS, -1)
    for number in range(appends):
        session = SESSIONS[number % len(SESSIONS)]
        drafts = [make_draft(f"{number} " * 60), make_draft("x" * 900)]
        expected = heads[session] if heads[session] >= 0 else NO_STREAM
        appended = await store.append(session, drafts, expected)
        there += map(Seen.of, appended.records)
        heads[session] += len(drafts)
    return there


async def judge(store: EventStore, there: list[Seen]) -> dict[str, Outcome]:
    """What each way of reading makes of a damaged store; ``there`` is what was acknowledged."""
    found: dict[str, Outcome] = {}
    for session in SESSIONS:
        own = [one for one in there if one.stream == session]
        found[f"read {session}"] = await _outcome(_read(store, session), own)
    found["read_all"] = await _outcome(_read_all(store), there)
    found["backward"] = await _outcome(_backward(store), [o for o in there if o.stream == "a"])
    found["heads"] = await _outcome(_heads(store), sorted(_ends(there)))
    return found


async def _outcome(asked: Awaitable[object], wanted: object) -> Outcome:
    try:
        answer = await asked
    except EventctxError as error:
        print(f"  {type(error).__name__}: {str(error)[:160]}")
        return "an error"
    return "whole" if answer == wanted else "silently short"


async def _read(store: EventStore, session: str) -> list[Seen]:
    found = []
    async for record in store.read(session):
        for body in record.bodies:
            assert body.data is not None
            assert body.salt is not None
            assert body_digest(body.salt, body.data) == body.digest, "changed words were read"
        found.append(Seen.of(record))
    return found


async def _read_all(store: EventStore) -> list[Seen]:
    return [Seen.of(record) async for record in store.read_all()]


async def _backward(store: EventStore) -> list[Seen]:
    return [Seen.of(record) async for record in store.read("a", backward=True, bodies=False)][::-1]


async def _heads(store: EventStore) -> list[tuple[str, int, bytes]]:
    return sorted([(one.stream, one.head, one.digest) async for one in store.streams()])


def _ends(there: list[Seen]) -> list[tuple[str, int, bytes]]:
    last = {one.stream: one for one in there}
    return [(one.stream, one.position, one.digest) for one in last.values()]


def summed(outcomes: list[dict[str, Outcome]]) -> Counter[str]:
    """How often which outcome came of all ways of reading."""
    return Counter(one for outcome in outcomes for one in outcome.values())
