"""Verification of a store that somebody edited with SQL: each edit is found, and nothing raises."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import eventctx
from eventctx.errors import LogCorrupted, StreamNotFound
from eventctx.log.integrity import Signer
from eventctx.messages.facts import DEMANDS_SINCE, READER, decode_facts, encode_facts
from eventctx.queries.verify import StoreVerification
from eventctx.stores.receipt_book import ReceiptBook

Edit = Callable[[apsw.Connection], Any]


async def write(path: Path) -> None:
    """A store with a long session, a fork of it, and a second session."""
    async with eventctx.open(path, receipts=False) as engine:
        context = await engine.session("s", max_tokens=3_000)
        for number in range(40):
            async with context.turn() as turn:
                await context.add_message({"role": "user", "content": f"question {number} " * 20})
                async with turn.iteration():
                    await context.get_messages_for_request()
                    answer = {"role": "assistant", "content": f"answer {number} " * 20}
                    await context.add_message(answer)
        await engine.fork("s", 20, "fork")
        other = await engine.session("other")
        await other.add_message({"role": "user", "content": "hello"})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("verification") / "store.db"
    asyncio.run(write(path))
    return path.read_bytes()


@pytest.fixture
def path(written: bytes, tmp_path: Path) -> Path:
    """A store of its own for each test; nobody has it open."""
    place = tmp_path / "store.db"
    place.write_bytes(written)
    return place


async def add(path: Path, *rows: dict[str, Any], session: str = "s") -> None:
    async with eventctx.open(path, receipts=False) as engine:
        await (await engine.session(session)).add_messages(rows)


def edit(path: Path, change: str | Edit) -> None:
    with contextlib.closing(apsw.Connection(str(path))) as connection:
        if isinstance(change, str):
            connection.execute(change).fetchall()
        else:
            change(connection)


async def checked(path: Path, change: str | Edit) -> StoreVerification:
    """What is found in a store after an edit."""
    edit(path, change)
    async with eventctx.open(path, receipts=False) as engine:
        return await engine.verify_store()


def kinds(found: StoreVerification, session: str = "s") -> set[str]:
    (one,) = [one for one in found.sessions if one.stream == session]
    return {problem.kind for problem in one.problems}


CYCLE = "UPDATE streams SET parent=2, forked_at=3 WHERE id=1"
PAYLOAD_OF_BRACKETS = """
UPDATE records SET payload=CAST(replace(hex(zeroblob(50000)),'00','[') AS BLOB) WHERE pos=9"""
BODY_OF_BRACKETS = """
UPDATE records SET data=CAST(replace(hex(zeroblob(50000)),'00','[') AS BLOB) WHERE pos=2"""
FACTS_OF_NO_TEXT = """
UPDATE records SET facts=CAST(substr(facts,1,5)||x'e9'||substr(facts,7) AS BLOB) WHERE pos=2"""
PAYLOAD_OF_NO_TEXT = """
UPDATE records SET payload=CAST(replace(payload,'"strategy":"','"strategy":"'||x'e9') AS BLOB)
WHERE type=(SELECT id FROM types WHERE name='context:post_compact')"""
EDITS: dict[str, tuple[str, str, str]] = {
    "texts blanked": ("UPDATE records SET salt=NULL, data=NULL WHERE bodies > 0", "s", "body"),
    "a salt taken away": ("UPDATE records SET salt=NULL WHERE pos=2", "s", "body"),
    "another snapshot": ("UPDATE snapshots SET data=CAST(data || '0' AS BLOB)", "s", "snapshot"),
    "facts that are no UTF-8": (FACTS_OF_NO_TEXT, "s", "facts"),
    "a compaction that is no UTF-8": (PAYLOAD_OF_NO_TEXT, "s", "record"),
    "a snapshot moved": ("UPDATE snapshots SET position=position-3", "s", "snapshot"),
    "all records removed": ("DELETE FROM records WHERE stream=3", "other", "missing"),
    "an event id longer": (
        "UPDATE records SET id=CAST(id||'0' AS BLOB) WHERE position=9", "s", "record",
    ),
    "a turn that is no UTF-8": (
        "UPDATE records SET turn=CAST(x'ff' AS TEXT) WHERE position=9", "s", "unreadable",
    ),
    "a payload that is no JSON": (
        "UPDATE records SET payload=x'7b' WHERE position=9 AND stream=1", "s", "record",
    ),
    "a payload of many brackets": (PAYLOAD_OF_BRACKETS, "s", "record"),
    "a body of many brackets": (BODY_OF_BRACKETS, "s", "body"),
    "a cycle of forks": (CYCLE, "s", "unreadable"),
    "a parent that is gone": (
        "PRAGMA foreign_keys=OFF; UPDATE streams SET parent=77 WHERE id=2", "fork", "unreadable",
    ),
}  # fmt: skip


def with_facts(pos: int, **changed: Any) -> Edit:
    """An edit that writes other facts of the first body of a record."""

    def change(connection: apsw.Connection) -> None:
        rows = connection.execute("SELECT facts FROM records WHERE pos=?", (pos,)).fetchall()
        facts = encode_facts(msgspec.structs.replace(decode_facts(rows[0][0]), **changed))
        connection.execute("UPDATE records SET facts=? WHERE pos=?", (facts, pos)).fetchall()

    return change


FALSE_FACTS: dict[str, dict[str, Any]] = {
    "nobody said it": {"kind": "user", "human": False, "demands": 0},
    "it holds a demand": {"demands": 1},
    "it is short": {"prose": 1, "digits": 0},
    "it makes a call": {"calls": ("x",)},
    "it is an observation": {"kind": "result", "observation": True},
}


@pytest.mark.parametrize("name", FALSE_FACTS)
async def test_facts_are_read_anew_for_any_reader(path: Path, name: str) -> None:
    for reader in (READER, READER - 1):
        found = await checked(path, with_facts(2, **FALSE_FACTS[name], reader=reader))
        assert "facts" in kinds(found)


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [*calls]}


BY_NAME = [{"function": {"name": "read", "arguments": {"path": one}}} for one in "ab"]
BY_ID = [{"id": "call_a", **one} for one in BY_NAME]
NAMELESS = {"type": "function", "function": {"arguments": "{}"}}


@pytest.mark.parametrize(
    ("row", "known", "ok"),
    [
        # An older reader missed a result by its tool's name alone,
        ({"role": "tool", "tool_name": "read", "content": "x"}, {"reader": 9, "results": ()}, True),
        ({"role": "function", "name": "read", "content": ""}, {"reader": 9, "results": ()}, False),
        # took a call without id and name for what it is,
        (calling(NAMELESS), {"reader": 11}, True),
        # and did not tell calls by name apart.
        (calling(*BY_NAME), {"reader": 12, "calls": ("function:read",), "arguments": 16}, True),
        (calling(*BY_NAME), {"reader": 13, "calls": ("function:read",), "arguments": 16}, False),
        (calling(*BY_ID), {"reader": 12, "calls": ("call_a",), "arguments": 16}, True),
        (calling(*BY_ID), {"reader": 13, "calls": ("call_a",), "arguments": 16}, False),
        # It missed a result without a name, too.
        ({"role": "tool", "content": "x"}, {"reader": 12, "results": ()}, True),
        ({"role": "tool", "content": "x"}, {"reader": 13, "results": ()}, False),
        # What one of a later release knows is no damage.
        (calling(*BY_ID), {"reader": READER + 1, "prose": 7, "arguments": 7}, True),
        (
            {"role": "user", "content": "x"},
            {"reader": READER + 1, "kind": "user", "prose": 7},
            True,
        ),
    ],
)
async def test_facts_are_no_damage_where_another_reader_knew_other_things(
    tmp_path: Path, row: dict[str, Any], known: dict[str, Any], ok: bool
) -> None:
    path = tmp_path / "s.db"
    await add(path, {"role": "user", "content": "Read it."}, row)
    assert (await checked(path, with_facts(2, **known))).ok is ok


async def test_a_demand_that_an_older_reader_did_not_count_holds(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await add(path, {"role": "user", "content": "Never touch legacy.py."})
    changed = {"reader": DEMANDS_SINCE - 1, "demands": 0, "demand_characters": 0}
    edit(path, with_facts(1, **changed))
    async with eventctx.open(path, receipts=False) as engine:
        found = await engine.instructions("s")
    assert [one.text for one in found.instructions] == ["Never touch legacy.py."]


@pytest.mark.parametrize("at", [-1, 3])
async def test_a_parent_that_a_foreign_hand_gave_a_session_is_found(path: Path, at: int) -> None:
    found = await checked(path, f"UPDATE streams SET parent=1, forked_at={at} WHERE id=3")  # noqa: S608
    assert kinds(found, "other")
    found = await checked(path, "UPDATE streams SET parent=NULL, forked_at=NULL WHERE id=2")
    assert kinds(found, "fork")


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_is_found_where_it_was_made(path: Path, name: str) -> None:
    sql, session, kind = EDITS[name]
    found = await checked(path, sql)
    assert kind in kinds(found, session)
    assert session == "other" or "bodies > 0" in sql or not kinds(found, "other")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON records BEGIN SELECT 1; END", "added the trigger 't'"),
        ("CREATE VIEW v AS SELECT * FROM records", "added the view 'v'"),
        ("CREATE TABLE extra(x)", "added the table 'extra'"),
        ("CREATE INDEX i ON records(time)", "added the index 'i'"),
        ("DROP INDEX records_place", "the index 'records_place' was removed"),
        ("DELETE FROM streams WHERE id=3", "belong to no session"),
        ("INSERT INTO bodies VALUES(1 << 40, x'00', NULL, x'', NULL)", "belong to no record"),
        ("INSERT INTO snapshots VALUES(99, 'x', 0, x'', 1, x'')", "belong to no session"),
    ],
)
async def test_what_lies_between_the_sessions_is_checked(path: Path, sql: str, words: str) -> None:
    found = await checked(path, sql)
    assert any(words in problem for problem in found.problems)
    assert not found.ok


async def test_a_session_that_was_taken_out_leaves_a_gap_but_for_the_last(path: Path) -> None:
    await add(path, {"role": "user", "content": "hello"}, session="last")
    sql = "DELETE FROM records WHERE stream={0}; DELETE FROM streams WHERE id={0}"
    # The last records of a store leave no gap after; only a receipt knows of them.
    found = await checked(path, sql.format(4))
    assert ([one.stream for one in found.sessions], found.problems) == (["s", "fork", "other"], ())
    await add(path, {"role": "user", "content": "hello"}, session="last")
    found = await checked(path, sql.format(3))
    assert found.problems == ("2 records that were once stored are in no session",)


async def test_a_trigger_of_a_foreign_hand_never_runs(path: Path) -> None:
    await checked(path, "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    await add(path, {"role": "user", "content": "more"}, session="other")
    async with eventctx.open(path, receipts=False) as engine:
        assert len(await engine.transcript("other")) == 2
        assert len(await engine.transcript("s")) == 80


async def test_verify_goes_on_behind_what_it_cannot_read(path: Path) -> None:
    edit(path, "UPDATE records SET data=x'7b7d' WHERE stream=1 AND position=50 OR position=58")
    no_text = "turn=CAST(x'ff' AS TEXT) WHERE stream=1 AND position IN (5,6,7,30)"
    found = await checked(path, f"UPDATE records SET {no_text}")  # noqa: S608
    (one,) = [one for one in found.sessions if one.stream == "s"]
    unreadable = [p for p in one.problems if p.kind == "unreadable"]
    assert [p.position for p in unreadable] == [5, 30]
    assert "positions 5 to 7" in unreadable[0].text
    assert one.records > 100


async def test_one_broken_session_never_hides_the_others(path: Path) -> None:
    edit(path, "UPDATE streams SET name=CAST(x'ff' AS TEXT) WHERE id=2")
    found = await checked(path, "DELETE FROM records WHERE stream=3")
    assert [one.stream for one in found.sessions] == ["s", "other"]
    async with eventctx.open(path, receipts=False) as engine:
        assert [info.head for info in await engine.sessions()][1] == -1
        with pytest.raises(LogCorrupted, match="records of the session were removed"):
            await engine.session("other")


NO_TEXT = "UPDATE records SET data=CAST(replace(data,'question',x'e9') AS BLOB) WHERE pos=2"


@pytest.mark.parametrize(("sql", "match"), [(NO_TEXT, ""), (CYCLE, "no beginning")])
async def test_a_search_in_a_text_that_is_no_utf_8_or_a_cycle_of_forks_ends_with_a_typed_error(
    path: Path, sql: str, match: str
) -> None:
    await checked(path, sql)
    async with eventctx.open(path, receipts=False) as engine, asyncio.timeout(60):
        may = contextlib.suppress(LogCorrupted)
        with pytest.raises(LogCorrupted, match=match) if match else may:
            await engine.recall("question", "s")


async def test_an_edited_message_is_never_sent_shown_or_searched(path: Path) -> None:
    async with eventctx.open(path, receipts=False) as engine:
        await engine.recall("question")

    await checked(path, "UPDATE records SET data=CAST(replace(data,'question','instruct') AS BLOB)")
    async with eventctx.open(path, receipts=False) as engine:
        context = await engine.session("s", max_tokens=3_000)
        for reading in (
            context.get_messages_for_request,
            context.get_messages,
            lambda: engine.transcript("s"),
            lambda: engine.request_view("s", 30),
            lambda: engine.recall("question"),
            lambda: engine.why("s", 70),
        ):
            with pytest.raises(LogCorrupted, match=r"edited or damaged.*restore the store"):
                await reading()
        assert not (await engine.request_view("s", 30, allow_damage=True)).verified


async def test_a_session_whose_newest_records_were_edited_is_not_opened(path: Path) -> None:
    newest = "(SELECT max(position) FROM records WHERE stream = 1)"
    edit(path, f"UPDATE records SET time = time + 1 WHERE stream = 1 AND position = {newest}")  # noqa: S608
    async with eventctx.open(path, receipts=False) as engine:
        with pytest.raises(LogCorrupted, match=r"does not follow.*eventctx fork s NEW --at"):
            await engine.session("s")
        await engine.session("other")


# -- receipts that are kept ------------------------------------------------------------------------


async def say(path: Path, book: Path, *, session: str = "s", turns: int = 1) -> None:
    async with eventctx.open(path, receipts=book) as engine:
        context = await engine.session(session)
        for _ in range(turns):
            async with context.turn():
                await context.add_message({"role": "user", "content": "hello"})


async def test_a_tail_that_was_cut_shows_without_anybody_keeping_a_receipt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, book = tmp_path / "s.db", tmp_path / "state" / "book.jsonl"
    await say(path, book, turns=3)
    assert not caplog.records
    edit(path, "DELETE FROM records WHERE pos > (SELECT max(pos) FROM records) - 2")
    caplog.set_level(logging.WARNING)
    async with eventctx.open(path, receipts=book) as engine:
        assert "is not what it was" in caplog.text
        (one,) = (await engine.verify_store()).sessions
        assert [problem.kind for problem in one.problems] == ["receipt"]
        assert [problem.kind for problem in (await engine.verify("s")).problems] == ["receipt"]
    entries = ReceiptBook(book).entries()
    assert [entry.what for entry in entries].count("mismatch") == 1
    assert "ends at" in entries[-1].found


async def test_a_session_that_is_gone_fails_with_receipt_and_book(tmp_path: Path) -> None:
    path, book = tmp_path / "s.db", tmp_path / "book.jsonl"
    await say(path, book)
    receipt = ReceiptBook(book).last()["s"]
    path.unlink()
    await say(path, tmp_path / "other.jsonl", session="new")
    async with eventctx.open(path, receipts=book) as engine:
        problems = (await engine.verify("s")).problems
        assert [problem.kind for problem in problems] == ["missing", "receipt"]
        assert not (await engine.verify_store()).ok
    async with eventctx.open(path, receipts=False) as engine:
        assert not (await engine.verify("s", receipt)).ok
        with pytest.raises(StreamNotFound):
            await engine.verify("s")


async def test_a_history_that_was_written_anew_shows_when_the_session_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, book = tmp_path / "s.db", tmp_path / "book.jsonl"
    await say(path, book, session="first")
    await say(path, book, session="last")
    path.unlink()
    for session in ("first", "last"):
        await say(path, tmp_path / "no.jsonl", session=session)
    caplog.clear()
    async with eventctx.open(path, receipts=book) as engine:
        assert "'last'" in caplog.text
        assert "'first'" not in caplog.text
        await engine.session("first")
        assert "'first'" in caplog.text


@pytest.mark.parametrize("kind", ["a folder", "another file", "no rights"])
async def test_a_book_that_cannot_be_used_disturbs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path, book = tmp_path / "s.db", tmp_path / "book.jsonl"
    if kind == "a folder":
        book.mkdir()
    elif kind == "another file":
        book.write_text("somebody's notes\n")
    else:
        book = Path("/proc/self/nobody/may/write")
    await say(path, book, turns=2)
    assert caplog.text.count("receipts cannot be kept") == 1
    if kind == "another file":
        assert book.read_text() == "somebody's notes\n"
    async with eventctx.open(path, receipts=book) as engine:
        assert (await engine.verify("s")).ok


# -- signatures ------------------------------------------------------------------------------------


def key() -> Signer:
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    forms = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    made, plain = ed25519.Ed25519PrivateKey.generate(), forms.NoEncryption()
    pem = made.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, plain)
    return eventctx.signer(pem)


async def test_a_signature_says_who_and_only_its_key_could_make_it(tmp_path: Path) -> None:
    mine, path = key(), tmp_path / "s.db"
    await say(path, tmp_path / "book")
    async with eventctx.open(path) as engine:
        receipt = await engine.sign("s", mine)
        proof = await engine.verify("s")
        (signed,) = proof.signed
        assert proof.ok
        assert (signed.position, signed.public_key) == (receipt.position - 1, mine.public_key)
    forged = mine._replace(sign=key().sign)
    async with eventctx.open(path) as engine:
        await engine.sign("s", forged)
        proof = await engine.verify("s")
        assert [problem.kind for problem in proof.problems] == ["signature"]
        assert len(proof.signed) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX rights")
def test_the_book_is_its_owners_alone(tmp_path: Path) -> None:
    book = ReceiptBook(tmp_path / "state" / "book.jsonl")
    book.note(eventctx.Receipt("s", 0, bytes(32)))
    rights = [place.stat().st_mode & 0o777 for place in (book.path, book.path.parent)]
    assert rights == [0o600, 0o700]


async def test_a_torn_line_in_the_book_is_passed_over(tmp_path: Path) -> None:
    path, book = tmp_path / "s.db", tmp_path / "book.jsonl"
    await say(path, book)
    with book.open("ab") as file:
        file.write(b'{"receipt_book":1,"what":"rec')
    await say(path, book)
    assert ReceiptBook(book).last()["s"].position > 3


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\n"])
def test_a_key_that_is_none_is_said_so(pem: bytes) -> None:
    pytest.importorskip("cryptography")
    with pytest.raises(eventctx.InvalidSetting, match="private key"):
        eventctx.signer(pem)
