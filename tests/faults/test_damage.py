"""Edits with SQL, flipped bits, mutated files: found if they change evidence, or harmless.

Half of the flips are anywhere in the file, half in the bytes around the beginning of a content:
its row's head, its digest, salt and facts. A flip in an unused byte of a page changes nothing.
Every other one is found by ``verify_store``, or the store cannot be opened. A flip in the log of
SQLite takes away the end of the log without a word of SQLite's; the book of receipts knows of it.
Recorded sessions of every format, mutated, are imported without a loss, or refused.
"""

from __future__ import annotations

import gc
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from tests.faults import given
from tests.faults.counts import report, trials
from tests.faults.given import STORE, Sound, evidence_in, scratch, sound_store, survives
from tests.importers.growing import SESSIONS
from tests.importers.mutating import Mutants

pytestmark = pytest.mark.slow

Draw = Callable[[apsw.Connection, random.Random], str]

NO_EVIDENCE = {
    "UPDATE streams SET created = created + 1",
    "UPDATE checkpoints SET position = position + 5 WHERE name <> 'eventctx:erasing'",
    "INSERT INTO checkpoints VALUES('of a subscription', 3)",
    "DELETE FROM checkpoints",
    "DELETE FROM snapshots",
    "UPDATE snapshots SET version = 99",
    "INSERT INTO types(name) VALUES('nobody:uses')",
}
"""Edits that change no answer, and that nobody finds."""


def any_of(connection: apsw.Connection, chance: random.Random, table: str) -> int:
    rows = connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid").fetchall()
    return int(chance.choice(rows)[0])


def a_column(connection: apsw.Connection, chance: random.Random) -> tuple[str, str, int]:
    """A table, a column of it, and a row; records, where most lies, more often than others."""
    table = chance.choice(["records"] * 6 + ["bodies", "streams", "types", "snapshots"])
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()]
    return table, chance.choice(names), any_of(connection, chance, table)


def set_value(connection: apsw.Connection, chance: random.Random) -> str:
    values = ["7", "-1", "9223372036854775807", "'text'", "x''", "x'ff00'", "0.5"]
    table, column, row = a_column(connection, chance)
    return f"UPDATE {table} SET {column}={chance.choice(values)} WHERE rowid={row}"


def cut_a_value(connection: apsw.Connection, chance: random.Random) -> str:
    column = chance.choice(["data", "facts", "salt", "payload", "digest", "body_digest", "id"])
    any_long = f"WHERE length({column}) > 1 ORDER BY random_of(pos) LIMIT 1"
    found = connection.execute(f"SELECT pos, length({column}) FROM records {any_long}").fetchall()
    ((row, length),) = found
    cut = f"substr({column}, 1, {chance.randrange(length)})"
    return f"UPDATE records SET {column}={cut} WHERE pos={row}"


def take_a_value_of_another_row(connection: apsw.Connection, chance: random.Random) -> str:
    table, column, row = a_column(connection, chance)
    other = any_of(connection, chance, table)
    value = f"(SELECT {column} FROM {table} WHERE rowid={other})"
    return f"UPDATE {table} SET {column}={value} WHERE rowid={row}"


def swapped(table: str, column: str, first: int, second: int, where: str = "") -> str:
    return ";".join(
        f"UPDATE {table} SET {column}={new} WHERE {where}{column}={old}"
        for new, old in ((-9, first), (first, second), (second, -9))
    )


def swap_two_rows(connection: apsw.Connection, chance: random.Random) -> str:
    table = chance.choice(["records", "records", "bodies", "streams", "types"])
    first, second = (any_of(connection, chance, table) for _ in range(2))
    return swapped(table, "pos" if table == "records" else "id", first, second)


def swap_places(connection: apsw.Connection, chance: random.Random) -> str:
    stream = any_of(connection, chance, "streams")
    places = connection.execute(f"SELECT position FROM records WHERE stream={stream}").fetchall()
    (first,), (second,) = chance.sample(places, 2)
    return swapped("records", "position", first, second, f"stream={stream} AND ")


def insert_a_copy(connection: apsw.Connection, chance: random.Random) -> str:
    """The copy of a record behind the last one of a session, as if it had been said twice."""
    row = any_of(connection, chance, "records")
    stream = any_of(connection, chance, "streams")
    names = [name for _, name, *_ in connection.execute("PRAGMA table_info(records)").fetchall()]
    new = {
        "pos": "(SELECT max(pos) + 1 FROM records)",
        "stream": str(stream),
        "position": f"(SELECT max(position) + 1 FROM records WHERE stream={stream})",
    }
    values = ",".join(new.get(name, name) for name in names)
    return f"INSERT INTO records SELECT {values} FROM records WHERE pos={row}"


def change_a_parent(connection: apsw.Connection, chance: random.Random) -> str:
    row = any_of(connection, chance, "streams")
    change = chance.choice(["parent=NULL, forked_at=NULL", "parent=1, forked_at=3", "forked_at=5"])
    return f"UPDATE streams SET {change} WHERE id={row}"


def empty_facts(connection: apsw.Connection, chance: random.Random) -> str:
    """Facts decide what a compaction shows; no digest covers them."""
    return f"UPDATE records SET facts=x'' WHERE pos={any_of(connection, chance, 'records')}"


def change_byte(connection: apsw.Connection, chance: random.Random) -> str:
    """One byte of a text, its length kept."""
    table, column = chance.choice(
        [("records", "data"), ("records", "payload"), ("bodies", "data"), ("snapshots", "data")]
    )
    whole = f"SELECT rowid, {column} FROM {table} WHERE length({column}) > 0"
    row, value = chance.choice(connection.execute(whole).fetchall())
    changed = bytearray(value)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(7)
    return f"UPDATE {table} SET {column}=x'{changed.hex()}' WHERE rowid={row}"


DRAWS: tuple[Draw, ...] = (
    lambda *of: "UPDATE {} SET {}=NULL WHERE rowid={}".format(*a_column(*of)),
    set_value,
    cut_a_value,
    take_a_value_of_another_row,
    swap_two_rows,
    swap_places,
    lambda *of: "DELETE FROM {0} WHERE rowid={2}".format(*a_column(*of)),
    insert_a_copy,
    lambda *of: f"UPDATE streams SET name='renamed' WHERE id={any_of(*of, 'streams')}",
    change_a_parent,
    empty_facts,
    change_byte,
)


def edit(sql: str) -> Callable[[Path], None]:
    """Damage by SQL, without the constraints that a hand with a shell need not keep."""

    def damage(path: Path) -> None:
        connection = apsw.Connection(str(path))
        try:
            for step in ("PRAGMA foreign_keys=OFF", "BEGIN", sql, "COMMIT"):
                connection.execute(step).fetchall()
        finally:
            connection.close(True)

    return damage


def draw(folder: Path, sound: Sound, chance: random.Random, kind: Draw) -> str | None:
    """The SQL of an edit that changes something; None if SQLite refused it."""
    given.write_files(folder, sound.files)
    path = folder / STORE
    connection = apsw.Connection(str(path))
    connection.create_scalar_function("random_of", lambda _: chance.random())
    sql = kind(connection, chance)
    connection.close()
    try:
        edit(sql)(path)
    except apsw.Error:
        return None
    return None if evidence_in(path) == sound.evidence and "snapshots" not in sql else sql


async def edit_often(
    sound: Sound, count: int, seed: int, kinds: Sequence[Draw] = DRAWS
) -> Counter[str]:
    """How ``count`` edits were judged. Raises AssertionError for a promise that was broken."""
    outcomes: Counter[str] = Counter()
    chance = random.Random(seed)
    with scratch() as folder:
        while outcomes.total() < count:
            sql = draw(folder, sound, chance, kinds[outcomes.total() % len(kinds)])
            if sql is None:
                continue
            judgement = await survives(sound, folder, edit(sql))
            assert not judgement.broken, f"{sql[:300]}: {judgement.broken}"
            outcomes[judgement.outcome] += 1
    return outcomes


async def test_every_edit_that_changes_anything_meaningful_is_found() -> None:
    report("edits", await edit_often(await sound_store(), trials("edits"), 1))


@pytest.mark.parametrize("sql", sorted(NO_EVIDENCE))
async def test_what_is_no_evidence_changes_no_answer(sql: str) -> None:
    with scratch() as folder:
        judgement = await survives(await sound_store(), folder, edit(sql))
    assert (judgement.outcome, judgement.broken) == ("harmless", ())


ROW_BYTES = 150
"""About as long are the columns of a row before its content."""


async def flip_bits(sound: Sound, name: str, count: int, seed: int) -> Counter[str]:
    """How ``count`` flips were judged. Raises AssertionError for a promise that was broken."""
    outcomes: Counter[str] = Counter()
    chance, whole = random.Random(seed), sound.files[name]
    heads = [re.escape(data[:32]) for data in sound.contents]
    begins = [one.start() for head in heads for one in re.finditer(head, whole)]

    def damage(path: Path) -> None:
        content = bytearray(whole)
        place = chance.randrange(len(content))
        if chance.random() < 0.5:
            place = chance.choice(begins) - chance.randrange(-8, ROW_BYTES)
        content[place] ^= 1 << chance.randrange(8)
        path.with_name(name).write_bytes(content)

    with scratch() as folder:
        for number in range(count):
            judgement = await survives(sound, folder, damage)
            assert not judgement.broken, f"flip {number}: {judgement.broken}"
            outcomes[judgement.outcome] += 1
    return outcomes


@pytest.mark.parametrize(
    ("fault", "name", "seed"),
    [("flipped bits", STORE, 1), ("flipped bits of the log", STORE + "-wal", 2)],
)
async def test_a_flipped_bit_is_found_or_harmless(fault: str, name: str, seed: int) -> None:
    sound, count = await sound_store(closed=name == STORE), trials(fault)
    assert len(sound.files[name]) > 100_000
    outcomes = await flip_bits(sound, name, count, seed)
    assert outcomes["found"] > count // 3
    report(fault, outcomes)


@pytest.mark.parametrize("name", SESSIONS)
async def test_a_mutated_session_is_imported_whole_or_refused(name: str, tmp_path: Path) -> None:
    count = trials("mutants of a format")
    gc.collect()  # a finalizer that other tests left fails where an import is too deep to go on
    ended = await Mutants(tmp_path, name).run(count, seed=1)
    assert ended.total() == count
    # Of JSONL only the odd line is kept as it is; half a document is refused, as ATIF is one.
    whole = name.endswith(("-list", "-document", "swe-agent", "atif"))
    assert ended["imported"] >= count * (0.4 if whole else 0.8)
    report(f"mutants of {name}", ended)
