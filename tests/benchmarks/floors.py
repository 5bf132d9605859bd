"""The speed of disk and SQLite without this library: a bare write, raw inserts, aiosqlite."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from eventctx.stores.sqlite_rows import INSERT_RECORD

Rows = Sequence[tuple[Any, ...]]

KILOBYTE = os.urandom(1024)


class BareFile:
    """A growing file: each ``write`` appends 1 KB and waits for the disk with fdatasync."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self) -> None:
        os.write(self._file, KILOBYTE)
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def schema(path: Path) -> list[str]:
    """The statements that made the tables and indexes of the store at ``path``."""
    with apsw.Connection(str(path)) as connection:
        rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return [str(sql) for (sql,) in rows]


def stored_rows(path: Path) -> Rows:
    """The rows of ``records`` of the store at ``path``, as it wrote them."""
    connection = apsw.Connection(str(path))
    rows: Rows = connection.execute("SELECT * FROM records ORDER BY pos").fetchall()
    connection.close()
    return rows


class RawTable:
    """The store's own tables, without the store: rows go in as they are, in batches."""

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "full")
        for sql in tables:
            self._connection.execute(sql)

    def insert(self, rows: Rows) -> None:
        """One transaction, one wait for the disk."""
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany(INSERT_RECORD, rows)
        cursor.execute("COMMIT")

    def close(self) -> None:
        self._connection.close(True)


class AioTable:
    """The same table through aiosqlite: what an application would write itself."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path, tables: Sequence[str]) -> AioTable:
        import aiosqlite

        connection = await aiosqlite.connect(path, isolation_level=None)
        await connection.execute("PRAGMA journal_mode=wal")
        await connection.execute("PRAGMA synchronous=full")
        for sql in tables:
            await connection.execute(sql.replace(" STRICT", ""))
        await connection.execute("PRAGMA wal_autocheckpoint=1000")
        return cls(connection)

    async def insert(self, row: tuple[Any, ...]) -> None:
        """A statement outside of a transaction: it commits, and waits for the disk, by itself."""
        async with self._lock:
            await self._connection.execute(INSERT_RECORD, row)

    async def close(self) -> None:
        await self._connection.close()
