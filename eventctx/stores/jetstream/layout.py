"""The names of subjects and the form of their messages: the stored format.

``<NAME>`` is the store's name, ``<shard>`` a number, ``<token>`` a session id. The messages of a
session have these subjects, all in the stream ``<NAME>_<shard>``:

- ``<NAME>.<shard>.r.<token>``: units. A unit holds the records of one append, or of a part of
  a long one: up to 1,024, without their bodies. Deleted only with the session.
- ``<NAME>.<shard>.b.<token>``: bodies. Those of a unit's records directly follow the unit, in the
  order of the records. One message holds a body; a large one takes several.
- ``<NAME>.<shard>.p.<token>``: bodies of an append of more messages than one atomic batch takes.
  They are written before the unit, which names the places. Those that no unit names are waste.
- ``<NAME>.<shard>.e.<token>``: erasures of bodies that the session owns. A body is erased from the
  moment at which the erasure is stored; its message is deleted afterwards.
- ``<NAME>.<shard>.f.<token>``: the family: forks that were made of the session, and its deletion.

and the messages of a shard ``<NAME>.<shard>.n`` (registry: sessions created and deleted),
``<NAME>.<shard>.x`` (messages that are still to be destroyed), ``<NAME>.<shard>.d`` (the ledger:
how many messages may be missing), ``<NAME>.<shard>.t`` (fillers of Raft logs) and
``<NAME>.<shard>.g`` (fillers that let the sequences of shards rise together).

Invariants: the messages of a unit and its bodies have consecutive sequences, since a batch is
stored as a whole. The first unit of a session carries its origin. Only the units after the last
one that is marked as ``deleted``, with that one, count. No message is deleted before the ledger
has counted it, so a server that holds fewer messages than that is damaged.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from eventctx.log.record import Body, Draft, Record

LAYOUT: Final = 1
"""The version of all this, stored in the store's first message."""

UNIT_RECORDS: Final = 1024
"""Most records of one unit."""

UNIT_BYTES: Final = 256 * 1024
"""About the most bytes of a unit of several records; one record may be larger."""

BATCH_MESSAGES: Final = 1000
"""Most messages of one atomic batch: the server's limit."""

FACTS: Final = "Ectx-Facts"
ERASED: Final = "Ectx-Erased"
PART: Final = "Ectx-Part"

_HEADER_BYTES: Final = 4096
"""Bytes of a message that are left for headers other than the facts."""

_FACTS_BYTES: Final = 45_000
"""Most bytes of facts in one message: the server takes 64 KiB of headers, encoded."""

_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_SALT_SIZE_BYTES = 2


def token(name: str) -> str:
    """A session id or another name as one token of a subject; ``name_of`` is its inverse.

    Every byte outside of ``A-Za-z0-9_-`` becomes ``=HH``; the empty name is ``=``.
    """
    raw = name.encode("utf-8", "surrogatepass")
    return _UNSAFE.sub(lambda found: b"=%02X" % found[0][0], raw).decode() or "="


def name_of(written: str) -> str:
    """The name of a token."""
    if written == "=":
        return ""
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), written).encode("latin-1")
    return raw.decode("utf-8", "surrogatepass")


class Names(NamedTuple):
    """The names of streams and subjects of one store."""

    prefix: str
    shards: int

    def shard(self, session: str) -> int:
        if self.shards == 1:
            return 0
        hashed = sha256(session.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(hashed[:8], "big") % self.shards

    def stream(self, shard: int) -> str:
        """The JetStream stream of a shard."""
        return f"{self.prefix}_{shard}"

    def of_session(self, kind: str, session: str) -> str:
        """The subject of a kind of message (``r``, ``b``, ``p``, ``e``, ``f``) of a session."""
        return f"{self.prefix}.{self.shard(session)}.{kind}.{token(session)}"

    def of_shard(self, kind: str, shard: int) -> str:
        """The subject of a kind of message (``n``, ``x``, ``d``, ``t``, ``g``) of a shard."""
        return f"{self.prefix}.{shard}.{kind}"

    @property
    def meta(self) -> str:
        """The stream that holds the store's id and number of shards."""
        return f"{self.prefix}_META"

    @property
    def meta_subject(self) -> str:
        """The subject of the one message of ``meta``."""
        return f"{self.prefix}.meta.store"

    @property
    def caches(self) -> str:
        """The stream of snapshots and checkpoints."""
        return f"{self.prefix}_KV"

    def snapshot(self, session: str, projection: str) -> str:
        """The subject of a snapshot."""
        return f"{self.prefix}.kv.s.{token(session)}.{token(projection)}"

    def checkpoint(self, name: str) -> str:
        """The subject of a checkpoint."""
        return f"{self.prefix}.kv.c.{token(name)}"

    def global_position(self, shard: int, sequence: int, ordinal: int) -> int:
        """The global position of a unit's record; ``sequence`` is that of its last message."""
        return (sequence * self.shards + shard) * UNIT_RECORDS + ordinal

    def place(self, global_position: int) -> tuple[int, int, int]:
        """Shard, sequence and ordinal of a global position."""
        rest, ordinal = divmod(global_position, UNIT_RECORDS)
        sequence, shard = divmod(rest, self.shards)
        return shard, sequence, ordinal


class Meta(msgspec.Struct, frozen=True):
    """The one message of the stream ``<NAME>_META``."""

    layout: int
    store_id: str
    shards: int


class SessionOrigin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The time of a session's creation, and its parent and fork position."""

    created: int
    parent: str | None = None
    forked_at: int | None = None


class StoredBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a body: ``messages`` consecutive messages.

    ``sequence`` is the first of them if it was written before its unit; None: it follows the unit.
    """

    digest: bytes
    messages: int = 1
    sequence: int | None = None


class StoredRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record of a unit; its position follows from its place there."""

    id: bytes
    type: str
    version: int
    time: int
    payload: bytes
    digest: bytes
    bodies: tuple[StoredBody, ...] = ()
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None


class Unit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records that were appended in one step, the first of which has the position ``first``.

    ``origin`` is there in the first unit of a session, and in the one that a deletion left:
    ``deleted``, of one record, before which nothing counts.
    """

    first: int
    records: tuple[StoredRecord, ...]
    origin: SessionOrigin | None = None
    deleted: bool = False

    @property
    def last(self) -> int:
        """The position of the last record."""
        return self.first + len(self.records) - 1


class ErasedBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An erased body, and the facts in its place."""

    position: int
    index: int
    facts: bytes


class Registered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of the registry: a session was created, or ``deleted`` with ``records`` of its own.

    A session is in the registry once, and once more when it was deleted.
    """

    session: str
    created: int
    parent: str | None = None
    forked_at: int | None = None
    deleted: bool = False
    records: int = 0


class Relative(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of a family: a ``fork`` by name, or the ``deletion`` of the session itself."""

    fork: str | None
    at: int = -1

    @property
    def deletion(self) -> bool:
        """Whether the session itself was deleted."""
        return self.fork is None


class DeletionLedger(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many messages of a shard's stream may be missing, because their deletion was ordered."""

    total: int


class ToDestroy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An order to destroy messages: those ``sequences``, or all of a deleted ``session``.

    Of a session it names all messages with a smaller sequence than its own; the unit that the
    deletion left follows it directly. ``snapshots`` are the sessions whose snapshots must go,
    and those of their forks.
    """

    sequences: tuple[int, ...] = ()
    session: str | None = None
    snapshots: tuple[str, ...] = ()


encode: Final = msgspec.msgpack.Encoder().encode
decode_meta: Final = msgspec.json.Decoder(Meta).decode
decode_unit: Final = msgspec.msgpack.Decoder(Unit).decode
decode_erased: Final = msgspec.msgpack.Decoder(tuple[ErasedBody, ...]).decode
decode_registered: Final = msgspec.msgpack.Decoder(Registered).decode
decode_relative: Final = msgspec.msgpack.Decoder(Relative).decode
decode_ledger: Final = msgspec.msgpack.Decoder(DeletionLedger).decode
decode_to_destroy: Final = msgspec.msgpack.Decoder(ToDestroy).decode
"""A payload of another form raises msgspec.MsgspecError."""


class WireMessage(NamedTuple):
    """A message to store, or one that was read: its headers (of ours) and its payload."""

    headers: Mapping[str, str]
    payload: bytes


def to_stored(draft: Draft, digest: bytes, bodies: Sequence[StoredBody]) -> StoredRecord:
    return StoredRecord(
        draft.id,
        draft.type,
        draft.version,
        draft.time,
        draft.payload,
        digest,
        tuple(bodies),
        draft.turn_id,
        draft.span_id,
        draft.parent_span_id,
        draft.iteration,
    )


def to_record(
    record: StoredRecord,
    stream: str,
    position: int,
    global_position: int,
    bodies: tuple[Body, ...],
) -> Record:
    """The record of its stored form and its bodies."""
    return Record(
        stream,
        position,
        global_position,
        record.id,
        record.type,
        record.version,
        record.time,
        record.payload,
        bodies,
        record.turn_id,
        record.span_id,
        record.parent_span_id,
        record.iteration,
        record.digest,
    )


def split_unit(encoded: bytes, most: int) -> list[WireMessage]:
    """The messages of an encoded unit, where a message takes ``most`` bytes."""
    room = max(most - _HEADER_BYTES, most // 2)
    if len(encoded) <= room:
        return [WireMessage({}, encoded)]
    parts = [encoded[start : start + room] for start in range(0, len(encoded), room)]
    return [
        WireMessage({PART: f"{number}/{len(parts)}"}, part) for number, part in enumerate(parts, 1)
    ]


def part_of(headers: Mapping[str, str] | None) -> tuple[int, int]:
    """Which part of how many a message is, from 1; raises ValueError for another form."""
    said = None if headers is None else headers.get(PART)
    if said is None:
        return 1, 1
    number, _, count = said.partition("/")
    return int(number), int(count)


def split_body(body: Body, most: int) -> list[WireMessage]:
    """The messages of a body, at least one, where a message takes ``most`` bytes."""
    facts_room = min(_FACTS_BYTES, most // 4)
    if body.erased:
        payload = b""
    else:
        salt, data = body.salt or b"", body.data or b""
        payload = b"".join((len(salt).to_bytes(_SALT_SIZE_BYTES, "big"), salt, data))
    pieces: list[tuple[bytes, bytes]] = []
    facts = body.facts
    while not pieces or facts or payload:
        some, facts = facts[:facts_room], facts[facts_room:]
        room = max(most - _HEADER_BYTES - len(some) * 4 // 3, most // 4)
        pieces.append((some, payload[:room]))
        payload = payload[room:]
    messages = []
    for number, (some, data) in enumerate(pieces, 1):
        headers = {FACTS: b64encode(some).decode()} if some else {}
        if len(pieces) > 1:
            headers[PART] = f"{number}/{len(pieces)}"
        if body.erased:
            headers[ERASED] = "1"
        messages.append(WireMessage(headers, data))
    return messages


def joined_facts(messages: Iterable[Mapping[str, str] | None]) -> bytes:
    """The facts of a body, from the headers of its messages. Raises ValueError."""
    return b"".join(
        a2b_base64(headers[FACTS], strict_mode=True)
        for headers in messages
        if headers is not None and FACTS in headers
    )


def born_erased(headers: Mapping[str, str] | None) -> bool:
    """Whether a body was erased before it was appended here, as one that was imported."""
    return headers is not None and ERASED in headers


def joined_body(digest: bytes, messages: Sequence[WireMessage]) -> Body:
    """A body of all its messages, in order. Raises ValueError for another form."""
    facts = joined_facts(message.headers for message in messages)
    if messages and born_erased(messages[0].headers):
        return Body(digest, facts, erased=True)
    raw = b"".join([message.payload for message in messages])
    size = int.from_bytes(raw[:_SALT_SIZE_BYTES], "big")
    end = _SALT_SIZE_BYTES + size
    if len(raw) < end:
        raise ValueError(f"expected a body of {end} bytes or more, found {len(raw)}")
    return Body(digest, facts, raw[end:], raw[_SALT_SIZE_BYTES:end])


class BodyPlace(NamedTuple):
    """The messages of one body: ``messages`` from ``sequence`` on; whose body ``number`` it is."""

    position: int
    number: int
    digest: bytes
    sequence: int
    messages: int


def places(unit: Unit, sequence: int) -> Iterator[BodyPlace]:
    """The places of a unit's bodies; ``sequence`` is that of the unit's last message."""
    following = sequence + 1
    for position, record in enumerate(unit.records, unit.first):
        for index, body in enumerate(record.bodies):
            if body.sequence is None:
                at, following = following, following + body.messages
            else:
                at = body.sequence
            yield BodyPlace(position, index, body.digest, at, body.messages)
