"""OpenHands' folders: a conversation is a folder with one numbered file per event."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import MAX_BYTES, too_large

_NAME: Final = re.compile(r"event-(\d+)(?:-.*)?\.json")


def is_event_folder(path: Path) -> bool:
    """Whether a folder holds event files."""
    return path.is_dir() and any(map(is_event_file, path.iterdir()))


def is_event_file(path: Path) -> bool:
    """Whether a file has the name of an event file."""
    return _NAME.fullmatch(path.name) is not None


def is_event_path(path: str) -> bool:
    """Whether a path as text ends in the name of an event file."""
    return _NAME.fullmatch(path.rpartition(os.sep)[2]) is not None


def event_files(path: Path) -> list[tuple[int, Path]]:
    """The event files of a folder and their numbers, in order."""
    found = ((_NAME.fullmatch(file.name), file) for file in path.iterdir())
    numbered = [(int(match[1]), file) for match, file in found if match is not None]
    return sorted(numbered, key=lambda entry: (entry[0], entry[1].name))


def read_events(path: Path) -> Iterator[FileLine]:
    """A line for each event. Its number is one more than the file's: events count from 0.

    Only the last file may be half written, because the program writes them one after another.
    Raises MalformedTranscript for an event of more than ``MAX_BYTES``.
    """
    files = event_files(path)
    for place, (number, file) in enumerate(files, 1):
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise too_large(f"{path.name}/{file.name}", "an event")
        yield FileLine(number + 1, data.strip(), place < len(files))


def folder_size(path: Path) -> int:
    """Bytes of all events."""
    return sum(file.stat().st_size for _, file in event_files(path))


def folder_name(path: Path) -> str:
    """The conversation's name: its folder, which may hold the events in a folder ``events``."""
    path = path.resolve()
    return path.parent.name if path.name == "events" else path.name
