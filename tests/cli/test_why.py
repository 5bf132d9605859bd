"""``why``, ``diff``, ``lost`` and ``instructions``: what left the view, and what to ask next."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

import eventctx
from eventctx.cli.output import screen
from eventctx.log import plan
from eventctx.policies.presets import Simple
from tests.cli.conftest import Run
from tests.queries.instructions.given import TASK, compact, model, request
from tests.queries.lost.given import BEFORE, Row, call, result, user


def test_why_names_the_compaction_the_rule_and_the_setting(run, store):
    why = run("why", "work", 2, "--json").document
    audit = run("audit", "work", "--json").document
    assert (why["in_view"], why["standing"]) == (False, "dropped")
    assert why["ruling"]["by"]["position"] == audit["compactions"][0]["position"]
    assert why["ruling"]["reason"] == "old_round"
    assert {"name": "target", "value": 1_500} in why["ruling"]["settings"]
    run("why", "work", 2, "--store", store).ok(
        "not in view: dropped by a compaction",
        "old_round: an old tool round, dropped to reach the target",
        "protected_tool_results=5, target 1,500 tokens",
        f"restore work 2 --store {store}",
    )
    given = ("--policy", "simple", "--set", "keep_recent=1", "--reason", "to see what is lost")
    run("compact", "work", *given).ok()
    run("why", "work", 20).ok("because 'to see what is lost'")


def test_diff_lists_what_left_and_what_came(run, store):
    compared = run("diff", "work", 1, 3, "--json").document
    kinds = [(one["kind"], one["number"]) for one in compared["differences"]]
    assert [number for kind, number in kinds if kind == "dropped"] == [2, 3, 4, 5, 6, 7]
    assert {("entered", 17), ("entered", 23)} <= set(kinds)
    after = compared["after"]
    assert after["tokens"] == run("audit", "work", "--json").document["requests"][-1]["tokens"]
    figures = after["figures"]
    assert sum(one["tokens"] for one in after["groups"]) == figures["messages"]
    assert figures["messages"] + figures["beside"] == after["tokens"]
    text = run("diff", "work", 3, 1).ok("− dropped (6): old_round", "+ added since (11)")
    assert text.index("request 1.4 (@") < text.index("request 3.4 (@")
    position = compared["before"]["position"]
    assert run("diff", "work", f"@{position}", "3.4", "--json").document == compared
    run("diff", "work", 2, 2).ok("Both show the same.")


def test_diff_stands_side_by_side_where_there_is_room_and_is_cut(run, store, monkeypatch):
    assert run("diff", "work", "1.1", "3.1").ok().count("\n  #") == 16
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("diff", "work", "1.1", "3.1", "--full").ok().count("\n  #") == 16
    cut = run("diff", "work", "1.1", "3.1").ok("4 more (--full lists them)")
    assert cut.count("\n  #") == 12
    for width, is_beside in (("120", True), ("119", False)):
        monkeypatch.setenv("COLUMNS", width)
        lines = run("diff", "work", 1, 3).ok().splitlines()
        assert any("− dropped" in line and "+ added" in line for line in lines) == is_beside


async def test_a_session_without_messages_or_compactions(run, tmp_path):
    async with eventctx.open(tmp_path / "s.db") as engine:
        await engine.session("empty")
        ctx = await engine.session("plain")
        async with ctx.turn():
            await ctx.add_message({"role": "user", "content": "hello"})
    run("why", "empty", 0).fails("'empty' has no messages")
    nothing = run("lost", "empty", "--json").document
    assert (nothing["items"], nothing["messages"]["total"]) == ([], 0)
    run("lost", "empty", "--compaction", 1).fails("no compaction that was applied")
    run("lost", "empty", "--turn", 1).fails("has no turns")
    run("why", "plain", 0).ok("no compaction is in force")
    run("why", "plain", 0, "--turn", 1).fails("has no request")


ODD = "Never print \x1b[31mred\x1b[0m or \u202eback, and [bold]keep[/bold] 漢字の名前を変えないで。"


@pytest.fixture
async def left(tmp_path: Path) -> None:
    more: list[Row] = [user(ODD)]
    for number in range(20, 35):
        path = f"/repo/shop/a_folder_with_a_long_name/number_{number}.py"
        more += [call(number, "Read", {"file_path": path}), result(number, "x")]
    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("work")
        async with ctx.turn():
            await ctx.add_messages([*BEFORE, *more, user("on")])
            await ctx.get_messages_for_request()
        await ctx.compact(policy=Simple(keep_recent=1))


def shown(run: Run, *arguments: object) -> str:
    return run("lost", "work", *arguments).ok()


def test_the_first_line_answers_and_a_table_counts_the_items(run: Run, left: None) -> None:
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


def test_rows_are_limited_and_what_is_whole_is_listed_on_request(run: Run, left: None) -> None:
    text = shown(run, "--limit", 3)
    assert "  … and 14 more: 14 gone (--limit)" in text and text.count("number_") == 1
    assert shown(run, "--limit", 100).count("number_") == 15
    assert "… and 17 more: 17 gone (--limit)" in shown(run, "--limit", 0)
    assert '"on"' not in shown(run)
    assert '  whole     #41    "on"' in shown(run, "--all")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_on_a_terminal_no_line_is_wider_and_nothing_steers_it(
    run: Run, left: None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(screen, "_PATIENCE", 60)  # no progress bar on a busy machine
    text = shown(run, "--all", "--limit", 50)
    assert "\x1b[31mred" not in text and "\u202e" not in text
    assert "[bold]keep[/bold]" in text or width < 120
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(cell_len(line) for line in plain.splitlines()) <= width


@pytest.fixture
async def demands(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("work")
        for row in (user(TASK), model("On it."), user("go on"), model("Done.")):
            await ctx.add_message(row)
        await request(ctx, 2)
        gone, last = plan.Run(0, 2, "dropped", "older"), plan.Run(3, 3, "kept", "recent")
        await compact(engine, gone, last, stream="work")
        await ctx.add_message(user("Always sign the commits [bold]off[/bold]."))
        await request(ctx, 2)
    return path


def test_each_demand_is_shown_with_where_it_stands_and_since_when(run: Run, demands: Path) -> None:
    lines = run("instructions", "work", "--store", demands).ok().splitlines()
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


def test_only_absent_ones_and_those_of_a_request_can_be_asked_for(run: Run, demands: Path) -> None:
    assert "#4.1" not in run("instructions", "work", "--absent").ok("#0.1")
    assert run("instructions", "work", "--turn", "1.2").ok() == (
        "In request 1.2: 2 of your instructions still apply: 2 sent unchanged.\n\n"
        "verbatim   #0.1  “Never touch the migrations.”\n"
        "verbatim   #0.2  “Please keep the old names.”\n"
    )


def test_a_demand_is_taken_back_by_a_message(run: Run, demands: Path) -> None:
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
    run: Run, demands: Path, arguments: list[str], found: str
) -> None:
    run("instructions", "work", *arguments).fails(found)
    assert "other" not in run("sessions").out
