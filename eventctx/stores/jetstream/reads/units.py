"""Units and bodies put together from the messages of one session, as they lie in JetStream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from eventctx.log.record import Body, Record
from eventctx.stores.jetstream.wire.collecting import StoredMessage
from eventctx.stores.jetstream.wire.layout import (
    BodyPlace,
    Names,
    Unit,
    WireMessage,
    born_erased,
    decode_unit,
    joined_body,
    joined_facts,
    part_of,
    places,
    restored,
)

Erased = Mapping[tuple[int, int], bytes]
"""The bodies of a session that were erased, by position and number, and what facts they keep."""

_BODIES: Final = ("b", "p")


class Incomplete(Exception):
    """Messages are missing that were stored: those of ``position``, as ``problem`` says.

    ``sequence`` is the first that is missing, if that is known.
    """

    def __init__(self, position: int, problem: str, sequence: int = 0) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem
        self.sequence = sequence


class PlacedUnit(NamedTuple):
    """A unit whose messages are those from ``begins`` to ``sequence``."""

    unit: Unit
    begins: int
    sequence: int


class Gathered:
    """Messages of one session, in order; the units among them, and messages of their bodies.

    Parts of a unit that began before the first message are passed over.
    """

    def __init__(self) -> None:
        self.units: list[PlacedUnit] = []
        self.bodies: dict[int, StoredMessage] = {}
        self.seen = 0
        """The last sequence: a message up to there that is not here was not stored."""
        self._parts: list[StoredMessage] = []

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Take the next messages. Raises Incomplete for a unit that cannot be read."""
        for message in messages:
            self.seen = message.sequence
            kind = message.subject.rsplit(".", 2)[-2]
            if kind == "r":
                self._unit(message)
            elif kind in _BODIES:
                self.bodies[message.sequence] = message

    def _unit(self, message: StoredMessage) -> None:
        position = self.units[-1].unit.last + 1 if self.units else -1
        try:
            number, count = part_of(message.ours)
            if number != len(self._parts) + 1:
                self._parts.clear()
                if number != 1:
                    return
            self._parts.append(message)
            if number < count:
                return
            unit = decode_unit(b"".join([part.data for part in self._parts]))
            if not unit.records:
                raise ValueError("expected records, found none")
        except (ValueError, msgspec.MsgspecError) as error:
            raise Incomplete(position, f"message {message.sequence} is damaged: {error}") from error
        self.units.append(PlacedUnit(unit, self._parts[0].sequence, message.sequence))
        self._parts.clear()

    @property
    def begun(self) -> int | None:
        """Where a unit begins of which parts are still to come; None if there is no such unit."""
        return self._parts[0].sequence if self._parts else None

    def missing(self, unit: PlacedUnit, low: int, high: int, erased: Erased) -> int | None:
        """The first sequence of a body of the unit's records that is not here, and not erased.

        Of the records from ``low`` to ``high``.
        """
        for place in places(unit.unit, unit.sequence):
            if low <= place.position <= high and (place.position, place.number) not in erased:
                for sequence in range(place.sequence, place.sequence + place.messages):
                    if sequence not in self.bodies:
                        return sequence
        return None


def records_of(
    unit: PlacedUnit,
    gathered: Gathered,
    erased: Erased,
    names: Names,
    shard: int,
    stream: str,
    low: int,
    high: int,
    data: bool,
) -> list[Record]:
    """The records of a unit from position ``low`` to ``high``, as those of ``stream``.

    Raises Incomplete when messages of a body are missing or damaged.
    """
    by_record: dict[int, tuple[Body, ...]] = {}
    for place in places(unit.unit, unit.sequence):
        position = place.position
        if low <= position <= high:
            body = _body(place, gathered.bodies, erased, data)
            by_record[position] = (*by_record.get(position, ()), body)
    first = unit.unit.first
    base = names.global_position(shard, unit.sequence, 0) - first
    records = unit.unit.records
    return [
        restored(
            records[position - first],
            stream,
            position,
            base + position,
            by_record.get(position, ()),
        )
        for position in range(max(low, first), min(high, unit.unit.last) + 1)
    ]


def _body(
    place: BodyPlace, bodies: Mapping[int, StoredMessage], erased: Erased, data: bool
) -> Body:
    facts = erased.get((place.position, place.number)) if erased else None
    if facts is not None:
        return Body(place.digest, facts, erased=True)
    try:
        messages = [bodies[place.sequence + number] for number in range(place.messages)]
        headers = [message.ours for message in messages]
        if data:
            pairs = zip(headers, messages, strict=True)
            return joined_body(place.digest, [WireMessage(own, found.data) for own, found in pairs])
        return Body(place.digest, joined_facts(headers), erased=born_erased(headers[0]))
    except KeyError as error:
        problem = f"message {error} with its content {place.number} is missing"
        raise Incomplete(place.position, problem, int(error.args[0])) from error
    except ValueError as error:
        problem = f"the message with its content {place.number} is damaged: {error}"
    raise Incomplete(place.position, problem)
