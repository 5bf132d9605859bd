"""Where opencode keeps a session: in files of three folders, or in a database since release 1.2.

A session's file (``storage/session/PROJECT/ses_….json``) has only its head; messages are in
``storage/message/SESSION``, their parts in ``storage/part/MESSAGE``. The database has a table of
each. Both are read as lines: the head, then a message with its parts each, as in an export.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.source.items import FileLine
from eventctx.importers.source.lines import object_or_empty, unreadable
from eventctx.importers.source.values import encode, read_value

if TYPE_CHECKING:
    import sqlite3

_FOLDERS: Final = frozenset(("session", "message", "part"))
DATABASE: Final = "opencode*.db"
"""The database's name; a release that is tried out has a name of its own."""

_MAGIC: Final = b"SQLite format 3\0"
_TABLES: Final = frozenset(("session", "message", "part"))
_JSON: Final = ("revert", "model", "summary_diffs", "permission", "metadata")
UNREADABLE: Final = "unreadable"
"""The key of a line that holds the texts of its files that are no JSON, by their names."""


def is_database(path: Path) -> bool:
    """Whether a file is opencode's database: by its first bytes and its tables."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    import sqlite3  # few files are databases, and loading it takes milliseconds

    try:
        with closing(_open(path)) as database:
            rows = database.execute("select name from sqlite_master where type = 'table'")
            return {name for (name,) in rows} >= _TABLES
    except sqlite3.Error:
        return False


def is_session_file(path: Path) -> bool:
    """Whether a file is a database, or has a session's place in a storage, whatever is in it."""
    storage = _storage_of(path)
    return is_database(path) or (storage is not None and (storage / "message" / path.stem).is_dir())


def with_messages(path: Path, lines: Iterable[FileLine]) -> Iterable[FileLine]:
    """The lines of a session: of the file as they are, unless its messages are in other places."""
    if is_database(path):
        first = next(iter(session_ids(path)), None)
        return () if first is None else stored_lines(path, first)
    storage = _storage_of(path)
    return lines if storage is None else _readable(path, _file_lines(storage, path))


def _readable(path: Path, lines: Iterator[FileLine]) -> Iterator[FileLine]:
    try:
        yield from lines
    except OSError as error:
        raise unreadable(Path(error.filename or path), error) from error


def files_of_session(path: Path) -> list[Path]:
    """The further files that an import of a session reads. Raises OSError."""
    if path.match(DATABASE):
        wal = path.with_name(path.name + "-wal")
        return [wal] if wal.is_file() else []
    storage = _storage_of(path)
    if storage is None:
        return []
    messages = _sorted_files(storage / "message" / path.stem)
    return [*messages, *[part for one in messages for part in _parts_of(storage, one, one.stem)]]


def sessions_in(folder: Path, names: Collection[str]) -> list[Path] | None:
    """The sessions of opencode's own folder or of a storage; None for every other folder.

    ``names`` are those in the folder. Nothing else in it is read: it has the person's keys, too.
    """
    if _FOLDERS.issubset(names):
        return sorted((folder / "session").glob("*/*.json"))
    if folder.name != "opencode":
        return None
    databases = sorted(folder / name for name in names if fnmatch(name, DATABASE))
    storage = folder / "storage"
    if not databases and not (storage / "session").is_dir():
        return None
    return [*sorted((storage / "session").glob("*/*.json")), *databases]


def _storage_of(path: Path) -> Path | None:
    """The storage that a session's file is in."""
    if len(path.parents) < 3 or path.suffix != ".json" or path.parents[1].name != "session":
        return None
    storage = path.parents[2]
    return storage if (storage / "message").is_dir() else None


# -- files ---------------------------------------------------------------------------------------


def _file_lines(storage: Path, path: Path) -> Iterator[FileLine]:
    head, broken = _read(path)
    yield _line(1, {"info": _named(head, path.stem), **broken})
    found = []
    for file in _sorted_files(storage / "message" / path.stem):
        info, broken = _read(file)
        created = object_or_empty(info.get("time")).get("created")
        at = created if isinstance(created, int | float) else 0
        found.append((at, file.stem, file, info, broken))
    for number, (_, stem, file, info, broken) in enumerate(sorted(found, key=lambda f: f[:2]), 2):
        name = info.get("id") if isinstance(info.get("id"), str) else stem
        parts = []
        for one in _parts_of(storage, file, str(name)):
            part, failed = _read(one)
            parts += [part] if part else []
            broken = {UNREADABLE: {**broken.get(UNREADABLE, {}), **failed.get(UNREADABLE, {})}}
        row = {"info": _named(info, stem) if info else {}, "parts": parts}
        yield _line(number, {**row, **{key: value for key, value in broken.items() if value}})


def _parts_of(storage: Path, message: Path, name: str) -> list[Path]:
    """The files of a message's parts, by its id or by its file's name."""
    safe = name if name and "/" not in name and "\\" not in name and name != ".." else message.stem
    return _sorted_files(storage / "part" / safe) or _sorted_files(storage / "part" / message.stem)


def _sorted_files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".json")
    except FileNotFoundError:
        return []


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The object of a file, and its text where it is none."""
    data = file.read_bytes()
    try:
        value, _ = read_value(data)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value, {}
    return {}, {UNREADABLE: {file.name: data.decode("utf-8", errors="replace")}}


def _named(value: dict[str, Any], name: str) -> dict[str, Any]:
    """An object with its id, which is also its file's name."""
    return value if isinstance(value.get("id"), str) else {**value, "id": name}


def _line(number: int, row: dict[str, Any]) -> FileLine:
    return FileLine(number, encode(row))


# -- the database --------------------------------------------------------------------------------


def session_ids(path: Path) -> list[str]:
    """The sessions of a database that have messages, in the order in which they began."""
    query = (
        "select id from session where exists"
        " (select 1 from message where session_id = session.id) order by time_created, id"
    )
    import sqlite3

    try:
        with closing(_open(path)) as database:
            return [str(own) for (own,) in database.execute(query)]
    except sqlite3.Error as error:
        raise _damaged(path, error) from error


def stored_lines(path: Path, session: str) -> Iterator[FileLine]:
    """The lines of a session in a database."""
    import sqlite3

    try:
        with closing(_open(path)) as database:
            database.row_factory = sqlite3.Row
            rows = database.execute("select * from session where id = ?", (session,))
            yield _line(1, {"info": _head(dict(rows.fetchone() or {"id": session}))})
            messages = database.execute(
                "select id, data from message where session_id = ? order by time_created, id",
                (session,),
            )
            for number, message in enumerate(messages.fetchall(), 2):
                parts = database.execute(
                    "select id, data from part where message_id = ? order by id", (message["id"],)
                )
                found = [{"id": part["id"], **_object(part["data"])} for part in parts]
                info = {"id": message["id"], "sessionID": session, **_object(message["data"])}
                yield _line(number, {"info": info, "parts": found})
    except sqlite3.Error as error:
        raise _damaged(path, error) from error


def _open(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, also where the program is at work."""
    import sqlite3

    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)


def _head(row: dict[str, Any]) -> dict[str, Any]:
    """A session's row in the form of its file."""
    head = {key: _value(row[key]) if key in _JSON else row[key] for key in row}
    time = {"created": row.get("time_created"), "updated": row.get("time_updated")}
    named = {"parentID": row.get("parent_id"), "projectID": row.get("project_id"), "time": time}
    return {key: value for key, value in {**head, **named}.items() if value is not None}


def _object(text: object) -> dict[str, Any]:
    return object_or_empty(_value(text))


def _value(text: object) -> Any:
    try:
        return read_value(str(text).encode())[0]
    except (ValueError, json.JSONDecodeError):
        return None


def _damaged(path: Path, error: sqlite3.Error) -> MalformedTranscript:
    return MalformedTranscript(
        f"{path.name}: expected opencode's database, found one that cannot be read ({error}); "
        "import it when opencode has closed it, or the file that `opencode export` writes"
    )
