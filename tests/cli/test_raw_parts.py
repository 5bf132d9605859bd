"""Parts of an imported file that became no message can be read again, as text."""

from __future__ import annotations

import json
import zlib

import pytest

from eventctx.errors import DecodeError
from eventctx.log.codec import encode_event, unpacked
from eventctx.log.events import ImportRaw
from eventctx.log.record import Draft, Record, make_body
from eventctx.log.store import ANY
from eventctx.stores.memory import MemoryStore


def line(kind: str, number: int, **more) -> str:
    row = {"type": kind, "uuid": f"u{number}", "parentUuid": None, "sessionId": "s-1"}
    return json.dumps({**row, "timestamp": f"2026-01-02T03:04:{number:02}.000Z", **more})


@pytest.fixture
def imported(run, tmp_path):
    """A Claude Code session of two messages, with forty lines that became none."""
    file, store = tmp_path / "s-1.jsonl", tmp_path / "s.db"
    note = {"data": {"note": "spinning é \x1b[31m" + "z" * 600}}
    rows = [line("user", 1, message={"role": "user", "content": "hello"})]
    rows += [line("progress", number, **note) for number in range(2, 42)]
    file.write_text("\n".join(rows) + "\n")
    assert run("import", file, "--store", store).code == 0
    return store


def test_the_log_shows_kept_parts_as_text_and_names_both_lengths(run, imported):
    shown = run("log", "s-1", "--store", imported)
    (row,) = [one for one in shown.out.splitlines() if "import:raw" in one and "progress" in one]
    assert "lines " in row and "progress 40" in row and " in a zlib container" in row
    out = run("log", "s-1", "--type", "import:raw", "--bodies", "--store", imported).out
    assert '"note": "spinning ' in out
    assert "characters more" in out and "lines more; --json has all" in out
    assert max(map(len, out.splitlines())) < 500 and len(out.splitlines()) < 60
    assert "\x1b" not in out and "\ufffd" not in out


def test_json_has_the_whole_text_of_kept_parts(run, imported):
    rows = run(
        "log", "s-1", "--type", "import:raw", "--bodies", "--json", "--store", imported
    ).lines
    bodies = [body for row in rows for body in row["bodies"]]
    packed = [body for body in bodies if body["container_bytes"] < body["content_bytes"]]
    assert packed
    for body in bodies:
        assert len(body["content"].encode()) == body["content_bytes"]
    kept = "\n".join(body["content"] for body in bodies).splitlines()
    notes = [json.loads(one) for one in kept if '"progress"' in one]
    assert len(notes) == 40
    assert notes[0]["data"]["note"].startswith("spinning é \x1b[31m")


async def record_of(data: bytes, encoding: str) -> Record:
    event = ImportRaw(source="x", lines=(1, 2), kinds={"x": 1}, imported_at=0, encoding=encoding)
    name, version, payload = encode_event(event)
    body = make_body(data, b"", lambda size: b"s" * size)
    store = MemoryStore()
    draft = Draft(b"i" * 16, name, version, 1, payload, (body,))
    await store.append("s", [draft], ANY)
    (stored,) = [record async for record in store.read("s", bodies=True)]
    return stored


async def test_a_container_that_claims_more_than_is_shown_is_unpacked_so_far_only():
    bomb = await record_of(zlib.compress(b"\0" * 50_000_000), "zlib")
    found = unpacked(bomb, 1_000)
    assert found is not None
    assert (found.data, found.length) == (b"\0" * 1_000, None)
    assert found.stored == len(bomb.bodies[0].data or b"") < 100_000


@pytest.mark.parametrize("data", [b"no zlib", zlib.compress(b"x" * 9_000)[:-8]])
async def test_a_damaged_container_is_named_as_such(data):
    with pytest.raises(DecodeError, match="packed with zlib"):
        unpacked(await record_of(data, "zlib"), 10_000)
