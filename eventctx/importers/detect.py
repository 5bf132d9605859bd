"""Telling formats apart by content; file names are not reliable.

The marks of each format are in the table of formats; this module reads a file up to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Final

import msgspec

from eventctx.errors import MalformedTranscript, NotATranscript, UnknownFormat, UnreadableFile
from eventctx.importers.format_table import (
    AMPLIFIER,
    CASSETTE,
    CLINE,
    CONTEXT_PERSISTENT,
    CURSOR,
    FORMATS,
    MESSAGES,
    OPENHANDS,
    Format,
)
from eventctx.importers.formats import amplifier, cursor
from eventctx.importers.formats.atif import files as atif_files
from eventctx.importers.formats.cassettes import cassette
from eventctx.importers.formats.cline import cline
from eventctx.importers.formats.foreign import foreign, foreign_text
from eventctx.importers.formats.google import gemini
from eventctx.importers.source.companions import owner_of
from eventctx.importers.source.document import read_document
from eventctx.importers.source.http_recording import begins_cassette, read_cassette
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import read_lines, split_records
from eventctx.importers.source.source import is_event_folder
from eventctx.importers.source.values import TooDeep, read_value

_LOOKED_AT: Final = 50
_BINARY_BYTES: Final = 8192
_NUL_BYTES: Final = 4096


def session_source(path: Path, name: str | None = None) -> Path:
    """The file that tells the session of ``path``: of several files, the one that tells most.

    Amplifier has several for one session, and may be named by its folder. With the ``name`` of a
    format a file is taken as it is.
    """
    if name is None or (name == AMPLIFIER and path.is_dir()):
        return amplifier.source_of(Path(owner_of(os.fspath(path))))
    return path


def passed_over(path: Path, *, take_over: bool = False) -> str | None:
    """The reason not to import a file found in a folder: another one tells its session."""
    other = amplifier.passed_over(path, take_over=take_over)
    return other or gemini.passed_over(path) or atif_files.passed_over(path)


def is_transcript_folder(path: Path) -> bool:
    """Whether a folder is one session, and not a folder to search for some."""
    return is_event_folder(path) or amplifier.is_session_folder(path)


def choose(path: Path, name: str | None, *, folders: bool = False) -> Format:
    """The format called ``name``, or the one that the file's content shows.

    With ``folders`` a folder of events is accepted, too.

    Raises UnknownFormat and MalformedTranscript, also for an empty or binary file under a name,
    and UnreadableFile for a pipe or a device.
    """
    if name is not None and name not in FORMATS:
        raise UnknownFormat(f"no format {name!r}; known are {', '.join(FORMATS)}")
    if path.is_dir():
        if folders and name in (None, OPENHANDS) and is_event_folder(path):
            return FORMATS[OPENHANDS]
        raise UnknownFormat(
            f"{path}: expected a file or a folder of OpenHands events, found a folder; "
            "name the files in it"
        )
    if path.exists() and not path.is_file():
        raise UnreadableFile(
            f"{path}: expected a file, which is read more than once, found a pipe or a device; "
            "write it to a file first"
        )
    found = next((row for row in FORMATS.values() if row.is_file(path)), None)
    if found is not None and name in (None, found.name):
        return found
    _refuse_binary(path)
    if name is None:
        name = detect(read_lines(path), path.name)
        if name in (MESSAGES, CONTEXT_PERSISTENT) and amplifier.is_transcript(path):
            name = AMPLIFIER
        if name == MESSAGES and cline.is_task(path):
            name = CLINE
    return FORMATS[name]


def _refuse_binary(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(_BINARY_BYTES)
    if not head.strip():
        # White space at the start counts as an empty file, unless text follows.
        if any(line.data.strip() for line in read_lines(path)):
            return
        raise MalformedTranscript(
            f"{path.name}: expected a transcript, found an empty file; "
            "import it when the program has written to it"
        )
    text = head.replace(b"\0", b"").removeprefix(b"\xef\xbb\xbf").lstrip()
    nul = head.count(b"\0")
    # A crash leaves up to a page of them in a file of JSON, where the rest is still good.
    if nul > _NUL_BYTES or (nul and not text.startswith((b"{", b"["))):
        raise UnknownFormat(
            f"{path.name}: expected text (JSON or JSONL in UTF-8), found binary data; "
            "unpack or convert it first"
        )


def detect(lines: Iterable[FileLine], name: str) -> str:
    """The name of the format of these lines. Raises UnknownFormat with an excerpt of them.

    It is NotATranscript where they can be read, and MalformedTranscript where they are nested too
    deeply to be read. A JSON document is read whole; of JSONL, only the first lines are read.
    """
    source = iter(lines)
    head = list(islice((line for line in source if line.data.strip()), _LOOKED_AT))
    if begins_cassette(head):
        return _of_cassette(chain(head, source), name)
    if head and cursor.is_text(head[0]):
        return CURSOR
    values = _values(head)
    if not _begins_with_record(head):
        values = _of_many_lines(chain(head, source), name, values) or values
        if not values:
            if name.endswith((".yaml", ".yml")):
                raise NotATranscript(name, "YAML that is no cassette", tuple(FORMATS))
            text = foreign_text(head[0].data if head else b"")
            if text is not None:
                raise NotATranscript(name, text, tuple(FORMATS))
            raise UnknownFormat(
                f"{name}: expected JSON or JSONL, found neither ({_excerpt(head)}); "
                f"name the format with --format if it is one of {', '.join(FORMATS)}"
            )
    for value in values:
        if foreign(value) is not None:
            raise NotATranscript(name, _describe(value), tuple(FORMATS))
        found = _find_marked(value)
        if found == MESSAGES and isinstance(value, dict) and any(map(_is_amplifier, values)):
            return AMPLIFIER
        if found is not None:
            return found
    raise NotATranscript(name, _describe(values[0]), tuple(FORMATS))


def _find_marked(value: object) -> str | None:
    """The format that marks a value: as one line of many, or else as the whole of a file."""
    if isinstance(value, dict):
        for row in FORMATS.values():
            if row.is_row(value):
                return row.name
    return next((row.name for row in FORMATS.values() if row.is_document(value)), None)


def _is_amplifier(value: object) -> bool:
    """Whether a row is Amplifier's; its first rows may look like any other chat's."""
    return isinstance(value, dict) and amplifier.is_row(value)


def _of_cassette(lines: Iterable[FileLine], name: str) -> str:
    if cassette.is_cassette(read_cassette(lines, name)):
        return CASSETTE
    found = "a cassette without requests to Anthropic's messages, OpenAI's chat or responses"
    raise NotATranscript(name, found, tuple(FORMATS))


def _of_many_lines(lines: Iterable[FileLine], name: str, single: list[object]) -> list[object]:
    """The value of all lines together; none where they are no document that can be read.

    ``single`` are the values of single lines. Raises MalformedTranscript where there are none, and
    the document is nested too deeply.
    """
    try:
        return [read_document(lines, name).value]
    except MalformedTranscript as error:
        if not single and isinstance(error.__cause__, TooDeep):
            raise
        return []


def _begins_with_record(head: list[FileLine]) -> bool:
    """Whether the first line holds a whole object, as in JSONL; else it may open a document."""
    return bool(head) and bool(_values(head[:1]))


def _values(head: list[FileLine]) -> list[object]:
    """The objects and lists that lines hold by themselves.

    Texts and numbers do not count: they may be lines of one document of many lines.
    """
    values: list[object] = []
    for line in head:
        parts, _ = split_records(line.data) if b"}{" in line.data else ([line.data], b"")
        for part in parts:
            try:
                value, _ = read_value(part)
            except ValueError:
                continue
            if isinstance(value, dict | list):
                values.append(value)
    return values


def _describe(value: object) -> str:
    if isinstance(value, dict):
        return foreign(value) or f"an object with the keys {', '.join(list(value)[:6]) or 'none'}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return foreign(value) or f"a list of {_describe(value[0])}"
    return f"JSON of type {type(value).__name__}"


def _excerpt(head: list[FileLine]) -> str:
    data = head[0].data[:40] if head else b""
    return msgspec.json.encode(data.decode("utf-8", errors="replace")).decode()
