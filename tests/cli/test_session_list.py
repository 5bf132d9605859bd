"""``sessions``: titles, projects, order, short names; rows that go on, and very long lists."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.log.events import SessionEnd
from eventctx.log.record import Draft
from eventctx.log.store import ANY
from eventctx.projections import session_sums
from eventctx.queries.costs import dollars_of_call, read_prices, session_costs
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import SUFFIX, sum_session, sum_sessions
from eventctx.queries.session_names import fits, short_names
from tests.how_much import some
from tests.importers.given import SESSION, ClaudeCode, jsonl, text
from tests.stores.many_sessions import make, run_measured
from tests.web.made_sessions import SESSIONS as MADE

HOSTILE = "\x1b[2Jred\x07 \u202eback\u2066 👩‍👩‍👧 漢字 " + "long " * 200_000


def said(path: Path, session: str, words: str) -> None:
    async def say() -> None:
        async with eventctx.open(path) as engine:
            await (await engine.session(session)).add_message({"role": "user", "content": words})

    asyncio.run(say())


@pytest.fixture
def three(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    for name, words in (("b-old", "Mend the roof"), ("a-new", "Paint it"), ("c", "Sell it")):
        said(path, name, words)
    said(path, "b-old", "again")
    return path


def names(done: Any) -> list[str]:
    return [row["session"] for row in done.document]


def test_the_session_that_was_used_last_comes_first(run: Any, three: Path) -> None:
    listed = ("sessions", "--json", "--store", three)
    assert names(run(*listed)) == ["b-old", "c", "a-new"]
    assert names(run(*listed, "--sort", "made")) == ["b-old", "a-new", "c"]
    assert names(run(*listed, "--sort", "messages", "--limit", 1)) == ["b-old"]
    assert names(run(*listed, "--after", "b-old")) == ["a-new", "c"]
    assert run(*listed, "--after", "b-old", "--sort", "tokens").code == 2
    assert run(*listed, "--sort", "colour").code == 2


def test_sessions_are_chosen_by_words_of_their_title(run: Any, three: Path) -> None:
    assert names(run("sessions", "--json", "--grep", "ROOF", "--store", three)) == ["b-old"]
    assert names(run("sessions", "--json", "--grep", "new", "--store", three)) == ["a-new"]
    assert names(run("sessions", "--json", "--project", "x", "--store", three)) == []
    assert "None of 3 sessions fits." in run("sessions", "--grep", "zz", "--store", three).out


def imported(run: Any, folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / "talk.jsonl"
    path.write_bytes(data)
    assert run("import", path, "--store", folder / "s.db").code == 0
    (row,) = run("sessions", "--json", "--store", folder / "s.db").document
    return dict(row)


def test_a_title_that_the_file_gives_goes_before_and_the_last_one_holds(
    run: Any, tmp_path: Path
) -> None:
    log = ClaudeCode().user("Mend the roof").answer("m1", text("x")).user("Thanks.").user("Bye.")
    rows = [
        {"type": "ai-title", "aiTitle": "A roof", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": 'The "old" roof', "sessionId": SESSION},
    ]
    row = imported(run, tmp_path, log.data() + jsonl(rows))
    assert row["title"] == 'The "old" roof'


@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "two batches"])
def test_a_persons_name_wins_over_a_title_that_was_generated_later(
    apart: bool, run: Any, tmp_path: Path
) -> None:
    log = ClaudeCode().user("Mend the roof").answer("m1", text("x")).user("Thanks.").user("Bye.")
    named = jsonl([{"type": "custom-title", "customTitle": "My roof", "sessionId": SESSION}])
    long = ClaudeCode().progress(output="y" * 200_000).data() if apart else b""
    later = jsonl([{"type": "ai-title", "aiTitle": "Roof repair", "sessionId": SESSION}])
    assert imported(run, tmp_path, log.data() + named + long + later)["title"] == "My roof"


def test_a_project_is_the_folder_that_the_file_names(run: Any, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x")).user("Thanks.").user("Bye.")
    data = log.data().replace(b'{"', b'{"cwd":"C:\\\\work\\\\\\u00fcber","', 1)
    assert imported(run, tmp_path, data)["project"] == "C:\\work\\über"


@pytest.mark.parametrize("width", [60, 200])
def test_a_row_is_a_line_whatever_its_title_holds(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(tmp_path / "s.db", "odd", HOSTILE)
    said(tmp_path / "s.db", "0f" * 16, "plain")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = CliRunner().invoke(cli, ["sessions", "--store", str(tmp_path / "s.db")]).output
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert len(shown) == 4, shown
    assert "\x1b" not in shown[3] and "\u202e" not in shown[3]
    assert ("● now" if width < 140 else "● 20") in shown[3]
    from rich.cells import cell_len

    assert max(map(cell_len, shown)) <= width


def test_a_session_that_was_ended_is_live_again_when_it_goes_on(run: Any, tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def end() -> None:
        async with eventctx.open(store) as engine:
            await (await engine.session("a")).emit(SessionEnd())

    def is_live() -> bool:
        (row,) = run("sessions", "--json", "--store", store).document
        return bool(row["live"])

    said(store, "a", "Mend the roof")
    assert is_live()
    asyncio.run(end())
    assert not is_live()
    said(store, "a", "One more thing")
    assert is_live()


IDS = [
    "258c7280-ae70-4798-800f-63464d01a85d",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-a881341",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-acompact-fffbd0",
    "019e1625-789d-76c0-80ab-3724b5ddb799",
    "019e1625-789d-76c0-80ab-3724b5ddb79a",
    "test_wire_stable[ag_ui]",
    "test_wire_stable[ag_ui]-2",
    "work",
]


def test_a_short_name_means_its_session_on_a_command_line(run: Any, tmp_path: Path) -> None:
    for name in IDS:
        said(tmp_path / "s.db", name, name)
    short = short_names(IDS)
    assert short["work"] == "work" and short[IDS[0]] == "258c7280"
    assert short[IDS[1]] == "258c7280…341"
    for name in IDS:
        (message,) = run("transcript", short[name], "--json", "--store", tmp_path / "s.db").document
        assert message["message"]["content"] == name, short[name]
    two = run("transcript", "019e", "--store", tmp_path / "s.db")
    assert two.code == 2 and "could be '019e1625" in two.err


def test_a_gap_stands_for_any_characters_of_a_name() -> None:
    assert fits("258c…341", IDS[1]) and not fits("258c…341", IDS[0])
    assert fits("…agent", IDS[1]) and not fits("258c…x…341", IDS[1])
    assert fits("work", "worker") and not fits("worker", "work")


@pytest.mark.slow
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
        for words in texts:
            await _said(store, "a", words)
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


FEW, MANY = 1_000, some(6_000, 10_000)


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
    # A name that is kept takes 100 bytes at the least, which a full run finds.
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


@pytest.mark.slow
def test_sessions_prints_a_page_behind_any_session(run, few) -> None:
    rows = run("sessions", "--after", "copy-0000500", "--limit", 2, "--json", "--store", few)
    assert [row["session"] for row in rows.document] == ["copy-0000501", "copy-0000502"]
    shown = run("sessions", "--limit", 3, "--sort", "made", "--store", few).out.splitlines()
    assert [line.split()[0] for line in shown] == ["session", "first", "copy-0000002",
                                                   "copy-0000003"]  # fmt: skip
    none = run("sessions", "--after", f"copy-{FEW:07}", "--json", "--store", few)
    assert none.document == []
    assert run("sessions", "--after", "nobody", "--store", few).code == 2
