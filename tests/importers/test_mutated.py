"""Files that are broken in any way are imported, or refused with an error that says what to do.

Mutated sessions of every format are in tests/faults/test_damage.py.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import EventctxError, MalformedTranscript
from eventctx.log.codec import stored_harness_bodies
from eventctx.log.ids import check_session_id
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import read_parts
from eventctx.queries.transfer import (
    export_lines,
    import_drafts,
    looks_like_export,
    read_drafts,
    read_header,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, load, records, text
from tests.importers.growing import SESSIONS, rows_of
from tests.importers.mutating import mutants_of, write


async def test_an_export_with_anything_in_it_is_imported_or_refused(tmp_path: Path) -> None:
    rows = await exported(tmp_path)
    for number, lines in enumerate(mutants_of(rows, "export", count=60, seed=1)):
        assert looks_like_export(lines[0]) in (True, False)
        store = MemoryStore()
        with contextlib.suppress(EventctxError):
            header = read_header(lines[0])
            await import_drafts(store, check_session_id(header.session), read_drafts(lines[1:]))
            assert (await Engine(store).verify(header.session)).ok, number


async def exported(folder: Path) -> list[dict[str, Any]]:
    path = folder / "file.jsonl"
    path.write_bytes(ClaudeCode().user("one").answer("m", text("two")).user("three").data())
    store = MemoryStore()
    await load(store, path, complete=True)
    (info,) = [one async for one in store.streams()]
    return [json.loads(line) async for line in export_lines(store, info)]


def test_no_first_line_keeps_a_file_from_being_looked_at() -> None:
    for line in (b'{"x":' + b"[" * 60_000, b"\xff", b'{"eventctx":"\xff"}', b'{"eventctx":1e999}'):
        assert not looks_like_export(line)
        with pytest.raises(MalformedTranscript, match="line 1"):
            read_header(line)


@pytest.mark.parametrize("field", ["position", "version", "time", "iteration"])
@pytest.mark.parametrize("value", [-1, 2**32, 2**63, 2**64, 10**400])
async def test_a_number_that_no_record_can_have_is_no_record(
    field: str, value: int, tmp_path: Path
) -> None:
    _, first, *_ = await exported(tmp_path)
    line = json.dumps({**first, field: value}).encode()
    with pytest.raises(MalformedTranscript, match="line 2"):
        list(read_drafts([line]))


@pytest.mark.slow
@pytest.mark.parametrize("name", SESSIONS)
async def test_a_record_with_the_id_of_another_one_hides_no_words_of_a_person(
    name: str, tmp_path: Path
) -> None:
    rows = rows_of(name)
    said = await persons_words(name, rows, tmp_path)
    for changed in with_an_id_twice(rows):
        assert said <= await persons_words(name, changed, tmp_path)


async def persons_words(name: str, rows: list[Any], folder: Path) -> Counter[str]:
    """The texts that persons said, in the transcript of a file of these rows."""
    path = write(folder, name, [json.dumps(row).encode() for row in rows])
    store = MemoryStore()
    done = await load(store, path, format=SESSIONS[name][0], complete=True)
    found: Counter[str] = Counter()
    for record in await records(store, done.session or ""):
        by_harness = stored_harness_bodies(record.type, record.payload).harness
        if record.type != "context:message_added" or by_harness:
            continue
        message = decode_body(record.bodies[0].data or b"")
        if read_facts(message).human:
            found.update([str(part.value) for part in read_parts(message) if part.kind == "text"])
    return found


def with_an_id_twice(rows: list[Any]) -> Iterator[list[Any]]:
    """Files in which a record has the id of the first one, or of the one before it."""
    places = list(ids_in(rows))
    for at, (key, own) in enumerate(places):
        earlier = [given for name, given in places[:at] if name == key and given != own]
        for taken in {*earlier[:1], *earlier[-1:]}:
            changed = copy.deepcopy(rows)
            set_id(changed, at, taken)
            yield changed


def ids_in(value: Any) -> Iterator[tuple[str, str]]:
    for holder, key in holders_of_ids(value):
        yield key, holder[key]


def set_id(value: Any, at: int, own: str) -> None:
    holder, key = list(holders_of_ids(value))[at]
    holder[key] = own


def holders_of_ids(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Every object with an id, and the id's name."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list):
            yield from holders_of_ids(inner)
        elif isinstance(inner, str) and key in ("id", "uuid"):
            yield value, key
