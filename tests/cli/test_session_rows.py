"""A session's row: continued from an earlier list it is the row that all its records give."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import eventctx
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.projections import session_sums
from eventctx.queries.costs import dollars_of_call, read_prices, session_costs
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import SUFFIX, sum_session, sum_sessions
from tests.web.made_sessions import SESSIONS as MADE


@pytest.mark.parametrize("name", MADE)
async def test_sums_that_are_continued_anywhere_are_those_of_all_records(name: str) -> None:
    engine, _ = await MADE[name]()
    for info in await engine.sessions():
        whole = await sum_session(engine.store, info, ReadErrors())
        own = info.parent is None  # the list of a fork counts what it shares, its audit does not
        assert not own or whole.requests == len((await engine.audit(info.stream)).requests)
        assert whole.messages == len(await engine.transcript(info.stream))
        calls = (await session_costs(engine.store, info.stream, read_prices())).calls
        assert calls is not None
        assert whole.cost == (pytest.approx(calls.total.total) if calls.by_model else None)
        assert whole.unpriced == sum(calls.unpriced.values())
        sums = session_sums.initial()
        async for record in engine.store.read(info.stream, bodies=False):
            shared = info.forked_at is not None and record.position <= info.forked_at
            sums = session_sums.evolve(sums, record, None if shared else dollars_of_call)
            if record.position % 7 == 0:
                assert await sum_session(engine.store, info, ReadErrors(), sums) == whole
        assert sums == whole


async def _said(path: Path, session: str, text: str) -> None:
    async with eventctx.open(path) as engine:
        await (await engine.session(session)).add_message({"role": "user", "content": text})


async def _messages(path: Path) -> dict[str, int]:
    async with eventctx.open(path) as engine:
        found = await sum_sessions(engine.store, ReadErrors())
        return {one.info.stream: one.sums.messages for one in found}


async def test_what_was_summed_up_is_read_again_only_from_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await _said(path, "a", "one")
    assert await _messages(path) == {"a": 1}
    kept = path.with_name(path.name + SUFFIX)
    # Were the first record read again, the count in the file would be of no effect.
    document = msgspec.json.decode(kept.read_bytes())
    document["sums"]["a"]["messages"] = 41
    kept.write_bytes(msgspec.json.encode(document))
    assert await _messages(path) == {"a": 41}
    await _said(path, "a", "two")
    assert await _messages(path) == {"a": 42}


@pytest.mark.parametrize(
    "found",
    [
        *(b"", b"{", b'{"eventctx_sessions":1}', b"\xff"),
        b'{"eventctx_sessions":9,"prices":"2026-11-28","sums":{}}',
    ],
)
async def test_a_file_of_sums_that_cannot_be_used_costs_a_reading(
    found: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    await _said(path, "a", "one")
    kept = path.with_name(path.name + SUFFIX)
    kept.write_bytes(found)
    assert await _messages(path) == {"a": 1}
    # A file that somebody else made is left alone.
    assert (kept.read_bytes() == found) == (not found.startswith(b'{"eventctx_sessions":'))


async def test_sums_of_another_session_of_the_name_are_not_continued(tmp_path: Path) -> None:
    path, other = tmp_path / "s.db", tmp_path / "t.db"
    for store, texts in ((path, ["one"]), (other, ["uno", "due", "tre"])):
        for text in texts:
            await _said(store, "a", text)
        assert await _messages(store) == {"a": len(texts)}
    kept = path.with_name(path.name + SUFFIX)
    document = msgspec.json.decode(kept.read_bytes())
    document["sums"]["a"]["messages"] = 41
    other.with_name(other.name + SUFFIX).write_bytes(msgspec.json.encode(document))
    assert await _messages(other) == {"a": 3}


def test_no_text_stands_in_the_file_of_sums_and_an_erased_title_is_gone(
    run: Any, tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    asyncio.run(_said(path, "a", "The secret word is heron."))
    assert "heron" in run("sessions", "--store", path).out
    assert b"heron" not in path.with_name(path.name + SUFFIX).read_bytes()
    run("erase", "a", 0, "--yes", "--store", path)
    (row,) = run("sessions", "--json", "--store", path).document
    assert row["title"] is None


async def _damaged(path: Path, session: str) -> None:
    draft = Draft(bytes(16), "usage:reported", 1, 1_700_000_000, b"{", turn_id="t")
    async with eventctx.open(path) as engine:
        await engine.store.append(session, [draft], ANY)


def test_what_is_damaged_is_told_by_every_list(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    asyncio.run(_said(path, "a", "one"))
    asyncio.run(_said(path, "b", "two"))
    asyncio.run(_damaged(path, "b"))
    first, second = (run("sessions", "--json", "--store", path) for _ in range(2))
    assert first.code == second.code == 1
    assert first.err == second.err and "passed over" in second.err
    assert first.document == second.document
