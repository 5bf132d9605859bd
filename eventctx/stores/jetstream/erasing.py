"""Erasures: once an erasure is stored, no reader returns its bodies.

The erasures, the records that report them, and the orders to destroy the messages are one batch. A
store with several shards takes one batch a shard, those with erasures first; a retry of the call
finishes what was begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eventctx.errors import StreamNotFound
from eventctx.log.record import Draft, Record
from eventctx.log.store import ANY, Address, Erasure
from eventctx.stores.jetstream.append import (
    AppendLog,
    Packed,
    QueuedAppend,
    Try,
    UnitAppend,
    appending,
    made_before,
    maybe_made_before,
    pack,
    records_of,
)
from eventctx.stores.jetstream.connection import (
    DOUBTS,
    EXPECTED,
    ApiError,
    Outgoing,
    ServerLink,
    Tries,
    outgoing,
    send,
)
from eventctx.stores.jetstream.destroying import Destroyer, orders_of
from eventctx.stores.jetstream.layout import (
    BATCH_MESSAGES,
    BodyPlace,
    ErasedBody,
    ToDestroy,
    encode,
    places,
)
from eventctx.stores.jetstream.owners import Owned, existing
from eventctx.stores.jetstream.reading import SessionReader
from eventctx.stores.jetstream.writer import JetStreamWriter
from eventctx.stores.rules import sizes

_ERASED_BODIES: Final = 1000
"""Most bodies of one erasure's message."""


@dataclass(slots=True)
class _Plan:
    """The part of an erasure in one shard."""

    erased: dict[str, list[ErasedBody]] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)
    records: list[tuple[QueuedAppend, UnitAppend, Packed, int]] = field(default_factory=list)
    """Each with the sequence of the session's end that it follows."""

    @property
    def bodies(self) -> int:
        """How many bodies it erases."""
        return sum(map(len, self.erased.values()))


class Eraser:
    """Erases bodies; in the store's loop."""

    def __init__(
        self,
        link: ServerLink,
        log: AppendLog,
        reader: SessionReader,
        writer: JetStreamWriter,
        destroyer: Destroyer,
    ) -> None:
        self._link = link
        self._names = link.names
        self._log = log
        self._reader = reader
        self._writer = writer
        self._destroyer = destroyer

    async def erase(
        self, bodies: Mapping[str, Mapping[Address, bytes]], records: Mapping[str, Draft]
    ) -> Erasure:
        async with self._writer.exclusive(records) as forget:
            notes = {
                name: QueuedAppend(name, (draft,), ANY, sizes((draft,)))
                for name, draft in records.items()
            }
            made: dict[str, Record] = {}
            shards: set[int] = set()
            try:
                count = await self._store(bodies, notes, made, shards)
            finally:
                for name in records:
                    forget(name)
        for shard in sorted(shards):
            await self._destroyer.carry_out(shard)
        return Erasure(count, tuple([made[name] for name in records]))

    async def _store(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        notes: Mapping[str, QueuedAppend],
        made: dict[str, Record],
        shards: set[int],
    ) -> int:
        tries = Tries(self._link, "erasing")
        most = 0
        while True:
            plans = await self._plans(bodies, notes, made)
            shards |= {shard for shard, plan in plans.items() if plan.erased}
            most = max(most, sum(plan.bodies for plan in plans.values()))
            try:
                # Shards with erasures first, so that no record reports one that was not made.
                for shard, plan in sorted(plans.items(), key=lambda one: not one[1].erased):
                    await self._send(shard, plan, made)
                return most
            except ApiError as error:
                if not error.conflict and not error.passing:
                    raise self._link.translate(error, "erasing") from error
                await tries.after(error)
            except DOUBTS as error:
                for plan in plans.values():
                    for note, place, _, _ in plan.records:
                        note.tried.append(Try(place.first - 1, place.first))
                await tries.after(error)

    async def _plans(
        self,
        bodies: Mapping[str, Mapping[Address, bytes]],
        notes: Mapping[str, QueuedAppend],
        made: dict[str, Record],
    ) -> dict[int, _Plan]:
        plans: dict[int, _Plan] = {}
        for name, note in notes.items():
            tip = await self._log.tip(name)
            if tip.position < 0:
                raise StreamNotFound(name)
            if name in made:
                continue
            if maybe_made_before(note, tip):
                done = await made_before(self._log, note, tip)
                if done is not None:
                    made[name] = done.records[0]
                    continue
            place = appending(note, tip)
            packed = pack(self._names, place, self._link.client.max_payload)
            plan = plans.setdefault(self._names.shard(name), _Plan())
            plan.records.append((note, place, packed, tip.sequence))
        met: set[tuple[str, int, int]] = set()
        for name, addresses in bodies.items():
            await self._find(name, addresses, plans, met)
        return plans

    async def _find(
        self,
        name: str,
        addresses: Mapping[Address, bytes],
        plans: dict[int, _Plan],
        met: set[tuple[str, int, int]],
    ) -> None:
        """Add the bodies at these addresses to the plans, without those that are erased already."""
        head = await existing(self._reader.heads, name)
        found = await self._reader.bodies(name, list(addresses))
        lineage = await self._reader.owners.lineage(name, head)
        new: dict[str, list[ErasedBody]] = {}
        for (address, facts), body in zip(addresses.items(), found, strict=True):
            owner = _owner(lineage, address.position)
            key = (owner, *address)
            if body.erased or key in met:
                continue
            met.add(key)
            new.setdefault(owner, []).append(ErasedBody(*address, facts))
        for owner, erased in new.items():
            plan = plans.setdefault(self._names.shard(owner), _Plan())
            waste = [] if owner in plan.erased else await self._waste(owner)
            plan.erased.setdefault(owner, []).extend(erased)
            plan.sequences += [*await self._messages(owner, erased), *waste]

    async def _messages(self, owner: str, erased: Sequence[ErasedBody]) -> list[int]:
        """The sequences of the messages of these bodies."""
        found: list[int] = []
        known: dict[tuple[int, int], BodyPlace] = {}
        for body in sorted(erased, key=lambda one: one.position):
            if (body.position, body.index) not in known:
                unit, sequence = await self._reader.unit_at(owner, body.position)
                known = {(one.position, one.number): one for one in places(unit, sequence)}
            place = known[body.position, body.index]
            found += range(place.sequence, place.sequence + place.messages)
        return found

    async def _waste(self, owner: str) -> list[int]:
        """Early bodies of appends that a process began and did not finish."""
        shard, subject = self._names.shard(owner), self._names.of_session("p", owner)
        left: list[int] = []
        sequence = 1
        reads = self._reader.reads
        while (message := await reads.next(shard, subject, sequence)) is not None:
            left.append(message.sequence)
            sequence = message.sequence + 1
        if not left:
            return []
        head = await existing(self._reader.heads, owner)
        position = (await self._reader.owners.beginning(owner, head)).first
        named: set[int] = set()
        while position <= head.position:
            unit, at = await self._reader.unit_at(owner, position)
            for place in places(unit, at):
                named |= set(range(place.sequence, place.sequence + place.messages))
            position = unit.last + 1
        return [sequence for sequence in left if sequence not in named]

    async def _send(self, shard: int, plan: _Plan, made: dict[str, Record]) -> None:
        messages = await self._orders(shard, plan) if plan.erased else []
        batch: list[tuple[UnitAppend, Packed, int]] = []
        for _, place, packed, sequence in plan.records:
            if messages and len(messages) + len(packed.messages) > BATCH_MESSAGES:
                await self._send_batch(messages, batch, made)
                messages, batch = [], []
            packed.messages[0].headers[EXPECTED] = str(sequence)
            batch.append((place, packed, len(messages)))
            messages += packed.messages
        if messages:
            await self._send_batch(messages, batch, made)

    async def _send_batch(
        self,
        messages: Sequence[Outgoing],
        batch: Sequence[tuple[UnitAppend, Packed, int]],
        made: dict[str, Record],
    ) -> None:
        first = await send(self._link, messages)
        for place, packed, offset in batch:
            (made[place.session],) = records_of(self._names, place, packed.units, first + offset)

    async def _orders(self, shard: int, plan: _Plan) -> list[Outgoing]:
        """The erasures of a shard, and the orders to destroy the messages of their bodies."""
        messages: list[Outgoing] = []
        for owner, erased in plan.erased.items():
            subject = self._names.of_session("e", owner)
            last = await self._reader.reads.last(shard, subject)
            parts = [
                outgoing(subject, {}, encode(tuple(erased[start : start + _ERASED_BODIES])))
                for start in range(0, len(erased), _ERASED_BODIES)
            ]
            parts[0].headers[EXPECTED] = str(0 if last is None else last.sequence)
            messages += parts
        orders = orders_of(plan.sequences)
        orders.append(ToDestroy(snapshots=tuple(plan.erased)))
        count = await self._destroyer.count(shard)
        return messages + self._destroyer.orders(shard, count, orders, len(plan.sequences))


def _owner(lineage: Sequence[Owned], position: int) -> str:
    return next(one.owner for one in lineage if one.first <= position <= one.last)
