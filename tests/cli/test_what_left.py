"""``lost`` on a screen: the answer first, then the items, readable at any width."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

import eventctx
from eventctx.cli.output import screen
from eventctx.policies.presets import Simple
from tests.cli.conftest import Run
from tests.queries.lost.given import BEFORE, Row, call, result, user

ODD = "Never print \x1b[31mred\x1b[0m or \u202eback, and [bold]keep[/bold] 漢字の名前を変えないで。"


async def write(path: Path, rows: tuple[Row, ...]) -> None:
    async with eventctx.open(path) as engine:
        ctx = await engine.session("work")
        async with ctx.turn():
            for row in rows:
                await ctx.add_message(row)
            await ctx.get_messages_for_request()
        await ctx.compact(policy=Simple(keep_recent=1))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    more: list[Row] = [user(ODD)]
    for number in range(20, 35):
        path = f"/repo/shop/a_folder_with_a_long_name/number_{number}.py"
        more += [call(number, "Read", {"file_path": path}), result(number, "x")]
    path = tmp_path / "s.db"
    asyncio.run(write(path, (*BEFORE, *more, user("on"))))
    return path


def shown(run: Run, *arguments: object) -> str:
    return run("lost", "work", *arguments).ok()


def test_the_first_line_answers_the_question_and_a_table_counts_the_items(
    run: Run, store: Path
) -> None:
    text = shown(run, "--compaction", 1)
    assert text.startswith("Lost in work. Compaction 1 (@")
    assert text.splitlines()[0].endswith("): 39 of 42 messages left the view.")
    turn = shown(run, "--turn", 1)
    assert turn.startswith("Lost in work. Turn 1 (request at @")
    assert turn.endswith("): nothing left the view; 42 messages are whole.\n")
    now = shown(run)
    assert now.startswith("Lost in work. Now: 39 of 42 messages are not in view.\n")
    assert [" ".join(line.split()) for line in now.splitlines()[2:6]] == [
        "all whole shortened in the summary gone",
        "instructions of a person 4 4 – – –",
        "files 17 – – – 17",
        "commands 1 – – – 1",
    ]


def test_rows_are_limited_and_what_is_whole_is_listed_on_request(run: Run, store: Path) -> None:
    text = shown(run, "--limit", 3)
    assert "  … and 14 more: 14 gone (--limit)" in text
    assert text.count("number_") == 1
    assert shown(run, "--limit", 100).count("number_") == 15
    assert "… and 17 more: 17 gone (--limit)" in shown(run, "--limit", 0)
    assert '"on"' not in shown(run)
    assert '  whole     #41    "on"' in shown(run, "--all")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_no_line_is_wider_and_nothing_steers_it(
    run: Run, store: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(screen, "_PATIENCE", 60)  # no progress bar on a busy machine
    text = shown(run, "--all", "--limit", 50)
    assert "\x1b[31mred" not in text and "\u202e" not in text
    assert "[bold]keep[/bold]" in text or width < 120
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(cell_len(line) for line in plain.splitlines()) <= width
