"""A store that damage is done to, the questions it is asked then, and the judgement of answers.

The judgement is the same for flipped bits and for edits. Nothing but an ``EventctxError`` is
raised. What the store shows of its contents is what the sound store shows, or an error. Whatever
changes the evidence or an answer is found by ``verify_store``.
"""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

import eventctx
from eventctx.engine import Engine
from eventctx.errors import DecodeError, EventctxError
from eventctx.messages.facts import decode_facts
from eventctx.projections.view.entries import OPENING, SYNTHETIC_TEXTS
from eventctx.queries.transfer import export_lines
from tests.services.in_memory import memory_folder
from tests.sessions import model, user

STORE, BOOK = "store.db", "book.jsonl"
SESSIONS = ("s", "fork", "other")

_STREAMS = """
SELECT s.name, p.name, s.forked_at FROM streams s LEFT JOIN streams p ON p.id = s.parent"""
_RECORDS = """
SELECT s.name, r.position, r.id, t.name, r.version, r.time, r.iteration, r.turn, r.span,
  r.parent_span, r.digest, r.payload, r.bodies, iif(r.bodies, r.body_digest, NULL),
  iif(r.bodies, r.salt, NULL), iif(r.bodies AND r.salt NOT NULL, evident(r.facts), NULL),
  iif(r.bodies, r.data, NULL)
FROM records r LEFT JOIN streams s ON s.id = r.stream LEFT JOIN types t ON t.id = r.type"""
_BODIES = """
SELECT s.name, r.position, b.id & 1048575, b.digest, b.salt,
  iif(b.salt IS NULL, NULL, evident(b.facts)), b.data
FROM bodies b
LEFT JOIN records r ON r.pos = b.id >> 20 LEFT JOIN streams s ON s.id = r.stream"""
EVIDENCE = (_STREAMS, _RECORDS, _BODIES)
"""All that is evidence. The rest may change without a finding: the row ids ``streams.id``,
``types.id`` and ``records.pos``, which a move to another store changes too; ``streams.created``;
``checkpoints``; the columns of a content in records without one; ``snapshots``, which are caches
and are compared where they are used; and of the facts those that nobody can measure again: all of
an erased content, a count by a tokenizer that is not here, and sizes that a reader of another
version measured.
"""

FACTS = ("SELECT facts FROM records WHERE bodies > 0", "SELECT facts FROM bodies")
"""What is not evidence in parts, and yet is exported, and changes estimates."""

MADE_UP = (OPENING, *(text.strip() for text in SYNTHETIC_TEXTS))


class Evidence(NamedTuple):
    """The rows that are evidence, and all facts; or why they are unreadable."""

    rows: object
    facts: object


class Sound(NamedTuple):
    """A store that nobody damaged: its files, evidence, answers, all texts that it ever showed."""

    files: dict[str, bytes]
    evidence: Evidence
    answers: dict[str, object]
    shown: frozenset[bytes]
    contents: tuple[bytes, ...]


class Judgement(NamedTuple):
    """What became of a damaged store: the outcome in a word, and what must not be, if anything."""

    outcome: str
    broken: tuple[str, ...] = ()


async def fill(folder: Path, *, closed: bool = True) -> dict[str, bytes]:
    """Make the store and its book of receipts: compactions, tool rounds, a fork, an erasure.

    Returns its files, with all records in the store's file, or not ``closed``: those of all turns
    still in its log.
    """
    async with eventctx.open(folder / STORE, receipts=folder / BOOK) as engine:
        other = await engine.session("other")
        await other.set_system_prompt("be brief and kind")
        await other.set_messages([user(f"given {n}") for n in range(4)])
        await other.pin(1)
        await engine.erase("other", [2])  # it empties the log
        await converse(other, 2)
        await converse(await engine.session("s", max_tokens=2_000), 9)
        await engine.fork("s", 20, "fork")
        await converse(await engine.session("fork", max_tokens=2_000), 2)
        await engine.close_session("fork")  # the end of its last turn was not waited for
        files = read_files(folder)
    return read_files(folder) if closed else files


async def converse(context: eventctx.Context, turns: int) -> None:
    """Turns with a question, a tool round and an answer each; their requests compact."""
    for number in range(turns):
        async with context.turn() as turn, turn.iteration() as cycle:
            await context.add_message(user(f"question {number} " * 20))
            await context.get_messages_for_request()
            call = {"type": "tool_use", "id": f"c{number}", "name": "look", "input": {"at": number}}
            async with cycle.tool_call("look", f"c{number}"):
                await context.add_message({"role": "assistant", "content": [call]})
            text = f"line {number} of the result\n" * 30
            result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
            await context.add_message({"role": "user", "content": [result]})
            await context.get_messages_for_request()
            await context.add_message(model(f"answer {number} " * 20))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of stores on a disk take long."""
    with tempfile.TemporaryDirectory(prefix="eventctx-", dir=memory_folder()) as folder:
        yield Path(folder)


_sound: dict[bool, Sound] = {}


async def sound_store(*, closed: bool = True) -> Sound:
    """The store, with all its records in the file, or with all of them still in its log.

    One of each kind is made, for all tests of this process.
    """
    if closed in _sound:
        return _sound[closed]
    with scratch() as folder:
        files = await fill(folder, closed=closed)
        evidence = evidence_in(folder / STORE)
        query = "SELECT data FROM records UNION SELECT data FROM bodies"
        with apsw.Connection(str(folder / STORE)) as connection:
            contents = tuple(data for (data,) in connection.execute(query) if data)
        connection.close()
        write_files(folder, files)
        answers = await ask(folder)
        shown = {*_shown(answers), *await _ever_sent(folder)}
    failed = {name: one for name, one in answers.items() if isinstance(one, BaseException)}
    assert not failed, failed
    assert answers["verify_store"] is True
    _sound[closed] = Sound(files, evidence, answers, frozenset(shown), contents)
    return _sound[closed]


async def _ever_sent(folder: Path) -> list[bytes]:
    """The messages of all requests; with the log's end gone, an earlier one is the present one."""
    async with eventctx.open(folder / STORE, receipts=False) as engine:
        return [
            msgspec.json.encode(message)
            for one in SESSIONS
            for row in (await engine.audit(one)).requests
            for message in (await engine.request_view(one, position=row.position)).messages
        ]


def read_files(folder: Path) -> dict[str, bytes]:
    names = (STORE, STORE + "-wal", BOOK)
    return {one: (folder / one).read_bytes() for one in names if (folder / one).exists()}


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make the folder hold these files and nothing else."""
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)


def evidence_in(path: Path) -> Evidence:
    """What the file of a store holds of it, read with SQL."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.create_scalar_function("evident", _evident, 1)
    try:
        rows, facts = (
            [Counter(map(repr, connection.execute(query).fetchall())) for query in queries]
            for queries in (EVIDENCE, FACTS)
        )
        return Evidence(rows, facts)
    except (apsw.Error, ValueError) as error:
        return Evidence(f"{type(error).__name__}: {error}", None)
    finally:
        connection.close(True)


def _evident(stored: Any) -> Any:
    """The part of stored facts that is evidence; of what holds no facts, all of it."""
    try:
        facts = decode_facts(stored)
    except (DecodeError, TypeError):
        return stored
    return repr((facts.role, facts.dialect, facts.results, facts.mark))


# -- questions -------------------------------------------------------------------------------------


async def ask(folder: Path) -> dict[str, object]:
    """The answers of the store in a folder by the name of the question; an error is one, too."""
    answers: dict[str, object] = {}

    async def note(name: str, question: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(60):
                answers[name] = await question()
        except Exception as error:
            answers[name] = error

    async def all_of_them() -> None:
        async with eventctx.open(folder / STORE, receipts=folder / BOOK) as engine:
            for name, question in _questions(engine).items():
                await note(name, question)

    await note("open", all_of_them)
    return answers


def _questions(engine: Engine) -> dict[str, Callable[[], Awaitable[object]]]:
    async def verified() -> bool:
        return (await engine.verify_store()).ok

    async def exported(session: str) -> object:
        info = await engine.store.head(session)
        assert info is not None or session not in {one.stream for one in await engine.sessions()}
        return [] if info is None else [line async for line in export_lines(engine.store, info)]

    async def transcript(session: str) -> object:
        return [one.message for one in await engine.transcript(session)]

    async def requested(session: str) -> object:
        # Room for a plan in force, and no reason for another one.
        return await (await engine.session(session, max_tokens=100_000)).get_messages_for_request()

    async def recalled() -> object:
        found = await engine.recall("question OR result OR given")
        return sorted((one.session, one.number, one.snippet) for one in found)

    async def listed() -> object:
        return sorted(one.stream for one in await engine.sessions())

    questions: dict[str, Callable[[], Awaitable[object]]] = {}
    questions |= {"verify_store": verified, "sessions": listed, "recall": recalled}
    for one in SESSIONS:
        questions[f"transcript {one}"] = lambda one=one: transcript(one)
        questions[f"audit {one}"] = lambda one=one: engine.audit(one)
        questions[f"export {one}"] = lambda one=one: exported(one)
        # Last: opening a session and asking for a request both append.
        questions[f"request {one}"] = lambda one=one: requested(one)
    return questions


# -- the judgement ---------------------------------------------------------------------------------


def judge(sound: Sound, evidence: Evidence, answers: Mapping[str, object]) -> Judgement:
    broken: list[str] = []
    for name, answer in answers.items():
        if isinstance(answer, BaseException) and not isinstance(answer, EventctxError):
            broken.append(f"{name}: raised\n{''.join(traceback.format_exception(answer))}")
    found = isinstance(answers["open"], EventctxError) or answers["verify_store"] is not True
    broken += [f"changed text is shown: {text!r}" for text in (set(_shown(answers)) - sound.shown)]
    differing = [name for name, answer in answers.items() if answer != sound.answers[name]]
    if not found and evidence.rows != sound.evidence.rows:
        broken.append("the evidence was changed, and nothing was found")
    if not found and differing and evidence.facts == sound.evidence.facts:
        broken.append(f"not found, and other answers to {differing}")
    return Judgement("found" if found else "harmless", tuple(broken))


def _shown(answers: Mapping[str, object]) -> Iterator[bytes]:
    for name, answer in answers.items():
        if name.startswith(("transcript", "request")) and isinstance(answer, list):
            for message in map(msgspec.json.encode, answer):
                # A call whose result was cut off gets one that says so, and a view whose first
                # message has another role an opening.
                if not any(text.encode() in message for text in MADE_UP):
                    yield message


async def survives(sound: Sound, folder: Path, damage: Callable[[Path], Any]) -> Judgement:
    write_files(folder, sound.files)
    damage(folder / STORE)
    evidence = evidence_in(folder / STORE)
    (folder / (STORE + "-shm")).unlink(missing_ok=True)
    return judge(sound, evidence, await ask(folder))
