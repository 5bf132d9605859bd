"""The title and the project of a session, read from its log each time: no cache holds texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from eventctx.errors import DecodeError, LogCorrupted
from eventctx.importers.recording.packing import unpacked
from eventctx.messages.encoding import decode_body
from eventctx.messages.extracts import words_of_person
from eventctx.projections.session_sums import SessionSums
from eventctx.text import pattern

if TYPE_CHECKING:
    from eventctx.engine import Engine

LONGEST: Final = 100
"""Characters of a title."""

_READ: Final = 1_000_000
"""Bytes of the parts of an imported file that are looked through for its title and folder."""

_FOLDER: Final = pattern(r'"cwd"\s*:\s*("(?:[^"\\]|\\.){1,4096}")')
_TITLE: Final = pattern(
    r'"(?:customTitle|aiTitle|thread_name|name)"\s*:\s*("(?:[^"\\]|\\.){1,4096}")'
)
_MARKS: Final = ('"custom-title"', '"ai-title"', '"thread_name_updated"', '"session_info"')
_SPACES: Final = re.compile(r"\s+")


async def title_of(engine: Engine, session: str, sums: SessionSums) -> str | None:
    """The title in the imported file, else the first words of a person, on one line.

    None where there is neither, or what held them was erased or cannot be read.
    """
    if sums.titled is not None:
        lines = (await _parts(engine, session, sums.titled)).splitlines()
        for line in reversed(lines):
            found = _TITLE.findall(line) if any(mark in line for mark in _MARKS) else ()
            if found and (title := _shortened(_text(found[-1]))):
                return title
    if sums.spoken is None:
        return None
    try:
        (body,) = await engine.store.bodies(session, [sums.spoken])
        message: Any = None if body.data is None else decode_body(body.data)
    except (DecodeError, LogCorrupted, msgspec.DecodeError):
        return None
    return _shortened(words_of_person(message)) if isinstance(message, dict) else None


async def project_of(engine: Engine, session: str, sums: SessionSums) -> str | None:
    """The folder in which the imported session began; None where its file does not name one."""
    if sums.raw is None:
        return None
    found = _FOLDER.search(await _parts(engine, session, sums.raw))
    return None if found is None else _text(found[1]) or None


async def _parts(engine: Engine, session: str, position: int) -> str:
    """The parts of an imported file at a position; empty where they are not to be had."""
    try:
        async for record in engine.store.read(session, start=position, stop=position):
            found = unpacked(record, _READ)
            return "" if found is None else found.data.decode("utf-8", "replace")
    except (DecodeError, LogCorrupted):
        pass
    return ""


def _text(quoted: str) -> str:
    try:
        return msgspec.json.decode(quoted, type=str)
    except msgspec.DecodeError:
        return ""


def _shortened(text: str) -> str | None:
    line = _SPACES.sub(" ", text[: 20 * LONGEST]).strip()
    if len(line) > LONGEST:
        line = line[: LONGEST - 1].rstrip() + "…"
    return line or None
