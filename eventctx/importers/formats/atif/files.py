"""A trajectory of ATIF in several files: ``X.json`` goes on in ``X.cont-1.json`` next to it.

Harbor names the files so, and the export of eventctx does. They are read as one session; in a
folder, those that another one goes on in are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.source.document import read_document
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import object_or_empty, read_lines, text_or_none
from eventctx.importers.source.values import encode

CONTINUATIONS: Final = "continuations"
_NEXT_FILE: Final = re.compile(r"(?P<stem>.+?)(?:\.cont-(?P<number>\d+))?\.json")


def is_document(value: object) -> bool:
    """Whether a document is a trajectory."""
    version = value.get("schema_version") if isinstance(value, dict) else None
    marked = isinstance(version, str) and version.startswith("ATIF-")
    return marked and isinstance(object_or_empty(value).get("steps"), list)


def with_continuations(path: Path, lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of a trajectory; one that goes on in files next to it holds these, too."""
    held = list(lines)
    named = any(b".cont-" in one.data for one in held)
    following = continuations_of(path, held) if named else []
    if not following:
        yield from held
        return
    document = {**read_document(held, path.name).value, CONTINUATIONS: following}
    yield FileLine(1, encode(document))


def continuations_of(path: Path, lines: list[FileLine]) -> list[dict[str, Any]]:
    """The trajectories in the files that a file names, and these name in their turn."""
    found: list[dict[str, Any]] = []
    try:
        value, repaired = read_document(lines, path.name)
        while not repaired and is_document(value):
            following = _next_file(path, value)
            if following is None:
                break
            value, repaired = read_document(read_lines(following), following.name)
            path = following
            found += [value] if is_document(value) and not repaired else []
    except (OSError, MalformedTranscript):
        pass  # what can be read of it is imported; the import of the other file says what is wrong
    return found


def _next_file(path: Path, document: dict[str, Any]) -> Path | None:
    """The file next to ``path`` in which its trajectory goes on, as Harbor names it."""
    named = text_or_none(document.get("continued_trajectory_ref"))
    here = _NEXT_FILE.fullmatch(path.name)
    if named is None or here is None:
        return None
    following = f"{here['stem']}.cont-{int(here['number'] or 0) + 1}.json"
    return path.with_name(following) if Path(named).name == following else None


def passed_over(path: Path) -> str | None:
    """The reason not to import a file found in a folder: the one that it goes on from has it."""
    here = _NEXT_FILE.fullmatch(path.name)
    if here is None or not here["number"]:
        return None
    before = f".cont-{int(here['number']) - 1}" if int(here["number"]) > 1 else ""
    first = path.with_name(f"{here['stem']}{before}.json")
    try:
        value = read_document(read_lines(first), first.name).value
    except (OSError, MalformedTranscript):
        return None
    goes_on = is_document(value) and _next_file(first, value) == path
    return f"it goes on from {first.name}, and is imported with it" if goes_on else None
