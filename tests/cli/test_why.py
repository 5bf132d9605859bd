"""``why``, ``diff`` and ``lost``: as text, as JSON, on a terminal, and with bad input."""

from __future__ import annotations

import asyncio
import re

import pytest

import eventctx

# -- what is said --------------------------------------------------------------------------------


def test_why_names_the_compaction_the_rule_and_the_setting(run, store):
    why = run("why", "work", 2, "--json", "--store", store).document
    audit = run("audit", "work", "--json", "--store", store).document
    assert (why["in_view"], why["standing"]) == (False, "dropped")
    assert why["ruling"]["by"]["position"] == audit["compactions"][0]["position"]
    assert why["ruling"]["reason"] == "old_round"
    assert {"name": "target", "value": 1_500} in why["ruling"]["settings"]
    text = run("why", "work", 2, "--store", store).out
    assert "not in view: dropped by a compaction" in text
    assert "old_round: an old tool round, dropped to reach the target" in text
    assert "protected_tool_results=5, target 1,500 tokens" in text
    assert f"restore work 2 --store {store}" in text


def test_a_reason_that_was_given_is_told(run, store):
    given = ("--policy", "simple", "--set", "keep_recent=1", "--reason", "to see what is lost")
    assert run("compact", "work", *given, "--store", store).code == 0
    assert "because 'to see what is lost'" in run("why", "work", 20, "--store", store).out


def test_diff_lists_what_left_and_what_came(run, store):
    compared = run("diff", "work", 1, 3, "--json", "--store", store).document
    by_kind = {}
    for one in compared["differences"]:
        by_kind.setdefault(one["kind"], []).append(one["number"])
    assert by_kind["dropped"] == [2, 3, 4, 5, 6, 7]
    assert {17, 23} <= set(by_kind["entered"])
    audit = run("audit", "work", "--json", "--store", store).document
    assert compared["after"]["tokens"] == audit["requests"][-1]["tokens"]
    figures = compared["after"]["figures"]
    assert sum(one["tokens"] for one in compared["after"]["groups"]) == figures["messages"]
    assert figures["messages"] + figures["beside"] == compared["after"]["tokens"]
    text = run("diff", "work", 3, 1, "--store", store).out
    assert text.index("request 1.4 (@") < text.index("request 3.4 (@")
    position = compared["before"]["position"]
    named = run("diff", "work", f"@{position}", "3.4", "--json", "--store", store).document
    assert named == compared
    assert "− dropped (6): old_round" in text
    assert "+ added since (11)" in text


def test_diff_stands_side_by_side_where_there_is_room(run, store, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    wide = run("diff", "work", 1, 3, "--store", store).out
    assert any("− dropped" in line and "+ added since" in line for line in wide.splitlines())
    monkeypatch.setenv("COLUMNS", "119")
    narrow = run("diff", "work", 1, 3, "--store", store).out
    assert not any("− dropped" in line and "+ added" in line for line in narrow.splitlines())


def test_a_long_list_is_cut_on_a_terminal_unless_all_is_asked_for(run, store, monkeypatch):
    whole = run("diff", "work", "1.1", "3.1", "--store", store).out
    assert whole.count("\n  #") == 16
    monkeypatch.setenv("FORCE_COLOR", "1")
    cut = run("diff", "work", "1.1", "3.1", "--store", store).out
    assert cut.count("\n  #") == 12
    assert "4 more (--full lists them)" in cut
    full = run("diff", "work", "1.1", "3.1", "--full", "--store", store).out
    assert full.count("\n  #") == 16


def test_two_requests_that_show_the_same_say_so(run, store):
    assert "Both show the same." in run("diff", "work", 2, 2, "--store", store).out


# -- bad input -----------------------------------------------------------------------------------


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
        (
            ("why", "work", 1, "--position", -3),
            ("expected a position such as @48 or 48, found '-3'",),
        ),
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
    done = run(command[0], "--store", store, *command[1:])
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    said = re.sub(r"\s+", " ", done.err)
    for word in words:
        assert word in said


def test_a_session_without_messages_or_compactions(run, tmp_path):
    path = tmp_path / "s.db"

    async def write() -> None:
        async with eventctx.open(path) as engine:
            await engine.session("empty")
            ctx = await engine.session("plain")
            async with ctx.turn():
                await ctx.add_message({"role": "user", "content": "hello"})

    asyncio.run(write())
    assert "'empty' has no messages" in run("why", "empty", 0, "--store", path).err
    nothing = run("lost", "empty", "--json", "--store", path).document
    assert (nothing["items"], nothing["messages"]["total"]) == ([], 0)
    assert (
        "no compaction that was applied"
        in run("lost", "empty", "--compaction", 1, "--store", path).err
    )
    assert "has no turns" in run("lost", "empty", "--turn", 1, "--store", path).err
    assert "no compaction is in force" in run("why", "plain", 0, "--store", path).out
    assert "has no request" in run("why", "plain", 0, "--turn", 1, "--store", path).err
