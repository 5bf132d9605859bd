"""Claude Code's records of the requests that it sent (seen from 2.1.330 on; the format is its own).

- ``api-request-shape``: system prompt and tool definitions, once for every pair of them.
- ``api-request-blob``: a message that is not an assistant's, once; none for one that was sent as it
  is in the transcript.
- ``api-request``: the first ``keep`` messages of request ``base``, then those with the hashes
  ``tail``; its parameters, and where its ``cache_control`` marks stood.

Shapes and messages are named by their digest (``messages/encoding.py``), which is made again here.
The format is not described anywhere, so a record that is not as expected is kept as raw lines and
named; its request then stays a reconstructed one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.importers.source.items import Item, RecordedContent, RecordedRequest
from eventctx.importers.source.lines import not_understood
from eventctx.importers.source.values import BROKEN, read_value
from eventctx.log.wire import CacheMark
from eventctx.messages.encoding import as_sent, digest_of, sent_digest
from eventctx.messages.facts_reader import read_facts

KINDS: Final = frozenset(("api-request-shape", "api-request-blob", "api-request"))


class _Shape(msgspec.Struct):
    shapeHash: str  # noqa: N815 - the format's own names, here and below
    shape: msgspec.Raw


class _Blob(msgspec.Struct):
    hash: str
    message: msgspec.Raw


class _Mark(msgspec.Struct):
    path: tuple[str | int, ...]
    value: Any


class _Request(msgspec.Struct):
    id: str
    tail: tuple[str, ...]
    keep: int
    params: dict[str, Any]
    shapeHash: str  # noqa: N815
    base: str | None = None
    cacheControl: tuple[_Mark, ...] = ()  # noqa: N815
    cut: Any = None


_decode_shape: Final = msgspec.json.Decoder(_Shape).decode
_decode_blob: Final = msgspec.json.Decoder(_Blob).decode
_decode_request: Final = msgspec.json.Decoder(_Request).decode

Cut = tuple[bytes, bytes]
"""A line, and the value in it that is stored elsewhere."""


def request_items(line: int, time: int | None, kind: str, data: bytes) -> tuple[Cut, list[Item]]:
    """The items of a record of ``KINDS``, and what of it they hold.

    The caller keeps the rest of the line. A record that is not as expected is held by no item but
    ``Raw`` and ``Warned``; nothing of it is left over then.
    """
    try:
        if kind == "api-request-shape":
            return _shape(line, time, data)
        if kind == "api-request-blob":
            return _blob(line, time, data)
        return _request(line, time, data)
    except (*BROKEN, ValueError, InvalidMessage) as error:
        return (b"", b""), list(not_understood(line, kind, data, f"{kind}: {error}"))


def _shape(line: int, time: int | None, data: bytes) -> tuple[Cut, list[Item]]:
    row = _decode_shape(data)
    shape = _whole(row.shape)
    if not isinstance(shape, dict) or not shape.keys() <= {"system", "tools"}:
        raise ValueError("expected a shape of system and tools, found another one")
    if not isinstance(shape.get("system"), str | list | None):
        raise ValueError("expected a system prompt of text or blocks, found another value")
    if not isinstance(shape.get("tools"), list | None):
        raise ValueError("expected a list of tools, found another value")
    _same(row.shapeHash, digest_of(shape))
    items: list[Item] = [
        RecordedContent(line, time, kind, row.shapeHash, digest_of(shape[kind]), shape[kind])
        for kind in ("system", "tools")
        if kind in shape
    ]
    return (data, bytes(row.shape)), items


def _blob(line: int, time: int | None, data: bytes) -> tuple[Cut, list[Item]]:
    row = _decode_blob(data)
    message = _whole(row.message)
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ValueError("expected a message with a role, found another value")
    digest = sent_digest(message)
    _same(row.hash, digest)
    read_facts(as_sent(message))
    content = RecordedContent(line, time, "message", row.hash, digest, message)
    return (data, bytes(row.message)), [content]


def _request(line: int, time: int | None, data: bytes) -> tuple[Cut, list[Item]]:
    row = _decode_request(data)
    tail = tuple([bytes.fromhex(one) for one in row.tail])
    if row.cut or row.keep < 0 or (row.keep and row.base is None):
        raise ValueError("expected a whole request, found one whose messages were cut")
    # No digest that can be made again covers these fields.
    if not (tail or row.keep) or not isinstance(row.params.get("model"), str):
        raise ValueError("expected a request with messages and a model, found one without")
    digest = digest_of(row.params)
    marks = tuple([CacheMark(one.path, one.value) for one in row.cacheControl])
    return (data, b""), [
        RecordedContent(line, time, "parameters", digest.hex(), digest, row.params),
        RecordedRequest(
            line,
            time,
            row.id,
            tail,
            row.base,
            row.keep,
            row.shapeHash,
            digest.hex(),
            marks,
        ),
    ]


def _whole(raw: msgspec.Raw) -> Any:
    value, repaired = read_value(bytes(raw))
    if repaired:
        raise ValueError(repaired)
    return value


def _same(named: str, made: bytes) -> None:
    if named != made.hex():
        raise ValueError(f"expected contents of digest {named:.12}, found {made.hex():.12}")
