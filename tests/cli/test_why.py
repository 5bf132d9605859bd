"""``why``, ``diff`` and ``lost``: as text, as JSON, on a terminal, and with bad input."""

from __future__ import annotations

import asyncio

import pytest

import eventctx


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


def test_diff_stands_side_by_side_where_there_is_room_and_a_long_list_is_cut(
    run, store, monkeypatch
):
    assert run("diff", "work", "1.1", "3.1").ok().count("\n  #") == 16
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run("diff", "work", "1.1", "3.1", "--full").ok().count("\n  #") == 16
    cut = run("diff", "work", "1.1", "3.1").ok("4 more (--full lists them)")
    assert cut.count("\n  #") == 12
    for width, is_beside in (("120", True), ("119", False)):
        monkeypatch.setenv("COLUMNS", width)
        lines = run("diff", "work", 1, 3).ok().splitlines()
        assert any("− dropped" in line and "+ added" in line for line in lines) == is_beside


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("why", "wrok", 1), ("'wrok'", "'work'")),
        (("why", "work", 25), ("has messages #0 to #24, found #25", "eventctx transcript work")),
        (("why", "work", "x"), ("expected a message such as #6 or 6, found 'x'",)),
        (("why", "work", "--", -1), ("expected a message such as #6 or 6, found '-1'",)),
        (("why", "work"), ("MESSAGE",)),
        (("why", "work", 1, "--turn", 4), ("has turns 1 to 3, found 4",)),
        (("why", "work", 1, "--turn", 1, "--iteration", 9), ("iterations 1 to 4",)),
        (("why", "work", 1, "--iteration", 1), ("counts within a turn",)),
        (("why", "work", 1, "--turn", 1, "--position", 4), ("at most one",)),
        (("why", "work", 1, "--position", 3), ("found context:message_added",)),
        (("why", "work", 1, "--position", -3), ("position such as @48 or 48, found '-3'",)),
        (("lost", "work", "--turn", 1, "--compaction", 1), ("at most one of",)),
        (("lost", "work", "--compaction", 99), ("has compactions 1 to", "found 99")),
        (("lost", "work", "--compaction", -1), ("compaction: expected an int from 0",)),
        (("diff", "work", 1), ("Expected two requests",)),
        (("diff", "work", "wrok:1.2"), ("'wrok'", "'work'")),
        (("diff", "work", 1, "x"), ("expected a turn such as 3", "found 'x'")),
        (("diff", "work", "--position", 4, "--position", 5), ("@5 of session",)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value[0], str) else "",
)
def test_bad_input_is_one_line_that_says_what_was_expected(run, store, command, words):
    run(*command).fails(*words)


def test_a_session_without_messages_or_compactions(run, tmp_path):
    async def write() -> None:
        async with eventctx.open(tmp_path / "s.db") as engine:
            await engine.session("empty")
            ctx = await engine.session("plain")
            async with ctx.turn():
                await ctx.add_message({"role": "user", "content": "hello"})

    asyncio.run(write())
    run("why", "empty", 0).fails("'empty' has no messages")
    nothing = run("lost", "empty", "--json").document
    assert (nothing["items"], nothing["messages"]["total"]) == ([], 0)
    run("lost", "empty", "--compaction", 1).fails("no compaction that was applied")
    run("lost", "empty", "--turn", 1).fails("has no turns")
    run("why", "plain", 0).ok("no compaction is in force")
    run("why", "plain", 0, "--turn", 1).fails("has no request")
