"""Files that are broken in any way are imported, or refused with an error that says what to do.

Mutated sessions of every format are in tests/faults/test_damage.py.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import EventctxError, MalformedTranscript
from eventctx.log.ids import check_session_id
from eventctx.queries.transfer import (
    export_lines,
    import_drafts,
    looks_like_export,
    read_drafts,
    read_header,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.given import ClaudeCode, load, text
from tests.importers.mutating import mutants_of


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
