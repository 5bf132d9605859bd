"""What a sample of each format becomes in the log, record by record: the files in ``samples``.

``python -m tests.importers.test_samples`` writes them anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.load import ImportSummary
from eventctx.log.codec import raw_of
from eventctx.log.record import Record
from eventctx.stores.memory import MemoryStore
from tests.importers.given import jsonl
from tests.importers.growing import FILES, SESSIONS, rows_of
from tests.importers.taken import load, records

SAMPLES = Path(__file__).with_name("samples")
START = 1_767_261_600_000_000_000
"""2026-01-01T10:00:00Z, when the sessions of the samples begin."""

TEXTS = {
    name: FILES.get(name) or jsonl(rows_of(name)) for name in SESSIONS if name != "openhands-folder"
}
ELSEWHERE = {"library", "estimator", "renderer", "factor", "reserve", "tokens", "tokens_before"}
ELSEWHERE |= {"event", "digest", "folder", "imported_at", "tokens_after"}
"""Fields that say nothing of the file, or what another release writes otherwise."""


def described(record: Record) -> str:
    """A record in a line: seconds, turn and iteration, its event and its bodies."""
    fields = {key: v for key, v in json.loads(record.payload).items() if key not in ELSEWHERE}
    where = f"{(record.time - START) / 1e9:+.3f} {record.turn_id or '-'}.{record.iteration or '-'}"
    if record.type == "import:raw":
        return f"{where} import:raw {short(fields)}" + "".join(
            f"\n    {brief(part)}" for part in (raw_of(record) or b"").split(b"\n")
        )
    told = [brief(body.data or b"") for body in record.bodies]
    return " | ".join([f"{where} {record.type} {short(fields)}", *told])


def short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def brief(data: bytes) -> str:
    """A body, or its beginning and its digest."""
    text = data.decode()
    if len(text) <= 160:
        return text
    return f"{text[:100]}… {len(data)} {hashlib.sha256(data).hexdigest()[:12]}"


def summed(summary: ImportSummary) -> str:
    counted = ("format", "session", "messages", "turns", "calls", "compactions", "unknown")
    found = {name: getattr(summary, name) for name in counted}
    return short({**found, "warnings": summary.warnings, "waiting": summary.waiting})


async def told(name: str, folder: Path) -> str:
    """What an import of a file that may grow records, and what one of the whole file adds."""
    path = folder / "file.jsonl"
    path.write_bytes(TEXTS[name])
    store = MemoryStore()
    lines: list[str] = []
    for complete in (False, True):
        summary = await load(store, path, format=SESSIONS[name][0], complete=complete)
        found = await records(store, summary.session or "")
        added = found[len(found) - summary.added :]
        lines += [summed(summary), *map(described, added)]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("name", TEXTS)
async def test_a_sample_becomes_the_records_in_its_file(name: str, tmp_path: Path) -> None:
    assert await told(name, tmp_path) == (SAMPLES / f"{name}.txt").read_text("utf-8")


if __name__ == "__main__":
    SAMPLES.mkdir(exist_ok=True)
    for name in TEXTS:
        with tempfile.TemporaryDirectory() as folder:
            text = asyncio.run(told(name, Path(folder)))
        (SAMPLES / f"{name}.txt").write_text(text, "utf-8")
