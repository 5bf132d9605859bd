"""``instructions`` on a screen: what a person demanded, what is still told, what to ask next."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.log.plan import Run
from tests.queries.instructions.given import TASK, compact, model, request, user


async def write(path: Path) -> None:
    async with eventctx.open(path) as engine:
        ctx = await engine.session("work")
        for row in (user(TASK), model("On it."), user("go on"), model("Done.")):
            await ctx.add_message(row)
        await request(ctx, 2)
        gone, last = Run(0, 2, "dropped", "older"), Run(3, 3, "kept", "recent")
        await compact(engine, gone, last, stream="work")
        await ctx.add_message(user("Always sign the commits [bold]off[/bold]."))
        await request(ctx, 2)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    asyncio.run(write(path))
    return path


def shown(run: Any, store: Path, *arguments: object) -> str:
    done = run("instructions", "work", *arguments, "--store", store)
    assert (done.code, done.err) == (0, "")
    return str(done.out)


def test_each_demand_is_shown_with_where_it_stands_and_since_when(run: Any, store: Path) -> None:
    lines = shown(run, store).splitlines()
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


def test_the_commands_that_it_names_do_what_it_says(run: Any, store: Path) -> None:
    assert "not in view: dropped" in run("why", "work", 0, "--store", store).out
    assert run("restore", "work", 0, "--store", store).code == 0
    assert shown(run, store).startswith("Now: 3 of your instructions still apply: 3 sent")


def test_only_absent_ones_and_those_of_a_request_can_be_asked_for(run: Any, store: Path) -> None:
    absent = shown(run, store, "--absent")
    assert "#0.1" in absent
    assert "#4.1" not in absent
    then = shown(run, store, "--turn", "1.2")
    assert then == (
        "In request 1.2: 2 of your instructions still apply: 2 sent unchanged.\n\n"
        "verbatim   #0.1  “Never touch the migrations.”\n"
        "verbatim   #0.2  “Please keep the old names.”\n"
    )


def test_a_demand_is_taken_back_by_a_message(run: Any, store: Path) -> None:
    done = shown(run, store, "--take-back", "0.1", "--by", 4)
    assert done.startswith("taken back: #0.1, by #4 (@")
    lines = shown(run, store).splitlines()
    assert lines[0].endswith("1 sent unchanged, 1 absent. 1 was taken back.")
    assert lines[2].startswith("taken back #0.1")
    assert "taken back by #4, as a person said" in lines[3]
    again = run("instructions", "work", "--take-back", "#0.1", "--store", store)
    assert (again.code, again.out) == (2, "")
    assert "expected an instruction that holds, found one taken back" in again.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--take-back", "0.1", "--absent"],
        ["--fork", "other"],
        ["--turn", "1", "--position", "9"],
    ],
)
def test_options_that_do_not_go_together_are_refused(
    run: Any, store: Path, arguments: list[str]
) -> None:
    assert run("instructions", "work", *arguments, "--store", store).code == 2


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--take-back", "7.1"], "found none"),
        (["--take-back", "0.9"], "found none"),
        (["--take-back", "0.1", "--by", "0"], "expected a message behind #0"),
    ],
)
def test_a_fork_is_not_made_for_what_cannot_be_taken_back(
    run: Any, store: Path, arguments: list[str], found: str
) -> None:
    done = run("instructions", "work", *arguments, "--fork", "other", "--store", store)
    assert done.code == 2
    assert found in done.err
    assert "other" not in run("sessions", "--store", store).out
