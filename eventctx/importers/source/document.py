"""Formats that are one JSON document: read whole, then walked element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from eventctx.errors import MalformedTranscript
from eventctx.importers.source.items import FileLine, Item, Raw, TurnEnded
from eventctx.importers.source.lines import (
    MAX_BYTES,
    object_or_empty,
    split_records,
    text_or_none,
    too_large,
    without,
)
from eventctx.importers.source.values import TooDeep, encode, may_begin, read_value

_LOOKED_AT: Final = 50
_OPENS: Final = (b"[", b"{", b",", b":")
"""The ends of the first line of a document of many lines; half a record hardly ever has them."""


class JsonDocument(NamedTuple):
    """A document's value, and its original bytes as ``Raw`` where the value says less than they."""

    value: Any
    repaired: list[Raw]


def read_document(lines: Iterable[FileLine], name: str) -> JsonDocument:
    """Read a document whole.

    Raises MalformedTranscript for text that is no JSON, because half a document cannot be trusted,
    and for more than ``MAX_BYTES``.
    """
    taken, whole, _ = take_bytes(lines)
    if not whole:
        raise too_large(name, "a document")
    return _document(taken, name)


def document_or_rows(
    lines: Iterable[FileLine], name: str, is_row: Callable[[object], bool]
) -> tuple[JsonDocument | None, Iterable[FileLine]]:
    """The document, or None and the lines if they are JSONL whose first line cannot be read.

    They are if they are no document, and one of the next lines is a row by itself. Raises
    MalformedTranscript as ``read_document`` does.
    """
    taken, whole, rest = take_bytes(lines)
    try:
        if not whole:
            raise too_large(name, "a document")
        return _document(taken, name), ()
    except MalformedTranscript:
        first = taken[0].data.rstrip()
        opens = first.endswith(_OPENS) and may_begin(first)
        if not opens and any(is_row(first_record(line)) for line in taken[1:_LOOKED_AT]):
            return None, rest
        raise


def take_bytes(lines: Iterable[FileLine]) -> tuple[list[FileLine], bool, Iterable[FileLine]]:
    """The lines of up to ``MAX_BYTES``, whether these are all, and all lines again."""
    source = iter(lines)
    taken: list[FileLine] = []
    size = 0
    for line in source:
        taken.append(line)
        size += len(line.data) + 1
        if size > MAX_BYTES:
            return taken, False, chain(taken, source)
    return taken, True, taken


def _document(lines: list[FileLine], name: str) -> JsonDocument:
    data = b"\n".join([line.data for line in lines])
    try:
        value, repaired = read_value(data)
    except ValueError as error:
        remedy = "if a program is still writing it, import it when that is done"
        if isinstance(error, TooDeep):
            remedy = "no program can read it as it is"
        elif "Extra data" in str(error):
            remedy = "import each of several as a file of its own"
        raise MalformedTranscript(
            f"{name}: expected one whole JSON document, found {error}; {remedy}"
        ) from error
    return JsonDocument(
        value, [Raw(0, "document.repaired", data, volatile=True)] if repaired else []
    )


def read_object(
    lines: Iterable[FileLine], name: str, wanted: str
) -> tuple[dict[str, Any], list[Raw]]:
    """A document that is an object with a list under ``wanted``. Raises MalformedTranscript."""
    value, repaired = read_document(lines, name)
    if not isinstance(value, dict) or not isinstance(value.get(wanted), list):
        raise MalformedTranscript(
            f"{name}: expected a JSON object with a list {wanted!r}, found "
            f"{type(value).__name__}; name another format with --format"
        )
    return value, repaired


def envelope(document: dict[str, Any], *lists: str) -> Raw:
    """A document without the lists that are walked. Its program may rewrite this part."""
    return Raw(0, "document", encode(without(document, *lists)), volatile=True)


def outcome(document: dict[str, Any], line: int, *, exact: bool) -> Iterator[Item]:
    """The end of the turn by ``info.exit_status``, which may be an exception's name.

    ``exact`` accepts only "submitted" as a success; without it, any status that contains the word.
    """
    status = text_or_none(object_or_empty(document.get("info")).get("exit_status"))
    if not status:
        return
    lowered = status.lower()
    if lowered == "submitted" if exact else "submitted" in lowered:
        yield TurnEnded(line, None)
    else:
        yield TurnEnded(line, None, "error", status)


def first_record(line: FileLine) -> object:
    """The whole record at the start of a line; None where the line starts a document."""
    parts, _ = split_records(line.data)
    try:
        return read_value(parts[0])[0] if parts else None
    except ValueError:
        return None


def stem(name: str) -> str:
    """A file's name without the endings of transcripts."""
    for ending in (".jsonl", ".json", ".traj", ".ndjson", ".yaml", ".yml"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return stem(name[: -len(ending)])
    return name
