"""``search`` chooses messages by who spoke, by a tool, by a failed result and by a day."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.record import Body
from eventctx.log.store import Address
from eventctx.search.found import MessageFilter, find_messages, read_moment
from eventctx.search.recall import Recall
from eventctx.search.sqlite_index import SqliteTextIndex
from eventctx.stores.memory import MemoryStore
from tests.cli.conftest import Run, imported, say
from tests.sessions import tool_round


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


def test_words_and_options_must_both_fit_and_one_of_them_is_needed(run: Run, talk: Path) -> None:
    found = run("search", "table", "--role", "result", "--json").document
    assert sorted(one["number"] for one in found) == [2, 4]
    some = run("search", "table", "--role", "model", "--limit", 1)
    some.ok("The best 1 of 3 messages")
    run("search").fails()
    run("search", "--since", "tomorrow").fails("2026-11-30")


def test_a_message_without_a_time_of_its_own_is_of_no_day(run: Run, tmp_path: Path) -> None:
    imported(run, tmp_path, [{"role": "user", "content": "Mend the table."}])
    assert len(run("search", "table", "--json").document) == 1
    assert run("search", "table", "--since", "2026-01-01", "--json").document == []


def test_what_a_fork_inherits_is_found_in_it_and_once_in_all_sessions(
    run: Run, tmp_path: Path
) -> None:
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
    """Which messages of the session are of a tool."""
    recall = Recall(store, SqliteTextIndex(None))
    found, _ = await find_messages(store, recall, "", "s", 500, MessageFilter(tool=tool))
    await recall.close()
    return [one.number for one in found]


class CountingReads(MemoryStore):
    """Counts how often bodies are read."""

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
