"""Looks at the database file as a whole: what no walk over one stream can see."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import apsw

from eventctx.stores.sqlite_schema import TABLES

_MOST = 100
"""The most findings of SQLite's own check that are listed."""

_STRAYS = (
    ("SELECT count(*) FROM records WHERE stream NOT IN (SELECT id FROM streams)",
     "records belong to no session: their sessions' names were removed"),
    ("SELECT count(*) FROM bodies WHERE id >> 20 NOT IN (SELECT pos FROM records)",
     "contents belong to no record"),
    ("SELECT count(*) FROM records WHERE type NOT IN (SELECT id FROM types)",
     "records have a type whose name was removed"),
    ("SELECT count(*) FROM snapshots WHERE stream NOT IN (SELECT id FROM streams)",
     "snapshots belong to no session"),
)  # fmt: skip


def inspect(connection: apsw.Connection) -> tuple[tuple[str, ...], int]:
    """The findings, and how many global positions hold no record. Never raises for damage."""
    findings: list[str] = []
    for step in (_of_sqlite, _of_schema, _of_strays):
        try:
            findings += step(connection)
        except (apsw.Error, ValueError) as error:
            findings.append(f"the file could not be checked to its end: {error}")
    try:
        rows: Any = connection.execute("SELECT count(*), max(pos) FROM records").fetchall()
        ((stored, last),) = rows
        missing = 0 if last is None else int(last) + 1 - int(stored)
    except (apsw.Error, ValueError, TypeError) as error:
        findings.append(f"the records could not be counted: {error}")
        missing = 0
    return tuple(findings), missing


def _of_sqlite(connection: apsw.Connection) -> Iterator[str]:
    for (found,) in connection.execute(f"PRAGMA integrity_check({_MOST})").fetchall():
        if found != "ok":
            yield f"SQLite finds damage: {found}"


def _of_schema(connection: apsw.Connection) -> Iterator[str]:
    found = _schema(connection)
    for kind, name in sorted(found.keys() - _own().keys()):
        yield f"a foreign hand added the {kind} {name!r}"
    for kind, name in sorted(_own().keys() - found.keys()):
        yield f"the {kind} {name!r} was removed"
    for key, sql in _own().items():
        if key in found and found[key] != sql:
            yield f"the {key[0]} {key[1]!r} was changed"


def _of_strays(connection: apsw.Connection) -> Iterator[str]:
    for query, problem in _STRAYS:
        ((count,),) = connection.execute(query).fetchall()
        if count:
            yield f"{count} {problem}"


def _schema(connection: apsw.Connection) -> dict[tuple[str, str], str | None]:
    rows: Any = connection.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    # SQLite's own statistics, which an ANALYZE leaves behind, change no answer.
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith("sqlite_stat")}


@cache
def _own() -> dict[tuple[str, str], str | None]:
    connection = apsw.Connection(":memory:")
    connection.execute(TABLES).fetchall()
    return _schema(connection)
