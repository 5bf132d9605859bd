"""Formats that are one JSON document: the whole file is read, then walked element by element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventctx.errors import MalformedTranscript
from eventctx.importers.source.items import FileLine, Raw
from eventctx.importers.source.lines import encode, read_value, split_records


def read_document(lines: Iterable[FileLine], name: str) -> tuple[Any, list[Raw]]:
    """The document's value, and its bytes as ``Raw`` where they had to be repaired.

    Raises MalformedTranscript when it is no JSON: of half a document nothing can be trusted.
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


def envelope(document: dict[str, Any], *without: str) -> Raw:
    """All of a document but the lists that are walked. A program may rewrite it as it goes."""
    rest = {key: value for key, value in document.items() if key not in without}
    return Raw(0, "document", encode(rest), volatile=True)


def first_record(line: FileLine) -> object:
    """The record that a line begins with, by itself; None where a document begins with it."""
    parts, _ = split_records(line.data)
    try:
        return read_value(parts[0])[0] if parts else None
    except ValueError:
        return None


def stem(name: str) -> str:
    """A file's name without the endings that transcripts have."""
    for ending in (".jsonl", ".json", ".traj", ".ndjson"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return stem(name[: -len(ending)])
    return name
