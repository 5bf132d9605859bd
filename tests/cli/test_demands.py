"""``instructions`` on a screen: what a person demanded, what is still told, what to ask next."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import eventctx
from eventctx.log import plan
from tests.cli.conftest import Run
from tests.queries.instructions.given import TASK, compact, model, request, user


async def write(path: Path) -> None:
    async with eventctx.open(path) as engine:
        ctx = await engine.session("work")
        for row in (user(TASK), model("On it."), user("go on"), model("Done.")):
            await ctx.add_message(row)
        await request(ctx, 2)
        gone, last = plan.Run(0, 2, "dropped", "older"), plan.Run(3, 3, "kept", "recent")
        await compact(engine, gone, last, stream="work")
        await ctx.add_message(user("Always sign the commits [bold]off[/bold]."))
        await request(ctx, 2)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    asyncio.run(write(path))
    return path


def test_each_demand_is_shown_with_where_it_stands_and_since_when(run: Run, store: Path) -> None:
    lines = run("instructions", "work", "--store", store).ok().splitlines()
    assert lines[0] == "Now: 3 of your instructions still apply: 1 sent unchanged, 2 absent."
    assert lines[2:7] == [
        "absent     #0.1  “Never touch the migrations.”",
        "                 verbatim 1.1–1.2, absent 2.1–2.2; not told since 2.1",
        "absent     #0.2  “Please keep the old names.”",
        "                 verbatim 1.1–1.2, absent 2.1–2.2; not told since 2.1",
        "verbatim   #4.1  “Always sign the commits [bold]off[/bold].”",
    ]
    assert lines[8] == "Why #0 is not in view, and how to have all back:"
    assert "why work 0 --store" in lines[9]
    assert "restore work 0 --store" in lines[10]

    run("why", "work", 0).ok("not in view: dropped")
    run("restore", "work", 0).ok()
    now = run("instructions", "work").ok()
    assert now.startswith("Now: 3 of your instructions still apply: 3 sent")


def test_only_absent_ones_and_those_of_a_request_can_be_asked_for(run: Run, store: Path) -> None:
    assert "#4.1" not in run("instructions", "work", "--absent").ok("#0.1")
    assert run("instructions", "work", "--turn", "1.2").ok() == (
        "In request 1.2: 2 of your instructions still apply: 2 sent unchanged.\n\n"
        "verbatim   #0.1  “Never touch the migrations.”\n"
        "verbatim   #0.2  “Please keep the old names.”\n"
    )


def test_a_demand_is_taken_back_by_a_message(run: Run, store: Path) -> None:
    done = run("instructions", "work", "--take-back", "0.1", "--by", 4).ok()
    assert done.startswith("taken back: #0.1, by #4 (@")
    lines = run("instructions", "work").ok().splitlines()
    assert lines[0].endswith("1 sent unchanged, 1 absent. 1 was taken back.")
    assert lines[2].startswith("taken back #0.1")
    assert "taken back by #4, as a person said" in lines[3]
    again = run("instructions", "work", "--take-back", "#0.1")
    again.fails("expected an instruction that holds, found one taken back")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--take-back", "0.1", "--absent"], ""),
        (["--fork", "other"], ""),
        (["--turn", "1", "--position", "9"], ""),
        (["--take-back", "7.1", "--fork", "other"], "found none"),
        (["--take-back", "0.9", "--fork", "other"], "found none"),
        (["--take-back", "0.1", "--by", "0", "--fork", "other"], "expected a message behind #0"),
    ],
)
def test_what_cannot_be_taken_back_or_asked_is_refused_and_no_fork_is_made(
    run: Run, store: Path, arguments: list[str], found: str
) -> None:
    run("instructions", "work", *arguments).fails(found)
    assert "other" not in run("sessions").out
