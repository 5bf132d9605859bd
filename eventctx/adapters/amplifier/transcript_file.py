"""The transcript as lines of JSON in a file of the host's: ``transcript_path``.

context-persistent keeps its session there. Here the log is the session, and the file is a copy for
the programs that read it: each message is added to it, and a set or a clear writes it anew. A new
session begins with the messages that are in the file, so that a session goes on when its profile
changes the name of the module. A file that cannot be written never stops the agent.

A session that Amplifier kept before can be taken over from its folder. Amplifier's command line and
context-persistent name a project's folder differently, so its files may be in two folders.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from eventctx.adapters.amplifier.memory_files import is_memory
from eventctx.adapters.amplifier.rows import converted_to_json
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.encoding import encode_message
from eventctx.messages.parts import role_of
from eventctx.session.context import Context
from eventctx.text import without_password

_log = logging.getLogger("eventctx.adapters.amplifier")


def path_of(given: Any) -> Path | None:
    """The absolute path that the setting names; None without one. Raises InvalidSetting."""
    if not given:
        return None
    if not isinstance(given, str | Path):
        raise InvalidSetting(f"transcript_path: expected a file's path, found {shown(given)}")
    if "\0" in str(given):
        _log.warning("setting 'transcript_path': %s names no file and is ignored", shown(given))
        return None
    path = Path(given)
    with contextlib.suppress(RuntimeError):
        # There may be no such user: then it is a folder of that name, as in context-persistent.
        path = path.expanduser()
    return path.absolute()


class TranscriptFile:
    """The copy of one session's transcript."""

    def __init__(self, path: Path, memory_files: Sequence[Path]) -> None:
        self._path = path
        self._memory_files = memory_files
        self._whole = False
        """Whether the last line is known to have its end."""

    async def opened(self, context: Context) -> bool:
        """Give an empty session the messages of the file; write the file if it is missing.

        Returns whether the file had messages for it.
        """
        if await context.get_messages():
            if self._is_missing():
                await self.replaced(context)
            return False
        rows = await asyncio.to_thread(self._rows)
        if rows:
            await context.set_messages(rows)
            _log.info("session %s begins with %d messages", context.session_id, len(rows))
        return bool(rows)

    def added(self, message: dict[str, Any]) -> None:
        """Add a line. It is written in place: a thread could change the order of the messages."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = _line(message if "timestamp" in message else {**message, "timestamp": now})
        self._writing(lambda: self._append(line))

    async def replaced(self, context: Context) -> None:
        """Write the whole transcript anew."""
        lines = [_line(row) for row in await context.get_messages()]
        self._writing(lambda: self._write("".join(lines)))

    def _writing(self, write: Callable[[], None]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write()
        except (OSError, ValueError) as error:
            _log.warning("the copy of the transcript cannot be written: %s", error)

    def _append(self, line: str) -> None:
        with self._path.open("a+b") as file:
            if not self._whole and file.tell():
                # A process that was killed may have left half a line.
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else f"\n{line}"
            file.write(line.encode())
            self._whole = True

    def _write(self, text: str) -> None:
        # A reader sees the old file or the new one, also when this process is killed.
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(self._path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _is_missing(self) -> bool:
        try:
            return not self._path.exists()
        except OSError:
            return True  # writing it says what is wrong

    def _rows(self) -> list[dict[str, Any]]:
        """The file's messages. Rows of memory files stand before the view, and are left out.

        That of a file which is gone is its only text, and is moved with the first request.
        """
        try:
            if not self._path.is_file():
                return []
            text = self._path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            _log.warning("the transcript %s cannot be read and is not used: %s", self._path, error)
            return []
        there = [one for one in self._memory_files if _is_file(one)]
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            row = _message(line)
            if row is None:
                _log.warning("%s, line %d is no message and is skipped", self._path, number)
            elif not is_memory(row, there):
                rows.append(row)
        return rows


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _line(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False) + "\n"


def _message(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or role_of(row) is None:
        return None
    try:
        encode_message(row)
    except InvalidMessage as error:
        return converted_to_json(row, error)
    return row


_PROJECTS: Final = (".amplifier", "projects")


def folder_with(file: str, session: str, home: Path | None = None) -> Path | None:
    """The folder that Amplifier keeps a session in, with a file of this name; None without any."""
    try:
        projects = (home or Path.home()).joinpath(*_PROJECTS)
        folders = [one.joinpath("sessions", session) for one in sorted(projects.iterdir())]
        return next((one for one in folders if any(one.rglob(file))), None)
    except (OSError, ValueError, RuntimeError):
        return None  # there is none, the user has no home, or the id cannot name a folder


def command_to_take_over(session: str, mirrored: str, store: str) -> str:
    """The command line that makes ours a session that mirrors the file ``mirrored``."""
    folder = folder_with(mirrored, session)
    path = "ITS-FOLDER" if folder is None else shlex.quote(os.fspath(folder))
    return f"eventctx import --take-over {path} --store {shlex.quote(without_password(store))}"
