"""Lists of very many sessions: in pages, in the memory that a short list takes."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

import eventctx
from eventctx.cli.output.opening import find_session
from tests.stores.many_sessions import make, run_measured

FEW, MANY = 1_000, 10_000


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("few") / "s.db", FEW)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("many") / "s.db", MANY)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "stats"])
def test_a_command_takes_no_more_memory_for_more_sessions(few, many, command) -> None:
    document, small = run_measured(command, "--json", "--store", few)
    longer, large = run_measured(command, "--json", "--store", many)
    if command == "stats":
        assert (document["sessions"], longer["sessions"]) == (FEW, MANY)
        assert longer["records"] == MANY * document["records"] // FEW
    else:
        assert (len(document), len(longer)) == (FEW, MANY)
        assert len({row["session"] for row in longer}) == MANY
    # A name that is kept takes 100 bytes at the least.
    assert large - small < 0.8 * 1024, f"{small} KiB for {FEW} sessions, {large} KiB for {MANY}"


def test_the_engine_goes_through_any_number_of_sessions_in_constant_memory(many) -> None:
    async def counted() -> tuple[int, int]:
        async with eventctx.open(many, read_only=True) as engine:
            count = 0
            async for _ in engine.each_session():
                count += 1
                if count == FEW:
                    tracemalloc.start()
            return count, tracemalloc.get_traced_memory()[1]

    try:
        count, peak = asyncio.run(counted())
    finally:
        tracemalloc.stop()
    assert count == MANY
    assert peak < 2_000_000


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


def test_a_page_has_the_asked_number_of_sessions_although_some_were_deleted(tmp_path) -> None:
    async def page() -> list[str]:
        async with eventctx.open(tmp_path / "s.db", receipts=False) as engine:
            for name in "abcdef":
                await (await engine.session(name)).add_message({"role": "user", "content": name})
            await engine.delete("b")
            await engine.delete("d")
            return [info.stream for info in await engine.sessions(after="a", limit=2)]

    assert asyncio.run(page()) == ["c", "e"]


def test_sessions_prints_a_page_behind_any_session(run, few) -> None:
    rows = run("sessions", "--after", "copy-0000500", "--limit", 2, "--json", "--store", few)
    assert [row["session"] for row in rows.document] == ["copy-0000501", "copy-0000502"]
    shown = run("sessions", "--limit", 3, "--sort", "made", "--store", few).out.splitlines()
    assert [line.split()[0] for line in shown] == ["session", "first", "copy-0000002",
                                                   "copy-0000003"]  # fmt: skip
    none = run("sessions", "--after", f"copy-{FEW:07}", "--json", "--store", few)
    assert none.document == []
    assert run("sessions", "--after", "nobody", "--store", few).code == 2


def test_a_long_table_has_one_line_of_titles(run, many) -> None:
    shown = run("sessions", "--limit", 2_500, "--store", many).out.splitlines()
    assert len(shown) == 2_501
    assert sum(line.startswith("session ") for line in shown) == 1


def test_a_session_is_found_by_its_name_or_its_beginning_among_many(many) -> None:
    async def found() -> None:
        async with eventctx.open(many, read_only=True) as engine:
            for name, whole in (
                ("copy-0009999", "copy-0009999"),
                ("fi", "first"),
                (f"copy-{MANY:07}"[:-1], "copy-0010000"),
            ):
                assert (await find_session(engine.store, name)).stream == whole
            with pytest.raises(eventctx.InvalidSetting, match="or 9996 others; give more"):
                await find_session(engine.store, "copy")
            with pytest.raises(eventctx.StreamNotFound, match="did you mean 'first'"):
                await find_session(engine.store, "frst")

    asyncio.run(found())
