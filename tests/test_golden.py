"""Old logs always load: files of every stored schema version, which are never edited."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.log.codec import Unknown, decode_event, encode_event
from eventctx.log.events import CATALOGUE
from eventctx.log.record import GENESIS, Record
from eventctx.queries.transfer import import_drafts, read_drafts, read_header
from eventctx.stores.memory import MemoryStore

GOLDEN = Path(__file__).parent / "golden"


class Stored(msgspec.Struct):
    type: str
    version: int
    payload: msgspec.Raw


def stored_events() -> list[Stored]:
    files = sorted(GOLDEN.glob("events-v*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=Stored) for line in lines]


@pytest.mark.parametrize("stored", stored_events(), ids=lambda s: f"{s.type}-v{s.version}")
def test_a_stored_payload_of_every_version_reads_as_its_present_event(stored: Stored) -> None:
    payload = bytes(stored.payload)
    record = Record(
        "s", 0, 0, bytes(16), stored.type, stored.version, 0, payload, (), *[None] * 4, GENESIS
    )
    event: Any = decode_event(record)
    assert not isinstance(event, Unknown)
    if stored.version == CATALOGUE[stored.type].version:
        assert encode_event(event) == (stored.type, stored.version, payload)


def test_every_event_type_has_a_golden_payload_of_each_of_its_versions() -> None:
    wanted = {(n, v) for n, row in CATALOGUE.items() for v in range(1, row.version + 1)}
    assert {(stored.type, stored.version) for stored in stored_events()} == wanted


async def test_an_export_and_a_store_of_the_first_format_verify_and_go_on(tmp_path: Path) -> None:
    header, *lines = (GOLDEN / "export-v1.jsonl").read_bytes().splitlines()
    store = MemoryStore()
    said = read_header(header)
    assert await import_drafts(store, "again", read_drafts(lines)) == said.records
    engine = eventctx.Engine(store)
    proof = await engine.verify("again")
    assert proof.ok
    assert proof.receipt.digest.hex() == said.digest
    for row in (await engine.audit("again")).requests:
        assert (await engine.request_view("again", position=row.position)).verified
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN / "store-v1.sqlite", path)
    async with eventctx.open(path) as engine:
        assert [info.stream for info in await engine.sessions()] == ["golden", "branch"]
        for session in ("golden", "branch"):
            assert (await engine.verify(session)).ok
        audit = await engine.audit("golden")
        assert len(audit.requests) == 10
        assert any(row.outcome == "applied" for row in audit.compactions)
        for row in audit.requests:
            assert (await engine.request_view("golden", position=row.position)).verified
        ctx = await engine.session("golden")
        assert len(await ctx.get_messages()) == 23
        await ctx.add_message({"role": "user", "content": "and on"})
        assert (await engine.verify("golden")).ok
