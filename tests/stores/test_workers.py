"""Every store takes what the worker processes of an import read."""

from __future__ import annotations

from pathlib import Path

from eventctx.importers.many import import_paths
from eventctx.log.store import EventStore
from eventctx.queries.verify import verify
from tests.benchmarks.importing import write_transcript
from tests.how_much import some
from tests.importers.in_workers import import_alike


async def test_workers_fill_a_store_and_a_second_import_finds_all_of_it(
    store: EventStore, tmp_path: Path
) -> None:
    for number in range(3):
        write_transcript(tmp_path / f"{number}.jsonl", some(150_000, 1_500_000), number)
    first, again = [
        await import_paths(store, [tmp_path], importing=import_alike, workers=2, workers_from=0)
        for _ in range(2)
    ]
    assert first.passed_over == again.passed_over == ()
    assert (first.total.sessions, again.total.added) == (3, 0)
    for one in first.sessions:
        checked = await verify(store, one.session or "")
        assert (checked.ok, checked.records) == (True, one.added)
