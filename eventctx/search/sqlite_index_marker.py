"""How an index file is recognised as ours, so that nobody else's file is ever changed or deleted.

Our file carries ``APPLICATION_ID`` in its header from its first byte on: it is made whole under
another name (``template``) and then given its own. A database that is sound has the marker table,
too. A file that is damaged may have lost that, but its header is enough: no other program writes
SQLite files of this name with this id.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final

import apsw

APPLICATION_ID: Final = 0x45435449  # "ECTI"

_MAGIC: Final = b"SQLite format 3\0"
_ID_AT: Final = slice(
    68, 72
)  # of the header, https://www.sqlite.org/fileformat.html#the_database_header
_HASH_BYTES: Final = 8 * 2**20

# ``words`` keeps no texts: a message is stored once, in the store, so an erasure there is enough.
_TABLES: Final = """
CREATE TABLE eventctx_recall_index(about TEXT NOT NULL) STRICT;
INSERT INTO eventctx_recall_index VALUES('search index of an eventctx store; may be deleted');
CREATE TABLE mark(one INTEGER PRIMARY KEY, position INTEGER NOT NULL, id BLOB NOT NULL) STRICT;
CREATE TABLE streams(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, position INTEGER NOT NULL, idx INTEGER NOT NULL,
  number INTEGER NOT NULL, time INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX messages_place ON messages(stream, position, idx);
CREATE INDEX messages_number ON messages(stream, number);
CREATE VIRTUAL TABLE words USING fts5(
  text, parts, content='', contentless_delete=1,
  tokenize="unicode61 remove_diacritics 2 tokenchars '_'");
"""


class Found(Enum):
    """What a path holds."""

    NOTHING = "nothing"
    OURS = "an index of ours, sound or damaged"
    FOREIGN = "a file of somebody else"


def look(path: Path) -> Found:
    """What lies at ``path``. Nothing is changed, followed or waited for.

    The header is read through SQLite: if this process opened the file by itself, closing it would
    drop the locks that SQLite has on it here. Raises OSError and the errors of apsw.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return Found.NOTHING
    if not stat.S_ISREG(mode):
        return Found.FOREIGN
    header = _header(path)
    ours = header.startswith(_MAGIC) and header[_ID_AT] == APPLICATION_ID.to_bytes(4)
    return Found.OURS if ours else Found.FOREIGN


def _header(path: Path) -> bytes:
    file = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return file.xRead(100, 0)
    finally:
        file.xClose()


def has_marker(connection: apsw.Connection) -> bool:
    """Whether a database that SQLite can read has our marker table."""
    sql = "SELECT 1 FROM sqlite_schema WHERE type='table' AND name='eventctx_recall_index'"
    return bool(connection.execute(sql).fetchall())


def remove_ours(path: Path) -> None:
    """Delete an index of ours and its journal; anything else stays. Raises OSError."""
    if look(path) is Found.OURS:
        for one in (path, path.with_name(path.name + "-journal")):
            with suppress(FileNotFoundError):
                one.unlink()


def make_tables(connection: apsw.Connection, version: int) -> None:
    """Make an empty index of ``version`` in an empty database."""
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", version)
    connection.execute(_TABLES).fetchall()
    connection.execute(
        "INSERT INTO words(words, rank) VALUES('hashsize', ?)", (_HASH_BYTES,)
    ).fetchall()


@cache
def template(version: int) -> bytes:
    """The file of an empty index."""
    connection = apsw.Connection(":memory:")
    try:
        make_tables(connection, version)
        return connection.serialize("main")
    finally:
        connection.close()


def make_file(path: Path, version: int, rights: int) -> None:
    """Put an empty index at ``path``, whole and with its marker; a file that is there stays.

    ``rights`` are the file's, less those that the umask takes. Raises OSError.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
    file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, rights)
    try:
        with os.fdopen(file, "wb") as part:
            part.write(template(version))
        if not os.path.lexists(path):
            # It is of an index that was deleted while a process wrote to it. SQLite would take it
            # for the new file's own, and roll that back to what the old one was.
            path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        with suppress(FileExistsError):  # another process was faster
            _give_name(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _give_name(beside: Path, path: Path) -> None:
    try:
        os.link(beside, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links, and no other step there replaces nothing for certain.
        if path.exists() or path.is_symlink():
            raise FileExistsError(path) from None
        beside.rename(path)
