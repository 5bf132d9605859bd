"""``sessions`` lists sessions, however many, and ``search`` chooses messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.events import SessionEnd
from eventctx.log.record import Body, Draft
from eventctx.log.store import ANY, Address
from eventctx.projections import session_sums
from eventctx.queries.costs import dollars_of_call, read_prices, session_costs
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import SUFFIX, sum_session, sum_sessions
from eventctx.queries.session_names import fits, short_names
from eventctx.search.found import MessageFilter, find_messages, read_moment
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.stores.memory import MemoryStore
from tests.cli.conftest import Run, imported, say
from tests.how_much import some
from tests.importers.given import SESSION, ClaudeCode, jsonl, text
from tests.sessions import tool_round
from tests.stores.many_sessions import make, run_measured
from tests.web.made_sessions import SESSIONS as MADE

HOSTILE = "\x1b[2Jred\x07 \u202eback\u2066 👩‍👩‍👧 漢字 " + "long " * 200_000


def listed(run: Run, *options: object) -> list[dict[str, Any]]:
    return list(run("sessions", "--json", *options).document)


def names(run: Run, *options: object) -> list[str]:
    return [row["session"] for row in listed(run, *options)]


def test_the_last_used_comes_first_and_words_choose_some(run: Run, tmp_path: Path) -> None:
    said = (("b-old", "Mend the roof"), ("a-new", "Paint it"), ("c", "Sell it"), ("b-old", "again"))
    for name, words in said:
        say(tmp_path / "s.db", name, words)
    assert names(run) == ["b-old", "c", "a-new"]
    assert names(run, "--sort", "made") == ["b-old", "a-new", "c"]
    assert names(run, "--sort", "messages", "--limit", 1) == ["b-old"]
    assert names(run, "--after", "b-old") == ["a-new", "c"]
    assert names(run, "--grep", "ROOF") == ["b-old"]
    assert names(run, "--grep", "new") == ["a-new"] and names(run, "--project", "x") == []
    run("sessions", "--grep", "zz").ok("None of 3 sessions fits.")


GENERATED = {"type": "ai-title", "aiTitle": "A roof", "sessionId": SESSION}
NAMED = {"type": "custom-title", "customTitle": 'The "old" roof', "sessionId": SESSION}


@pytest.mark.parametrize(
    "rows",
    [
        jsonl([GENERATED]) + jsonl([NAMED]),
        jsonl([NAMED]) + jsonl([GENERATED]),
        jsonl([NAMED]) + ClaudeCode().progress(output="y" * 200_000).data() + jsonl([GENERATED]),
    ],
    ids=["last", "first", "in a batch before"],
)
def test_a_name_wins_over_a_generated_title(rows: bytes, run: Run, tmp_path: Path) -> None:
    log = ClaudeCode().user("Mend the roof").answer("m1", text("x")).user("Thanks.").user("Bye.")
    data = log.data().replace(b'{"', b'{"cwd":"C:\\\\work\\\\\\u00fcber","', 1)
    imported(run, tmp_path, data + rows)
    (row,) = listed(run)
    assert (row["title"], row["project"]) == ('The "old" roof', "C:\\work\\über")


@pytest.mark.parametrize("width", [60, 200])
def test_any_title_is_one_line(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(tmp_path / "s.db", "odd", HOSTILE)
    say(tmp_path / "s.db", "0f" * 16, "plain")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = CliRunner().invoke(cli, ["sessions", "--store", str(tmp_path / "s.db")]).output
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert len(shown) == 4, shown
    assert "\x1b" not in shown[3] and "\u202e" not in shown[3]
    assert ("● now" if width < 140 else "● 20") in shown[3]
    from rich.cells import cell_len

    assert max(map(cell_len, shown)) <= width


async def test_a_session_that_was_ended_is_live_again_later(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    def is_live() -> bool:
        return [bool(row["live"]) for row in listed(run)] == [True]

    say(store, "a", "Mend the roof")
    assert is_live()
    async with eventctx.open(store) as engine:
        await (await engine.session("a")).emit(SessionEnd())
    assert not is_live()
    say(store, "a", "One more thing")
    assert is_live()


IDS = [
    "258c7280-ae70-4798-800f-63464d01a85d",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-a881341",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-acompact-fffbd0",
    *("019e1625-789d-76c0-80ab-3724b5ddb799", "019e1625-789d-76c0-80ab-3724b5ddb79a"),
    *("test_wire_stable[ag_ui]", "test_wire_stable[ag_ui]-2", "work"),
]


def test_a_short_name_means_its_session_on_a_command_line(run: Run, tmp_path: Path) -> None:
    for name in IDS:
        say(tmp_path / "s.db", name, name)
    short = short_names(IDS)
    assert short["work"] == "work" and short[IDS[0]] == "258c7280"
    assert short[IDS[1]] == "258c7280…341"
    for name in IDS:
        (message,) = run("transcript", short[name], "--json").document
        assert message["message"]["content"] == name, short[name]
    run("transcript", "019e").fails("could be '019e1625")
    # A gap stands for any characters.
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


async def counted(path: Path) -> dict[str, int]:
    """The messages of each session, by the list."""
    async with eventctx.open(path) as engine:
        found = await sum_sessions(engine.store, ReadErrors())
        return {one.info.stream: one.sums.messages for one in found}


def told_41(path: Path) -> bytes:
    """The file of a store's sums, in which session ``a`` has 41 messages."""
    document = msgspec.json.decode(path.with_name(path.name + SUFFIX).read_bytes())
    document["sums"]["a"]["messages"] = 41
    return msgspec.json.encode(document)


async def test_sums_of_this_session_are_continued_and_no_others(tmp_path: Path) -> None:
    path, other = say(tmp_path / "s.db", "a", "one"), tmp_path / "t.db"
    assert await counted(path) == {"a": 1}
    # Were the first record read again, the count in the file would be of no effect.
    wrong = told_41(path)
    path.with_name(path.name + SUFFIX).write_bytes(wrong)
    assert await counted(path) == {"a": 41}
    say(path, "a", "two")
    assert await counted(path) == {"a": 42}
    assert await counted(say(other, "a", "uno", "due", "tre")) == {"a": 3}
    other.with_name(other.name + SUFFIX).write_bytes(wrong)
    assert await counted(other) == {"a": 3}


@pytest.mark.parametrize(
    "found",
    [
        *(b"", b"{", b'{"eventctx_sessions":1}', b"\xff"),
        b'{"eventctx_sessions":9,"prices":"2026-11-28","sums":{}}',
    ],
)
async def test_sums_that_cannot_be_used_cost_a_reading(found: bytes, tmp_path: Path) -> None:
    path = say(tmp_path / "s.db", "a", "one")
    kept = path.with_name(path.name + SUFFIX)
    kept.write_bytes(found)
    assert await counted(path) == {"a": 1}
    # A file that somebody else made is left alone.
    assert (kept.read_bytes() == found) == (not found.startswith(b'{"eventctx_sessions":'))


def test_sums_hold_no_text_and_an_erased_title_is_gone(run: Run, tmp_path: Path) -> None:
    path = say(tmp_path / "s.db", "a", "The secret word is heron.")
    run("sessions").ok("heron")
    assert b"heron" not in path.with_name(path.name + SUFFIX).read_bytes()
    run("erase", "a", 0, "--yes")
    assert [row["title"] for row in listed(run)] == [None]


async def test_what_is_damaged_is_told_by_every_list(run: Run, tmp_path: Path) -> None:
    path = say(tmp_path / "s.db", "a", "one")
    say(path, "b", "two")
    draft = Draft(bytes(16), "usage:reported", 1, 1_700_000_000, b"{", turn_id="t")
    async with eventctx.open(path) as engine:
        await engine.store.append("b", [draft], ANY)
    first, second = (run("sessions", "--json") for _ in range(2))
    assert first.code == second.code == 1
    assert first.err == second.err and "passed over" in second.err
    assert first.document == second.document


FEW, MANY = 1_000, some(6_000, 10_000)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("few") / "s.db", FEW)


@pytest.mark.slow
def test_a_command_takes_no_more_memory_for_more_sessions(few, tmp_path) -> None:
    document, small = run_measured("verify", "--json", "--store", few)
    many = make(tmp_path / "s.db", MANY)
    longer, large = run_measured("verify", "--json", "--store", many)
    assert (len(document), len(longer)) == (FEW, MANY)
    assert len({row["session"] for row in longer}) == MANY
    # A name that is kept takes 100 bytes at the least, which a full run finds.
    assert large - small < 0.8 * 1024, f"{small} KiB for {FEW} sessions, {large} KiB for {MANY}"


async def test_pages_of_sessions_follow_each_other_without_a_gap(run, few) -> None:
    streams: list[str] = []
    async with eventctx.open(few, read_only=True) as engine:
        whole = [info.stream for info in await engine.sessions()]
        while page := await engine.sessions(after=streams[-1] if streams else None, limit=300):
            assert len(page) <= 300
            streams += [info.stream for info in page]
        assert await engine.sessions(limit=0) == []
        with pytest.raises(eventctx.StreamNotFound):
            await engine.sessions(after="nobody")
        with pytest.raises(eventctx.InvalidSetting):
            await engine.sessions(limit=-1)
    assert (len(streams), streams) == (FEW, whole)
    behind = names(run, "--after", "copy-0000500", "--limit", 2, "--store", few)
    assert behind == ["copy-0000501", "copy-0000502"]
    shown = run("sessions", "--limit", 3, "--sort", "made", "--store", few).out.splitlines()
    firsts = [line.split()[0] for line in shown]
    assert firsts == ["session", "first", "copy-0000002", "copy-0000003"]
    assert names(run, "--after", f"copy-{FEW:07}", "--store", few) == []
    run("sessions", "--after", "nobody", "--store", few).fails()


def row(number: int, role: str, content: Any) -> dict[str, Any]:
    """A line of a Claude Code file, said in the morning of that day of March."""
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number > 1 else None,
        "sessionId": "s",
        "timestamp": f"2026-03-0{number}T10:00:00Z",
        "message": {"id": f"m{number}", "role": role, "model": "m", "content": content},
    }


def call(name: str, call_id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": {"path": "table.txt"}}]


def result(call_id: str, text: str, *, failed: bool = False) -> list[dict[str, Any]]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return [{**block, "is_error": True} if failed else block]


@pytest.fixture
def talk(run: Run, tmp_path: Path) -> Path:
    """A store with one session of seven messages, one a day from March 1 on."""
    said = [
        ("user", "Mend the table."),
        ("assistant", call("Read", "c1")),
        ("user", result("c1", "The table has three legs.")),
        ("assistant", call("Bash", "c2")),
        ("user", result("c2", "No table here.", failed=True)),
        ("assistant", [{"type": "text", "text": "The table is gone."}]),
        ("user", "Thanks."),
    ]
    return imported(run, tmp_path, [row(number, *one) for number, one in enumerate(said, 1)])


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ("--role person", [6, 0]),
        ("--role model", [5, 3, 1]),
        ("--role result", [4, 2]),
        ("--tool read", [2, 1]),
        ("--tool Bash --role result", [4]),
        ("--errors", [4]),
        ("--since 2026-03-05", [6, 5, 4]),
        ("--until 2026-03-02", [1, 0]),
        ("--since 2026-03-02T10:00 --until 2026-03-03T10:00", [1]),
        ("--role host", []),
        ("legs --errors", []),
    ],
)
def test_options_choose_messages_the_latest_first_and_words_must_fit_too(
    run: Run, talk: Path, asked: str, numbers: list[int]
) -> None:
    found = run("search", *asked.split(), "--json").document
    assert [one["number"] for one in found] == numbers


def test_words_and_options_must_both_fit(run: Run, talk: Path) -> None:
    found = run("search", "table", "--role", "result", "--json").document
    assert sorted(one["number"] for one in found) == [2, 4]
    some = run("search", "table", "--role", "model", "--limit", 1)
    some.ok("The best 1 of 3 messages")


def test_a_message_without_a_time_of_its_own_is_of_no_day(run: Run, tmp_path: Path) -> None:
    imported(run, tmp_path, [{"role": "user", "content": "Mend the table."}])
    assert len(run("search", "table", "--json").document) == 1
    assert run("search", "table", "--since", "2026-01-01", "--json").document == []


def test_what_a_fork_inherits_is_found_in_it_and_once_in_all(run: Run, tmp_path: Path) -> None:
    store = say(tmp_path / "s.db", "a", "Mend the table.")
    run("fork", "a", "b", "--at", 1).ok()
    say(store, "b", "Paint it.")
    asked = ("search", "--role", "person", "--json")
    found = run(*asked).document
    assert [(one["session"], one["number"]) for one in found] == [("b", 1), ("a", 0)]
    found = run(*asked, "--session", "b").document
    assert [(one["session"], one["number"]) for one in found] == [("b", 1), ("b", 0)]


def test_a_day_that_ends_a_search_counts_whole() -> None:
    day = 86_400 * 10**9
    assert read_moment("2026-03-02", is_end=True) - read_moment("2026-03-02") == day
    assert read_moment("2026-03-02T12:00+02:00") == read_moment("2026-03-02T10:00Z")
    with pytest.raises(InvalidSetting, match="found 'soon'"):
        read_moment("soon")


async def test_a_result_with_the_id_of_ollamas_call_is_one_of_its_tool() -> None:
    call = {"id": "call_a", "function": {"name": "read", "arguments": {"path": "a.py"}}}
    result = {"role": "tool", "tool_call_id": "call_a", "content": "import os"}
    rows = [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
    store = MemoryStore()
    await (await Engine(store).session("s")).add_messages(rows)
    assert await of_tool(store, "read") == [1, 0]


async def of_tool(store: MemoryStore, tool: str) -> list[int]:
    recall = Recall(store, SqliteTextIndex(None))
    found, _ = await find_messages(store, recall, "", "s", 500, MessageFilter(tool=tool))
    await recall.close()
    return [one.number for one in found]


class CountingReads(MemoryStore):
    reads = 0

    async def bodies(self, stream: str, addresses: Sequence[Address]) -> list[Body]:
        self.reads += 1
        return await super().bodies(stream, addresses)


async def test_the_calls_of_results_are_read_many_at_a_time() -> None:
    store = CountingReads()
    ctx = await Engine(store).session("s")
    await ctx.add_messages([row for number in range(100) for row in tool_round(number)])
    store.reads = 0
    assert await of_tool(store, "READ") == list(reversed(range(200)))
    assert store.reads < 10
    assert await of_tool(store, "write") == []
