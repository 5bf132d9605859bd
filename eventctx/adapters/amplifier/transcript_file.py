"""The transcript as lines of JSON in a file of the host's: ``transcript_path``.

context-persistent keeps its session there. Here the log is the session, and the file is a copy for
the programs that read it: each message is added to it, and a set or a clear writes it anew. So a
session goes on when its profile changes the name of the module, in both directions: a session takes
what the file has after its own messages, and the file holds the rows of memory files, because
context-persistent reads these from it. A file that cannot be written never stops the agent.

Invariant: what this module wrote is the session's messages up to some point, so a file that
differs was written by another program.

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
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from eventctx.adapters.amplifier.memory_files import is_memory
from eventctx.adapters.amplifier.rows import converted_to_json
from eventctx.errors import InvalidMessage, InvalidSetting
from eventctx.log.arguments import shown
from eventctx.messages.encoding import encode_message
from eventctx.messages.parts import role_of
from eventctx.projections.view.render import ERASED
from eventctx.session.context import Context
from eventctx.session.reconcile import rows_after
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
        self._behind = False
        """Whether a message could not be written; a later one alone would leave a gap."""

    async def opened(self, context: Context) -> bool:
        """Give the session what the file has after its messages; write a file that lacks some.

        Returns whether the file had messages for it.
        """
        if context.mirror is not None:
            return False  # nothing may be written to it
        stored = await context.get_messages()
        memory = set(await context.memory())
        rows = [row for row in await asyncio.to_thread(self._rows) if not _is_text(row, memory)]
        known = [None if row == _ERASED else row for row in stored]
        further = rows_after(known, rows)
        if further is None and None not in known:
            return await self._differs(context, rows)
        further = further or ()
        if not stored and further:
            await context.set_messages(further)
        for row in further if stored else ():
            await context.add_message(row)
        if further:
            _log.info("session %s takes %d messages of a file", context.session_id, len(further))
        if None in known or len(rows) < len(stored):
            await self.replaced(context)  # the file of before may still hold what was erased
        return bool(further)

    async def _differs(self, context: Context, rows: list[dict[str, Any]]) -> bool:
        """Take the file of another program in the place of the session's messages."""
        _log.warning(
            "session %s: expected a transcript that begins as the log does, found another one in "
            "%s; the session goes on with it, and the log keeps what was before",
            *(context.session_id, self._path),
        )
        return await context.resume_messages(rows)

    async def added(self, context: Context, message: dict[str, Any]) -> None:
        """Add a line. It is written in place: a thread could change the order of the messages."""
        if self._behind:
            await self.replaced(context)
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = _line(message if "timestamp" in message else {**message, "timestamp": now})
        self._writing(lambda: self._append(line))

    async def replaced(self, context: Context) -> None:
        """Write the whole transcript anew, after the rows of memory files."""
        memory = [{"role": "system", "content": text} for text in await context.memory()]
        lines = [_line(row) for row in (*memory, *await context.get_messages())]
        self._writing(lambda: self._write("".join(lines)))

    def _writing(self, write: Callable[[], None]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write()
            self._behind = False
        except (OSError, ValueError) as error:
            if not self._behind:
                _log.warning("the copy of the transcript cannot be written: %s", error)
            self._behind = True

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
            row = message_of(line)
            if row is None:
                _log.warning("%s, line %d is no message and is skipped", self._path, number)
            elif not is_memory(row, there):
                rows.append(row)
        return rows


def _is_text(row: dict[str, Any], texts: Collection[str]) -> bool:
    """Whether a row is a system message with one of these texts."""
    text = row.get("content")
    return row.get("role") == "system" and isinstance(text, str) and text in texts


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _line(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False) + "\n"


def message_of(line: str) -> dict[str, Any] | None:
    """The message of a line of JSON; None for a line that holds none."""
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
_FILE: Final = "context-messages.jsonl"
_ERASED: Final = {"role": "user", "content": ERASED}


def file_of_persistent(session: str) -> Path | None:
    """The file where context-persistent keeps a session, by the current folder; None without any.

    It names a project's folder by the last name of its path and a hash of the whole.
    """
    try:
        here = Path.cwd()
        project = f"{here.name or 'root'}-{sha256(str(here).encode()).hexdigest()[:8]}"
        return Path.home().joinpath(*_PROJECTS, project, "sessions", session, _FILE)
    except (OSError, ValueError, RuntimeError) as error:
        _log.warning("the transcript's file has no place, so none is written: %s", error)
        return None


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
