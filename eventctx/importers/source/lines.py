"""From a file to JSON records: lines, two records on one line, half a last line, repairs.

Every JSONL parser runs on ``read_rows``. The fast path costs one decode per line; everything that
is odd about a line is left to the slow path behind it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from eventctx.importers.source.items import FileLine, Item, Raw, Session, Waiting, Warned

Row = TypeVar("Row")

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON, no UTF-8, or nested too deeply."""

_BOM = b"\xef\xbb\xbf"
_BUFFER_BYTES = 1 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_scanner = json.JSONDecoder()
_decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


def read_lines(path: Path) -> Iterator[FileLine]:
    """Lines of a file, one at a time; a byte order mark at its start is left out."""
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        for number, data in enumerate(file, 1):
            if number == 1 and data.startswith(_BOM):
                data = data[len(_BOM) :]
            end = data.endswith(b"\n")
            yield FileLine(number, data.rstrip(b"\r\n") if end else data, end)


def read_rows(
    lines: Iterable[FileLine],
    decode: Callable[[bytes], Row],
    handle: Callable[[int, bytes, Row], Iterable[Item]],
) -> Iterator[Item]:
    """Decode each record of each line and yield what ``handle(line, data, row)`` makes of it."""
    for line in lines:
        if not line.data or line.data.isspace():
            continue
        try:
            row = decode(line.data)
        except BROKEN:
            yield from _slowly(line, decode, handle)
            continue
        yield from handle(line.number, line.data, row)


def session_first(items: Iterable[Item]) -> Iterator[Item]:
    """The same items with the ``Session`` first; only what waits, if there is none.

    What stands before the line that names the session is held back until then.
    """
    held: list[Item] = []
    source = iter(items)
    for item in source:
        if isinstance(item, Session):
            yield item
            yield from held
            yield from source
            return
        held.append(item)
    yield from (item for item in held if isinstance(item, Waiting))


def _slowly(
    line: FileLine,
    decode: Callable[[bytes], Row],
    handle: Callable[[int, bytes, Row], Iterable[Item]],
) -> Iterator[Item]:
    number = line.number
    parts, rest = split_records(line.data)
    for part in parts:
        try:
            row = decode(part)
        except BROKEN:
            value, _ = read_value(part)
            try:
                row = decode(encode(value))
            except BROKEN:
                if not isinstance(value, dict) and not line.terminated:
                    # A bare number or word may be the beginning of a longer one.
                    yield Waiting(number, "the last line may be half written")
                    return
                yield Raw(number, _kind_of(value), part, understood=False)
                yield Warned(number, "a record of a shape that its format does not have")
                continue
            yield Warned(number, "text that JSON or UTF-8 cannot hold was replaced")
            yield from _with_original(number, part, handle(number, encode(value), row))
        else:
            yield from handle(number, part, row)
    if not rest:
        return
    if line.terminated:
        yield Raw(number, "unreadable", rest, understood=False)
        yield Warned(number, "not readable as JSON")
    else:
        yield Waiting(number, "the last line is half written")


def _with_original(number: int, part: bytes, items: Iterable[Item]) -> Iterator[Item]:
    """The items of a repaired record, with the record as it was in place of its rest."""
    kept = False
    for item in items:
        if isinstance(item, Raw) and item.line == number and not item.kind.endswith(".replaced"):
            kept = True
            yield Raw(number, item.kind.replace(".envelope", ".repaired"), part, item.understood)
        else:
            yield item
    if not kept:
        yield Raw(number, "repaired", part)


def _kind_of(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) and kind else "unreadable"


def split_records(data: bytes) -> tuple[list[bytes], bytes]:
    """Cut ``{…}{…}`` into its records; the second value is what is no whole record."""
    text = data.decode("utf-8", errors="surrogateescape")
    parts: list[bytes] = []
    start = 0
    while True:
        while start < len(text) and text[start].isspace():
            start += 1
        if start == len(text):
            return parts, b""
        try:
            _, end = _scanner.raw_decode(text, start)
        except (ValueError, RecursionError):
            return parts, text[start:].encode("utf-8", errors="surrogateescape")
        parts.append(text[start:end].encode("utf-8", errors="surrogateescape"))
        start = end


def read_value(data: bytes) -> tuple[Any, bool]:
    """The value of JSON text, and whether it had to be repaired to be storable.

    Programs cut texts in the middle of a character pair and write ``\\ud83d`` alone, write NaN,
    or write bytes that are no UTF-8. Lone halves become U+FFFD, NaN and infinities null, integers
    beyond 64 bits text. ValueError when it is no JSON at all.
    """
    try:
        value = _decode(data)
    except BROKEN:
        try:
            return _repaired(json.loads(data.decode("utf-8", errors="replace"))), True
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
    return value, False


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_repaired(item) for item in value]
    if isinstance(value, dict):
        return {_repaired(key): _repaired(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX:
        return str(value)
    return value


def nanoseconds(text: object) -> int | None:
    """UTC nanoseconds of an ISO 8601 time or of seconds since 1970; None when it is neither.

    A time without a zone is taken as UTC: transcripts that lack it are written by programs.
    """
    if isinstance(text, str):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        past = moment - _EPOCH
        return _positive(
            ((past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds) * 1_000
        )
    if isinstance(text, int | float) and not isinstance(text, bool) and math.isfinite(text):
        return _positive(round(text * 1_000_000) * 1_000)
    return None


def _positive(time: int) -> int | None:
    # Before 1970 or beyond what 63 bits of nanoseconds hold (2262) is a broken clock.
    return time if 0 < time < 2**63 else None


def count(value: object) -> int:
    """A token count as a provider wrote it; 0 for everything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def text_or_none(value: object) -> str | None:
    """A field that should be text; None for everything else."""
    return value if isinstance(value, str) else None


def object_or_empty(value: object) -> dict[str, Any]:
    """A field that should be an object; an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """A field that should be a list; an empty one for everything else."""
    return value if isinstance(value, list) else []
