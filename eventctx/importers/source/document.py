"""Formats that are one JSON document: read whole, then walked element by element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eventctx.errors import MalformedTranscript
from eventctx.importers.source.items import FileLine, Item, Raw, TurnEnded
from eventctx.importers.source.lines import (
    encode,
    object_or_empty,
    read_value,
    split_records,
    text_or_none,
    without,
)


def read_document(lines: Iterable[FileLine], name: str) -> tuple[Any, list[Raw]]:
    """The document's value, and its original bytes as ``Raw`` if they had to be repaired.

    Raises MalformedTranscript for text that is no JSON: half a document cannot be trusted.
    """
    data = b"\n".join(line.data for line in lines)
    try:
        value, repaired = read_value(data)
    except ValueError as error:
        raise MalformedTranscript(
            f"{name}: expected one whole JSON document, found {error}; if a program is still "
            "writing it, import it when that is done"
        ) from error
    return value, [Raw(0, "document.repaired", data, volatile=True)] if repaired else []


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
    for ending in (".jsonl", ".json", ".traj", ".ndjson"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return stem(name[: -len(ending)])
    return name
