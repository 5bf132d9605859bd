"""Export and import of one session as JSON Lines: records verbatim, with ids, times and digests.

The first line is a header, each further line a record. Stored JSON is embedded as it is, byte for
byte; bytes that are no single-line JSON are written as text, or as base64. A fork is exported with
the records that it inherits, so the file is complete and its chain verifies from the first
record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any, Final

import msgspec

from eventctx.errors import InvalidMessage, MalformedTranscript, StreamExists
from eventctx.log.arguments import LAST
from eventctx.log.codec import HarnessBodies, stored_harness_bodies
from eventctx.log.record import GENESIS, Body, Draft, Record, body_digest, chain_digest
from eventctx.log.store import NO_STREAM, EventStore, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts

FORMAT: Final = 1
BATCH: Final = 256


class Header(msgspec.Struct, frozen=True):
    """The first line of an export: format, session, number of records, digest of the last one."""

    eventctx: int
    session: str
    records: int
    digest: str


_NO_JSON: Final = msgspec.Raw()

_BROKEN: Final = (msgspec.DecodeError, ValueError, RecursionError)
"""The errors of bytes that are no line of an export: no JSON, no UTF-8, or nested too deeply."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=LAST)]
_Small = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Bytes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stored bytes in the first of three forms that can hold them."""

    json: msgspec.Raw = _NO_JSON
    text: str | None = None
    base64: bytes | None = None


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    digest: str
    facts: bytes = b""
    salt: str | None = None
    data: _Bytes | None = None
    erased: bool = False


class _Line(msgspec.Struct, frozen=True, omit_defaults=True):
    position: _Number
    id: str
    type: str
    version: _Small
    time: _Number
    payload: _Bytes
    digest: str
    bodies: list[_Body] = []
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: _Small | None = None


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_header = msgspec.json.Decoder(Header).decode
_is_json = msgspec.json.Decoder(msgspec.Raw).decode


async def export_lines(store: EventStore, info: StreamInfo) -> AsyncIterator[bytes]:
    """The lines of an export, without line ends."""
    yield _encode(Header(FORMAT, info.stream, info.head + 1, info.digest.hex()))
    async for record in store.read(info.stream, stop=info.head):
        yield _encode(_line(record))


def looks_like_export(first_line: bytes) -> bool:
    """Whether a file with this first line is an export of eventctx."""
    try:
        _decode_header(first_line)
    except _BROKEN:
        return False
    return True


def read_header(line: bytes) -> Header:
    """The header of an export.

    Raises MalformedTranscript for a line that is no header, and for a later format.
    """
    try:
        header = _decode_header(line)
    except _BROKEN as error:
        raise MalformedTranscript(
            f"line 1: expected an eventctx export's header: {error}"
        ) from error
    if header.eventctx > FORMAT:
        raise MalformedTranscript(
            f"the export has format {header.eventctx}, this release reads up to {FORMAT}: "
            "update eventctx"
        )
    return header


def read_drafts(lines: Iterable[bytes]) -> Iterator[tuple[Draft, bytes]]:
    """Drafts and digests of the lines after the header, each checked against the chain.

    Raises MalformedTranscript for the first line that is no record or breaks the chain.
    """
    previous = GENESIS
    for number, line in enumerate(lines, start=2):
        position = number - 2
        try:
            stored = _decode_line(line)
            draft = _draft(stored)
            digest = bytes.fromhex(stored.digest)
        except (*_BROKEN, InvalidMessage) as error:
            raise MalformedTranscript(f"line {number}: expected a record: {error}") from error
        if stored.position != position or chain_digest(previous, position, draft) != digest:
            raise MalformedTranscript(
                f"line {number}: the record at position {stored.position} does not follow from "
                "the line before: the file was edited or lines are missing; export it again"
            )
        for body in draft.bodies:
            whole = body.data is not None and body.salt is not None
            if whole and body_digest(body.salt or b"", body.data or b"") != body.digest:
                raise MalformedTranscript(f"line {number}: a body does not have its digest")
        previous = digest
        yield draft, digest


async def import_drafts(
    store: EventStore, stream: str, drafts: Iterable[tuple[Draft, bytes]]
) -> int:
    """Append the records that the store does not hold yet; returns their number.

    Raises StreamExists when the stream holds other records.
    """
    info = await store.head(stream)
    known = -1 if info is None else info.head
    added = 0
    batch: list[Draft] = []
    position = -1
    for draft, digest in drafts:
        position += 1
        if position <= known:
            if position == known and info is not None and info.digest != digest:
                raise StreamExists(stream)
            continue
        batch.append(draft)
        if len(batch) == BATCH:
            await _append(store, stream, position - len(batch), batch)
            added += len(batch)
            batch = []
    if batch:
        await _append(store, stream, position - len(batch), batch)
        added += len(batch)
    if position < known:
        await _check_prefix(store, stream, position, digest if position >= 0 else GENESIS)
    return added


async def _append(store: EventStore, stream: str, version: int, batch: list[Draft]) -> None:
    await store.append(stream, batch, NO_STREAM if version < 0 else version)


async def _check_prefix(store: EventStore, stream: str, position: int, digest: bytes) -> None:
    """Raise StreamExists unless a stream that is longer than the file begins with its records."""
    async for record in store.read(stream, start=position, stop=position, bodies=False):
        if record.digest != digest:
            raise StreamExists(stream)


def _line(record: Record) -> _Line:
    return _Line(
        position=record.position,
        id=record.id.hex(),
        type=record.type,
        version=record.version,
        time=record.time,
        payload=_bytes(record.payload),
        digest=record.digest.hex(),
        bodies=[
            _Body(
                body.digest.hex(),
                body.facts,
                None if body.salt is None else body.salt.hex(),
                None if body.data is None else _bytes(body.data),
                body.erased,
            )
            for body in record.bodies
        ],
        turn_id=record.turn_id,
        span_id=record.span_id,
        parent_span_id=record.parent_span_id,
        iteration=record.iteration,
    )


def _bytes(data: bytes) -> _Bytes:
    if data[:1] in (b"{", b"["):
        try:
            raw = _is_json(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            if bytes(raw) == data and b"\n" not in data and b"\r" not in data:
                return _Bytes(json=raw)
    try:
        return _Bytes(text=data.decode())
    except UnicodeDecodeError:
        return _Bytes(base64=data)


def _draft(line: _Line) -> Draft:
    payload = _plain(line.payload) or b""
    origins = stored_harness_bodies(line.type, payload)
    return Draft(
        bytes.fromhex(line.id),
        line.type,
        line.version,
        line.time,
        payload,
        tuple(
            Body(
                bytes.fromhex(body.digest),
                _facts(body, index, origins),
                _plain(body.data),
                None if body.salt is None else bytes.fromhex(body.salt),
                body.erased,
            )
            for index, body in enumerate(line.bodies)
        ),
        line.turn_id,
        line.span_id,
        line.parent_span_id,
        line.iteration,
    )


def _facts(body: _Body, index: int, origins: HarnessBodies) -> bytes:
    """Facts read anew from the message, because no digest covers those in the file."""
    if not body.facts or body.data is None:
        return body.facts
    message = decode_body(_plain(body.data) or b"")
    by_harness, observation = index in origins.harness, index in origins.observations
    return encode_facts(read_facts(message, by_harness=by_harness, observation=observation))


def _plain(stored: Any) -> bytes | None:
    if stored is None:
        return None
    if stored.json is not _NO_JSON:
        return bytes(stored.json)
    return stored.base64 if stored.text is None else stored.text.encode()  # type: ignore[no-any-return]
