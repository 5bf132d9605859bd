"""From a file to JSON records: lines, two records on one line, half a last line, repairs.

Every JSONL parser runs on ``read_rows``. The fast path costs one decode per line; a line that is
odd in any way goes to the slow path (``_slowly``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from eventctx.errors import InvalidMessage, MalformedTranscript, UnreadableFile
from eventctx.importers.source.items import FileLine, Item, Paused, Raw, Session, Waiting, Warned
from eventctx.importers.source.values import BROKEN, encode, read_value
from eventctx.log.usage import MOST_TOKENS
from eventctx.messages.facts import Facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.response_items import is_known

Row = TypeVar("Row")

_BOM = b"\xef\xbb\xbf"
_NUL: Final = re.compile(rb"\0+")
_BUFFER_BYTES = 1 << 20
MAX_BYTES: Final = 64 << 20
"""The longest line, and the largest document, that is read: reading takes several times as much
memory. Providers take requests of up to 32 MB."""

PAUSE: Final = FileLine(0, b"")
"""Stands at the present end of a file that is being written (``growing_lines.py``)."""

_LAST_SECOND = 2**63 // 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_scanner = json.JSONDecoder()


def read_lines(path: Path) -> Iterator[FileLine]:
    """The lines of a file, one at a time, without a byte order mark at its start.

    Raises MalformedTranscript for a line of more than ``MAX_BYTES``.
    """
    with path.open("rb", buffering=_BUFFER_BYTES) as file:
        number = 0
        while data := file.readline(MAX_BYTES + 1):
            number += 1
            if len(data) > MAX_BYTES:
                raise too_large(f"{path.name}, line {number}", "a line")
            yield from lines_of(number, data)


def lines_of(number: int, data: bytes) -> Iterable[FileLine]:
    """A line without its end; where NUL bytes are in it, the lines between them."""
    if b"\0" not in data:
        return (_line_of(number, data),)
    end = data.endswith(b"\n")
    parts = [part for part in _NUL.split(data.rstrip(b"\r\n") if end else data) if part.strip()]
    # A part that NUL bytes follow is never completed.
    ended = end or data.endswith(b"\0")
    found = [_line_of(number, part)._replace(terminated=True) for part in parts or [b""]]
    found[0] = found[0]._replace(nul=data.count(b"\0"))
    return (*found[:-1], found[-1]._replace(terminated=ended))


def _line_of(number: int, data: bytes) -> FileLine:
    """A line without its end, and without a byte order mark at the start of the file."""
    if number == 1 and data.startswith(_BOM):
        data = data[len(_BOM) :]
    end = data.endswith(b"\n")
    return FileLine(number, data.rstrip(b"\r\n") if end else data, end)


def too_large(where: str, what: str) -> MalformedTranscript:
    """The error for a line or a document that would take too much memory."""
    return MalformedTranscript(
        f"{where}: expected {what} of at most {MAX_BYTES >> 20} MiB, found a longer one, and "
        "reading it takes several times as much memory; shorten its images or tool results, or "
        "import the file without it"
    )


def unreadable(path: Path, error: OSError) -> UnreadableFile:
    """The error for a file that the operating system does not let us read."""
    return UnreadableFile(f"{path}: expected a file to read, found {error.strerror or error}")


def parse_rows(
    lines: Iterable[FileLine],
    decode: Callable[[bytes], Row],
    handle: Callable[[int, bytes, Row], Iterable[Item]],
    end: Iterable[Item],
) -> Iterator[Item]:
    """All items of a JSONL file, the ``Session`` first; ``end`` is read after the last row."""
    return session_first(chain(read_rows(lines, decode, handle), end))


def read_rows(
    lines: Iterable[FileLine],
    decode: Callable[[bytes], Row],
    handle: Callable[[int, bytes, Row], Iterable[Item]],
) -> Iterator[Item]:
    """Decode each record of each line and yield the items of ``handle(line, data, row)``."""
    for line in lines:
        if not line.data or line.data.isspace():
            if line is PAUSE:
                yield Paused(line.number)
            continue
        try:
            row = decode(line.data)
        except BROKEN:
            yield from _slowly(line, decode, handle)
            continue
        yield from handle(line.number, line.data, row)


def session_first(items: Iterable[Item]) -> Iterator[Item]:
    """The same items with the ``Session`` first; without one, only the ``Waiting`` items.

    Items of the lines before the one that names the session are held back until then. Raises
    MalformedTranscript where these are more than ``MAX_BYTES``.
    """
    held: list[Item] = []
    size = 0
    source = iter(items)
    for item in source:
        if isinstance(item, Session):
            yield item
            yield from held
            yield from source
            return
        held.append(item)
        size += len(item.data) if isinstance(item, Raw) else 0
        if size > MAX_BYTES:
            raise MalformedTranscript(
                f"line {item.line}: expected a line that begins a session in the first "
                f"{MAX_BYTES >> 20} MiB, found none that can be read; is it the right --format?"
            )
    yield from (item for item in held if isinstance(item, Waiting))


def first_line(lines: Iterable[FileLine]) -> tuple[FileLine | None, Iterable[FileLine]]:
    """The first line that is not blank, and the lines from there on."""
    rest = iter(lines)
    first = next((line for line in rest if line.data.strip()), None)
    return first, () if first is None else chain((first,), rest)


def not_understood(line: int, kind: str, data: bytes, warning: str) -> Iterator[Item]:
    """A row that its format does not define: it is kept, and reported by a warning."""
    yield Raw(line, kind, data, understood=False)
    yield Warned(line, warning)


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
            try:
                value, warning = read_value(part)
            except ValueError as error:
                yield from not_understood(number, "unreadable", part, str(error))
                continue
            try:
                row = decode(encode(value))
            except BROKEN:
                if not isinstance(value, dict) and not line.terminated:
                    # A bare number or word may be the beginning of a longer one.
                    yield Waiting(number, "the last line may be half written")
                    return
                problem = "a record of a shape that its format does not have"
                yield from not_understood(number, _kind_of(value), part, problem)
                continue
            yield Warned(number, warning)
            yield from _with_original(number, part, handle(number, encode(value), row))
        else:
            yield from handle(number, part, row)
    if not rest:
        return
    if line.terminated:
        yield from not_understood(number, "unreadable", rest, "not readable as JSON")
    else:
        yield Waiting(number, "the last line is half written")


def _with_original(number: int, part: bytes, items: Iterable[Item]) -> Iterator[Item]:
    """The items of a repaired record, with its original bytes in place of its rest."""
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
    """Cut ``{…}{…}`` into its records; the second value is the remainder, no whole record."""
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
            # No JSON, or brackets so many that nothing reads them.
            return parts, text[start:].encode("utf-8", errors="surrogateescape")
        parts.append(text[start:end].encode("utf-8", errors="surrogateescape"))
        start = end


def nanoseconds(text: object) -> int | None:
    """UTC nanoseconds of an ISO 8601 time or of seconds since 1970; None for anything else.

    A time without a zone is read as UTC, because programs write transcripts and most use UTC.
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
    if isinstance(text, int | float) and not isinstance(text, bool) and 0 < text < _LAST_SECOND:
        return round(text * 1_000_000) * 1_000
    return None


def _positive(time: int) -> int | None:
    # A time before 1970, or after 2262 (63 bits of nanoseconds), comes from a broken clock.
    return time if 0 < time < 2**63 else None


def count(value: object) -> int:
    """A token count as a provider wrote it; 0 for everything else."""
    return value if type(value) is int and 0 < value <= MOST_TOKENS else 0


def text_or_none(value: object) -> str | None:
    """A field that should be text; None for everything else."""
    return value if isinstance(value, str) else None


def object_or_empty(value: object) -> dict[str, Any]:
    """A field that should be an object; an empty one for everything else."""
    return value if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """A field that should be a list; an empty one for everything else."""
    return value if isinstance(value, list) else []


def text_of_content(content: object) -> str:
    """The text of a message's content without the space around it; empty where it has none.

    Of a list it is the texts of its blocks, each on a line of its own.
    """
    if isinstance(content, str):
        return content.strip()
    texts = [object_or_empty(block).get("text") for block in list_or_empty(content)]
    return "\n".join([text for text in texts if isinstance(text, str)]).strip()


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    """An object without some of its keys."""
    return {key: inner for key, inner in value.items() if key not in keys}


def facts_or_none(value: object) -> Facts | None:
    """The facts of a message or an item in a known dialect; None for everything else.

    For telling messages from the lines of other programs: any object may have a ``type``.
    """
    facts = item_facts_or_none(value)
    return facts if facts is None or not facts.item or is_known(object_or_empty(value)) else None


def item_facts_or_none(value: object) -> Facts | None:
    """The facts of a message, or of an item of any type, where the file is known to hold such."""
    try:
        return read_facts(value) if isinstance(value, dict) else None
    except InvalidMessage:
        return None
