"""How an append becomes messages: units of records, and the bodies behind them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.log.record import Draft, Record, place
from eventctx.stores.jetstream.batch import Outgoing, outgoing
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    UNIT_BYTES,
    UNIT_RECORDS,
    Message,
    Names,
    Origin,
    Registered,
    StoredBody,
    Unit,
    encode,
    split_body,
    split_unit,
    stored,
)

BATCH_BYTES: Final = 16 * 2**20
"""About the most bytes of one atomic batch: the servers keep it in memory until it ends."""

_ROOM: Final = 8
"""Messages of a batch that are left for what stands beside the units."""


class Placed(NamedTuple):
    """A unit, and which of the messages is its last."""

    unit: Unit
    offset: int


class Packed(NamedTuple):
    """The messages of an append, in order, and the units in them."""

    messages: list[Outgoing]
    units: list[Placed]
    size: int

    @property
    def fits(self) -> bool:
        """Whether one atomic batch takes it."""
        return len(self.messages) <= BATCH_MESSAGES - _ROOM and self.size <= BATCH_BYTES


class Appending(NamedTuple):
    """Records at their place in a session: drafts, their digests, and where the first goes."""

    session: str
    first: int
    drafts: Sequence[Draft]
    digests: Sequence[bytes]
    origin: Origin | None = None
    deleted: bool = False


BodyKey = tuple[int, int]
"""The draft's number in the append, and the body's number in the draft."""


def pack(names: Names, appending: Appending, most: int) -> Packed:
    """The messages of an append, where a message takes ``most`` bytes."""
    subject = names.of_session("b", appending.session)
    messages: list[Outgoing] = []
    units: list[Placed] = []
    for start, stop in _groups(appending.drafts):
        bodies: list[Outgoing] = []
        kept: list[list[StoredBody]] = []
        for draft in appending.drafts[start:stop]:
            row: list[StoredBody] = []
            for body in draft.bodies:
                parts = split_body(body, most)
                bodies += [outgoing(subject, part.headers, part.payload) for part in parts]
                row.append(StoredBody(body.digest, len(parts)))
            kept.append(row)
        unit = _unit(appending, start, stop, kept)
        messages += _of_unit(names, appending.session, unit, most)
        units.append(Placed(unit, len(messages) - 1))
        messages += bodies
    return Packed(messages, units, sum(message.size for message in messages))


def pack_without_bodies(
    names: Names, appending: Appending, most: int, places: Mapping[BodyKey, StoredBody]
) -> Packed:
    """The messages of an append whose bodies were written before, at ``places``.

    Raises InvalidSetting for one that no batch can take.
    """
    messages: list[Outgoing] = []
    units: list[Placed] = []
    for start, stop in _groups(appending.drafts):
        kept = [
            [places[number, index] for index in range(len(appending.drafts[number].bodies))]
            for number in range(start, stop)
        ]
        unit = _unit(appending, start, stop, kept)
        messages += _of_unit(names, appending.session, unit, most)
        units.append(Placed(unit, len(messages) - 1))
    packed = Packed(messages, units, sum(message.size for message in messages))
    if len(messages) > BATCH_MESSAGES - _ROOM:
        raise InvalidSetting(
            f"append to {appending.session!r}: expected records that fit into "
            f"{BATCH_MESSAGES - _ROOM} messages, found {len(messages)}; append them in parts"
        )
    return packed


def bodies_before(
    names: Names, appending: Appending, most: int
) -> Iterator[tuple[BodyKey, StoredBody, list[Outgoing]]]:
    """The bodies of an append as messages that are written before its unit."""
    subject = names.of_session("p", appending.session)
    for number, draft in enumerate(appending.drafts):
        for index, body in enumerate(draft.bodies):
            parts = split_body(body, most)
            messages = [outgoing(subject, part.headers, part.payload) for part in parts]
            yield (number, index), StoredBody(body.digest, len(parts)), messages


def registered(
    names: Names, session: str, origin: Origin, *, deleted: bool = False, records: int = 0
) -> Outgoing:
    """The entry of the registry for a session that is created or deleted."""
    entry = Registered(session, origin.created, origin.parent, origin.forked_at, deleted, records)
    return outgoing(names.of_shard("n", names.shard(session)), {}, encode(entry))


def records_of(
    names: Names, appending: Appending, units: Sequence[Placed], first_sequence: int
) -> tuple[Record, ...]:
    """The records of an append whose messages lie from ``first_sequence`` on."""
    shard = names.shard(appending.session)
    records: list[Record] = []
    for unit, offset in units:
        begins = names.global_position(shard, first_sequence + offset, 0)
        for ordinal in range(len(unit.records)):
            number = len(records)
            records.append(
                place(
                    appending.drafts[number],
                    appending.session,
                    appending.first + number,
                    begins + ordinal,
                    appending.digests[number],
                )
            )
    return tuple(records)


def _groups(drafts: Sequence[Draft]) -> Iterator[tuple[int, int]]:
    """Which drafts go into one unit: from, and up to but without."""
    if len(drafts) == 1:
        yield 0, 1
        return
    start, size = 0, 0
    for number, draft in enumerate(drafts):
        own = 256 + len(draft.payload) + 40 * len(draft.bodies)
        if number > start and (number - start >= UNIT_RECORDS or size + own > UNIT_BYTES):
            yield start, number
            start, size = number, 0
        size += own
    yield start, len(drafts)


def _unit(
    appending: Appending, start: int, stop: int, bodies: Sequence[Sequence[StoredBody]]
) -> Unit:
    rows = [
        stored(draft, digest, kept)
        for draft, digest, kept in zip(
            appending.drafts[start:stop], appending.digests[start:stop], bodies, strict=True
        )
    ]
    origin = appending.origin if start == 0 else None
    return Unit(appending.first + start, tuple(rows), origin, appending.deleted)


def _of_unit(names: Names, session: str, unit: Unit, most: int) -> list[Outgoing]:
    subject = names.of_session("r", session)
    parts: list[Message] = split_unit(encode(unit), most)
    return [outgoing(subject, part.headers, part.payload) for part in parts]
