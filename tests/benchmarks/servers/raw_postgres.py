"""The speed of PostgreSQL without this library: the store's own table, bare statements, one driver.

The table is a copy of the store's, with its indexes and constraints, and the rows are those that
the store wrote. So a floor and its subject write the same bytes to the same disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

Rows = Sequence[tuple[Any, ...]]

TABLE = "records"


class Column(NamedTuple):
    name: str
    type: str


class RawRecords:
    """A copy of the table of records, in a schema of its own; one connection, in autocommit."""

    def __init__(self, url: str, schema: str, copy: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._source = sql.Identifier(schema, TABLE)
        self._streams = sql.Identifier(schema, "streams")
        self._table = sql.Identifier(copy, TABLE)
        self._run(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(copy)))
        self._run(
            sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(self._table, self._source)
        )
        self._columns = self._described(schema)
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in self._columns)
        self._insert = self._text(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})"), self._table, names, self._casts("{}")
        )
        self._unnest = self._text(
            sql.SQL("INSERT INTO {} ({}) SELECT * FROM unnest({})"),
            self._table,
            names,
            self._casts("{}[]"),
        )
        self._read = self._text(
            sql.SQL("SELECT * FROM {} WHERE stream = %s ORDER BY position"), self._source
        )

    def rows(self) -> Rows:
        """Every row that the store has written, in the order of the log."""
        cursor = self._connection.cursor(binary=True, row_factory=tuple_row)
        query = sql.SQL("SELECT * FROM {} ORDER BY pos").format(self._source)
        return cursor.execute(query).fetchall()

    def insert(self, row: tuple[Any, ...]) -> None:
        """One prepared statement and its commit, in one round trip."""
        self._connection.execute(self._insert, row, prepare=True)

    def insert_batch(self, rows: Rows) -> None:
        """One prepared statement for all rows, and its commit, in one round trip."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._connection.execute(self._unnest, columns, prepare=True)

    def read(self, stream: int) -> int:
        """Fetch every row of a stream of the store's own table; how many there are."""
        cursor = self._connection.cursor(binary=True, row_factory=tuple_row)
        return len(cursor.execute(self._read, (stream,), prepare=True).fetchall())

    def stream_of(self, name: str) -> int:
        """The number by which the store's records name a stream."""
        query = sql.SQL("SELECT id FROM {} WHERE name = %s").format(self._streams)
        found = self._connection.execute(query, (name,)).fetchone()
        if found is None:
            raise LookupError(f"no stream {name!r}")
        return int(found[0])

    def clear(self) -> None:
        """Remove the rows, so that the same ones can be inserted again."""
        self._run(sql.SQL("TRUNCATE {}").format(self._table))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _run(self, statement: sql.Composed) -> None:
        self._connection.execute(statement)

    def _text(self, form: sql.SQL, *parts: sql.Composable) -> str:
        # As text, which the driver translates once.
        return form.format(*parts).as_string(self._connection)

    def _described(self, schema: str) -> list[Column]:
        found = self._connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 "
            "AND NOT attisdropped ORDER BY attnum",
            (schema, TABLE),
        )
        return [Column(*row) for row in found]

    def _casts(self, form: str) -> sql.Composed:
        """A binary placeholder for each column, as its type or as an array of it."""
        return sql.SQL(", ").join(
            sql.SQL("%b::" + form.format(column.type)) for column in self._columns
        )
