"""The check of a copied session: both are read again, side by side, and the target's with contents.

The source says which digest each record must have; the target's own records must have it by their
fields and contents. What was erased in the source since it was copied is found on the way.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

from eventctx.errors import LogCorrupted
from eventctx.log.integrity import check
from eventctx.log.record import GENESIS, Record, follows
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.queries.copying.meeting import digest_at


class CheckedCopy(NamedTuple):
    """The digest of the last record that both hold, and contents that only the target still has.

    ``erased`` maps their addresses to the facts that the source has left of them.
    """

    digest: bytes
    erased: dict[Address, bytes]


async def check_copy(
    source: EventStore, info: StreamInfo, target: EventStore, last: int
) -> CheckedCopy:
    """Compare a session's own records up to position ``last``. Raises LogCorrupted."""
    forked_at = -1 if info.forked_at is None else info.forked_at
    previous = GENESIS if forked_at < 0 else await digest_at(source, info, forked_at)
    first = forked_at + 1
    erased: dict[Address, bytes] = {}
    wanted: Any = source.read(info.stream, start=first, stop=last, bodies=False)
    found: Any = target.read(info.stream, start=first, stop=last)
    position = forked_at
    async with aclosing(wanted), aclosing(found):
        async for record, there in _pairs(info.stream, wanted, found):
            position += 1
            _check_equal(record, there, position, previous)
            previous = record.digest
            for index, (body, copy) in enumerate(zip(record.bodies, there.bodies, strict=True)):
                if body.erased and not copy.erased:
                    erased[Address(position, index)] = body.facts
    if position != last:
        raise LogCorrupted(info.stream, position + 1, "the record is missing in both stores")
    return CheckedCopy(previous, erased)


async def _pairs(
    stream: str, wanted: AsyncIterator[Record], found: AsyncIterator[Record]
) -> AsyncIterator[tuple[Record, Record]]:
    async for record in wanted:
        there = await anext(found, None)
        if there is None:
            raise LogCorrupted(stream, record.position, "the record is missing in the target")
        yield record, there


def _check_equal(record: Record, there: Record, position: int, previous: bytes) -> None:
    if (record.position, there.position) != (position, position):
        missing = "the source" if record.position != position else "the target"
        raise LogCorrupted(record.stream, position, f"the record is missing in {missing}")
    if there.digest != record.digest or not follows(previous, there):
        raise LogCorrupted(record.stream, position, "the target holds another record")
    bodies = ((Address(position, index), body) for index, body in enumerate(there.bodies))
    check(record.stream, bodies)
