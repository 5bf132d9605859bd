"""The files that a profile puts before every request: ``memory_files`` of context-persistent.

Their texts are no messages of the transcript but rows before the view (``Context.set_memory``). As
messages they would be lost: by ``clear``, by a host that sets a transcript with a system prompt of
its own, and under a system prompt's factory, which takes the place of stored system messages.

The paths are made absolute at mount, since a host may change its folder. The files are read before
the session's first request, and once in the life of a mounted object, as the host's module does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.facts_reader import is_from_hook
from eventctx.session.context import Context

CHARACTERS_PER_TOKEN: Final = 4
"""How many characters of files count as a token, as context-persistent counts them."""

BYTES_PER_CHARACTER: Final = 4
"""The most that UTF-8 takes for one."""

_log = logging.getLogger("eventctx.adapters.amplifier")


def paths_of(given: Any) -> tuple[Path, ...]:
    """The absolute paths that the setting names, each once. Raises InvalidSetting."""
    if not given:
        return ()
    if isinstance(given, str | Path):
        _log.warning("setting 'memory_files': one path was given, a list of it is used")
        given = [given]
    elif isinstance(given, Mapping):
        _log.warning("setting 'memory_files': a mapping was given, its names are used as paths")
        given = list(given)
    if not isinstance(given, list | tuple):
        raise InvalidSetting(f"memory_files: expected a list of paths, found {shown(given)}")
    paths = [_absolute(one) for one in given]
    return tuple(dict.fromkeys([path for path in paths if path is not None]))


def _absolute(given: Any) -> Path | None:
    """The path; None, with a warning, for a text that names no file. Raises InvalidSetting."""
    if not isinstance(given, str | Path):
        raise InvalidSetting(f"memory_files: expected paths, found {shown(given)}")
    found: Path | None = None
    if str(given).strip() and "\0" not in str(given):
        # ``~name`` of no user of this machine names no file.
        with contextlib.suppress(RuntimeError):
            found = Path(given).expanduser().absolute()
    if found is None:
        _log.warning("setting 'memory_files': %s names no file and is skipped", shown(given))
    return found


def check_size(paths: Sequence[Path], limit: int) -> None:
    """Raise InvalidSetting if the files alone are larger than a budget of ``limit`` tokens.

    No request of such a session could be answered, and its person learns it here.
    """
    most = limit * CHARACTERS_PER_TOKEN
    sizes = {path: size for path in paths if (size := _bytes_of(path)) is not None}
    if sum(sizes.values()) <= most:
        return  # no text has more characters than bytes
    characters = {path: _characters_of(path, most) for path in sizes}
    if sum(characters.values()) <= most:
        return
    listed = ", ".join([f"{path} ({_tokens(size, most)})" for path, size in characters.items()])
    raise InvalidSetting(
        f"memory_files: expected files that fit into max_tokens ({limit:,} tokens), "
        f"found {listed}; shorten them, or raise max_tokens"
    )


def _tokens(characters: int, most: int) -> str:
    """A file's size in words; one that is larger than the budget alone was not read to its end."""
    tokens = f"~{min(characters, most) // CHARACTERS_PER_TOKEN:,}"
    return f"more than {tokens}" if characters > most else tokens


def _bytes_of(path: Path) -> int | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _characters_of(path: Path, most: int) -> int:
    """The length of a file's text; one more than ``most`` if that is smaller; 0 if it has none."""
    try:
        return len(_read(path, most))
    except TooLarge:
        return most + 1
    except (OSError, ValueError):
        return 0


class TooLarge(ValueError):
    """A file's text is longer than the budget."""


async def put_before(context: Context, paths: Sequence[Path], limit: int) -> bool:
    """Put the files before every view of the session; what did not change is not recorded again.

    Rows of the files in the transcript, which a session of context-persistent brought with it, are
    taken out: no request has a file twice. Returns whether anything changed.
    """
    recorded = await context.memory()
    if not paths and not recorded:
        return False
    rows = await context.get_messages() if paths else []
    others = [row for row in rows if not is_memory(row, paths)]
    brought = [row["content"] for row in rows if is_memory(row, paths)]
    texts = await asyncio.to_thread(texts_of, paths, limit, (*recorded, *brought))
    changed = await context.set_memory(texts)
    if brought:
        await context.set_messages(others)
    return changed or bool(brought)


def texts_of(paths: Sequence[Path], limit: int, recorded: Sequence[str] = ()) -> tuple[str, ...]:
    """The rows of the files that can be read, in order; a warning names each of the others.

    A file that cannot be read now, but that the session has ``recorded``, keeps its recorded row:
    a session that is resumed in another folder must not lose its instructions.
    """
    rows: dict[Path, str] = {}
    problems: dict[Path, Exception] = {}
    left = limit * CHARACTERS_PER_TOKEN
    for path in paths:
        try:
            text = _read(path, left)
        except (OSError, ValueError) as error:
            problems[path] = error
            continue
        left -= len(text)
        if text.strip():
            rows[path] = _label(path) + text
    for path, problem in problems.items():
        # Two files may have one name and so one label; a row of a file that was read is not meant.
        unread = [row for row in recorded if row not in rows.values()]
        known = next((row for row in unread if row.startswith(_label(path))), None)
        if known is not None:
            rows[path] = known
        then = "is skipped" if known is None else "stays as it was recorded"
        _log.warning("memory file %s cannot be read and %s: %s", path, then, problem)
    return tuple(dict.fromkeys([rows[path] for path in paths if path in rows]))


def _label(path: Path) -> str:
    """The words before a file's text, as context-persistent has them."""
    return f"[Context from {path.name}]\n\n"


def is_memory(row: dict[str, Any], paths: Sequence[Path]) -> bool:
    """Whether a message is the row of one of the files."""
    text = row.get("content")
    if row.get("role") != "system" or not isinstance(text, str) or is_from_hook(row):
        return False
    return any(text.startswith(_label(path)) for path in paths)


def _read(path: Path, most: int) -> str:
    """The text of a file of at most ``most`` characters. Raises OSError and ValueError."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        # Opening a pipe would wait for its writer, for ever.
        raise ValueError("expected a file, found a folder or a device")
    if found.st_size > most * BYTES_PER_CHARACTER:
        raise TooLarge(f"it is longer than the {most:,} characters that fit into max_tokens")
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"expected UTF-8, found other bytes at {error.start:,}") from error
    if len(text) > most:
        raise TooLarge(f"it is longer than the {most:,} characters that fit into max_tokens")
    return text.replace("\r\n", "\n").replace("\r", "\n")
