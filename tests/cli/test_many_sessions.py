"""Lists of very many sessions: in pages, in the memory that a short list takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import eventctx
from tests.stores.many_sessions import make, run_measured

FEW, MANY = 1_000, 10_000


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("few") / "s.db", FEW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("many") / "s.db", MANY)


@pytest.mark.slow
def test_a_command_takes_no_more_memory_for_more_sessions(few, many) -> None:
    document, small = run_measured("verify", "--json", "--store", few)
    longer, large = run_measured("verify", "--json", "--store", many)
    assert (len(document), len(longer)) == (FEW, MANY)
    assert len({row["session"] for row in longer}) == MANY
    # A name that is kept takes 100 bytes at the least.
    assert large - small < 0.8 * 1024, f"{small} KiB for {FEW} sessions, {large} KiB for {MANY}"


def test_pages_of_sessions_follow_each_other_without_a_gap(few) -> None:
    async def pages() -> list[str]:
        names: list[str] = []
        async with eventctx.open(few, read_only=True) as engine:
            whole = [info.stream for info in await engine.sessions()]
            while page := await engine.sessions(after=names[-1] if names else None, limit=300):
                assert len(page) <= 300
                names += [info.stream for info in page]
            assert await engine.sessions(limit=0) == []
            with pytest.raises(eventctx.StreamNotFound):
                await engine.sessions(after="nobody")
            with pytest.raises(eventctx.InvalidSetting):
                await engine.sessions(limit=-1)
        assert names == whole
        return names

    assert len(asyncio.run(pages())) == FEW


def test_sessions_prints_a_page_behind_any_session(run, few) -> None:
    rows = run("sessions", "--after", "copy-0000500", "--limit", 2, "--json", "--store", few)
    assert [row["session"] for row in rows.document] == ["copy-0000501", "copy-0000502"]
    shown = run("sessions", "--limit", 3, "--sort", "made", "--store", few).out.splitlines()
    assert [line.split()[0] for line in shown] == ["session", "first", "copy-0000002",
                                                   "copy-0000003"]  # fmt: skip
    none = run("sessions", "--after", f"copy-{FEW:07}", "--json", "--store", few)
    assert none.document == []
    assert run("sessions", "--after", "nobody", "--store", few).code == 2
