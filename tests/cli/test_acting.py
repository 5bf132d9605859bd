"""Commands that write or destroy, and those that prove: all goes only if it was asked."""

from __future__ import annotations

import os
import re
from pathlib import Path

import apsw
import jsonschema
import pytest

import eventctx
from eventctx.cli.output.program import UNSIGNED
from eventctx.log.store import Receipt
from tests.cli.conftest import say
from tests.cli.schemas import published, without_other_keys
from tests.cli.test_terminal import Terminal


def in_view(run, *numbers: int) -> list[bool]:
    return [run("why", "work", number, "--json").document["in_view"] for number in numbers]


def types(run) -> list[str]:
    return [row["type"] for row in run("log", "work", "--json").lines]


# -- restore -------------------------------------------------------------------------------------


def test_restore_brings_a_whole_round_back_for_good_if_it_is_pinned(run, store):
    done = run("restore", "work", 2, "--store", store)
    done.ok(
        "back in view, whole: #2, #3 (1 of them because they belong",
        "The next compaction may take them out again; --pin keeps them.",
    )
    assert in_view(run, 2, 3) == [True, True]
    assert run("restore", "work", "#2").out == "in view already: #2\n"
    assert run("restore", "work", 4, 1, "--pin", "--json").document == {
        "session": "work",
        "asked_for": [4, 1],
        "restored": [4, 5],
        "in_view_already": [1],
        "pinned": [1, 4],
    }
    run("compact", "work", "--policy", "simple", "--set", "keep_recent=1").ok()
    assert in_view(run, 2, 3, 4, 5) == [False, False, True, True]


def test_restore_brings_back_what_was_lost_of_a_kind(run, store):
    items = run("lost", "work", "--json").document["items"]
    gone = {one["number"] for one in items if one["kind"] == "file" and one["state"] != "whole"}
    assert gone and not all(in_view(run, *gone))
    command = f"restore work --lost files --store {store}` brings files back."
    run("lost", "work", "--store", store).ok(command)
    done = run("restore", "work", "--lost", "files", "--json").document
    assert set(done["asked_for"]) == gone and all(in_view(run, *gone))
    again = run("restore", "work", "--lost", "files")
    assert again.out == "Nothing to bring back: all files are in view, whole.\n"


# -- compact -------------------------------------------------------------------------------------


def test_a_dry_run_changes_not_one_byte_and_tells_what_would_be_done(run, store):
    before = store.read_bytes()
    arguments = ("compact", "work", "--policy", "simple", "--set", "keep_recent=3")
    run(*arguments, "--dry-run").ok(
        "would be compacted by simple",
        "older than the most recent messages that the policy keeps",
        "Dry run: nothing was written.",
    )
    would_be = run(*arguments, "--dry-run", "--json").document
    assert store.read_bytes() == before
    done = run(*arguments, "--json").document
    assert (would_be.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert would_be == done
    assert sum(one["messages"] for one in done["runs"]) == done["messages_before"]
    stays = sum(one["messages"] for one in done["runs"] if one["disposition"] == "kept")
    assert stays == done["messages_after"]


def test_without_a_policy_the_default_decides_and_the_ladder_with_a_setting_of_it(run, store):
    arguments = ("compact", "work", "--dry-run")
    run(*arguments).ok("compacted by workset")
    run(*arguments, "--set", "truncate_chars=100").ok("compacted by ladder")
    run(*arguments, "--policy", "workset", "--set", "truncate_chars=100").fails()


def test_a_policy_that_asks_a_model_is_shown_and_not_applied(run, store):
    before = types(run)
    settings = ("--set", "compact_threshold=0.3", "--set", "target_usage=0.1")
    arguments = ("compact", "work", "--policy", "summarize", *settings)
    run(*arguments, "--dry-run").ok("a summary for", "is inserted")
    run(*arguments).fails("would ask a model for a summary of")
    assert types(run) == before


def test_a_budget_below_what_must_stay_changes_nothing_unless_it_is_forced(run, store):
    before = types(run)
    for extra in ([], ["--dry-run"], ["--json"]):
        done = run("compact", "work", "--budget", 5, *extra)
        found = re.search(r"what must stay takes ~([\d,]+) tokens in \d+ messages", done.err)
        assert found is not None
        floor = found[1].replace(",", "")
        done.fails(f"nothing was changed; the smallest budget that works is {floor}", code=1)
    alone = "nothing of what came before the message that is to be answered"
    run("compact", "work", "--budget", floor).fails(alone, code=1)
    forced = ("compact", "work", "--budget", 5, "--force")
    over = r"what must stay is ~\d+ tokens over the budget of 5\n"
    assert re.search(over, run(*forced, "--dry-run").ok())
    assert types(run) == before
    enough = run("compact", "work", "--budget", floor, "--force", "--json").document
    assert enough["outcome"] == "applied" and enough["tokens_after"] <= int(floor)
    run(*forced).ok("tokens over the budget of 5")
    assert run("compact", "work", "--json").document["messages_before"] <= 2


async def test_a_budget_that_leaves_no_room_for_a_summary_is_refused_and_names_it(run, tmp_path):
    async def summarizer(asked):
        return "the parser is done " * 20

    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("work", policy="summarize", summarizer=summarizer)
        for number in range(12):
            await ctx.add_message({"role": "user", "content": f"task {number} " * 60})
            await ctx.add_message({"role": "assistant", "content": f"done {number} " * 60})
        made = await ctx.compact(budget=6_000)
        assert made.outcome == "applied" and made.fallback is None, made.error
    before = types(run)
    arguments = ("compact", "work", "--budget", 240)
    for extra in ([], ["--dry-run"], ["--json"]):
        refused = run(*arguments, *extra)
        refused.fails(code=1)
        assert re.search(
            r"a budget of 240 would leave \d+ of \d+ messages, ~\d+ of ~[\d,]+ tokens, and lose "
            r"the summary for #1–#\d+; what must stay takes ~\d+ tokens: nothing was changed; "
            r"raise the budget, or force it",
            refused.err,
        )
    assert types(run) == before
    (gone,) = run(*arguments, "--force", "--dry-run", "--json").document["insertions_removed"]
    assert gone["kind"] == "summary" and gone["stands_for"][0][0] == 1
    assert re.search(r"the summary for #1–#\d+ went\n", run(*arguments, "--force").ok())


@pytest.mark.parametrize(
    "command", [("restore", "s", 0), ("instructions", "s", "--take-back", "0.1")], ids=str
)
async def test_a_change_that_compacts_nothing_asks_for_no_policys_function(
    run, tmp_path: Path, command: tuple[object, ...]
) -> None:
    async def summarizer(request: eventctx.SummaryRequest) -> str:
        return "nothing"

    async with eventctx.open(tmp_path / "s.db") as engine:
        ctx = await engine.session("s", policy="summarize", summarizer=summarizer)
        await ctx.add_message({"role": "user", "content": "Never touch the migrations."})
    run(*command).ok()


def test_nothing_to_compact_is_said(run, tmp_path):
    say(tmp_path / "s.db", "work", "hello")
    for extra in ([], ["--dry-run"]):
        assert run("compact", "work", *extra).ok().startswith("skipped: nothing in view can go")


# -- view --verify -------------------------------------------------------------------------------


def change_body(run, store: Path, number: int, change: str) -> int:
    """Edit a message's body in the store; its position."""
    at = run("transcript", "work", "--json").document[number]["position"]
    with apsw.Connection(str(store)) as connection:
        connection.execute(f"UPDATE records SET {change} WHERE position = ?", (at,))  # noqa: S608
    return int(at)


def test_a_view_that_verifies_says_what_was_compared(run, store):
    out = run("view", "work", "--turn", 1, "--verify").ok(
        "has the digest that was recorded",
        "8 stored contents of 8 messages have their own digests.",
    )
    assert out.endswith("The view verifies.\n")
    document = run("view", "work", "--turn", 3, "--verify", "--json").document
    jsonschema.validate(document, without_other_keys(published("view")))
    assert document["proof"]["digest_matches"]


def test_an_edited_body_is_found_with_its_position(run, store):
    edited = "data = CAST(replace(CAST(data AS TEXT), 'Task', 'Tusk') AS BLOB)"
    at = change_body(run, store, 1, edited)
    done = run("view", "work", "--turn", 1, "--verify")
    assert done.code == 1
    assert f"those in the records at @{at}." in done.out and "DOES NOT VERIFY" in done.out
    proof = run("view", "work", "--turn", 1, "--verify", "--json")
    assert (proof.code, proof.document["verified"]) == (1, False)
    assert proof.document["proof"]["edited"] == [at]


def test_an_erased_body_is_told_and_does_no_harm(run, store):
    change_body(run, store, 1, "data = NULL, salt = NULL")
    run("view", "work", "--turn", 1, "--verify").ok(
        "7 stored contents of 8 messages have their own digests.", "Erased on purpose", "#1."
    )


def test_erase_shows_what_would_go_or_destroys_it_and_all_still_verifies(run, store):
    shown = run("erase", "work", 0)
    assert (shown.code, "goes: #0" in shown.out, "add --yes" in shown.err) == (0, True, True)
    assert "[erased]" not in run("transcript", "work").out
    done = run("erase", "work", 0, "--reason", "on request", "--yes")
    done.ok("chains and receipts still verify")
    run("transcript", "work").ok("[erased]")
    run("verify", "work").ok("erased on purpose")
    run("log", "work", "--type", "context:erased", "--json").ok("on request")


def test_delete_shows_asks_and_leaves_one_record(run, store):
    run("fork", "work", "early", "--at", 2)
    refused = run("delete", "work", "--yes")
    assert refused.code == 2 and "forks, found 'early'" in refused.err
    shown = run("delete", "work", "--forks")
    assert "goes: early, work" in shown.out and "add --yes" in shown.err
    assert "deleted early, work" in run("delete", "work", "--forks", "--yes").out
    run("verify").ok("deleted on purpose")
    run("transcript", "work").fails()
    assert "work" not in run("sessions").out


def test_prune_deletes_only_what_is_older(run, store):
    kept = run("prune", "--older-than", "36h", "--yes", "--json").document
    assert (kept["deleted"], kept["sessions"], kept["kept"]) == (False, [], [])
    run("transcript", "work").ok()
    done = run("prune", "--older-than", "0h", "--yes", "--json").document
    assert done["deleted"] is True
    assert [one["session"] for one in done["sessions"]] == ["work"]
    assert "No session is that old" in run("prune", "--older-than", "0h").out


@pytest.mark.parametrize("age", ["", "90", "d", "1y", "-3d", "1e9d"])
def test_an_age_that_is_none_is_bad_usage(run, store, age):
    run("prune", "--older-than", age).fails("such as 90d")


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "goes"), [("n", False), ("y", True)])
def test_at_a_terminal_a_person_is_asked(run, store, answer, goes):
    with Terminal("erase", "work", 0, "--store", store) as terminal:
        terminal.until("Erase all this for ever?")
        os.write(terminal.master, f"{answer}\n".encode())
        terminal.all()
    assert ("[erased]" in run("transcript", "work").out) == goes


def test_sign_and_verify_by_the_public_key(run, store, tmp_path):
    pytest.importorskip("cryptography")
    from tests.cli.schemas import write_key

    write_key(tmp_path)
    private = tmp_path / "key.pem"
    signed = run("sign", "work", "--key", private, "--json").document
    at = Receipt.parse(signed["receipt"]).position - 1
    run("verify", "--signed-by", signed["key"]).ok()
    say(store, "work", "one more", "and another")
    partly = run("verify", "--signed-by", signed["key"])
    assert partly.code == UNSIGNED
    assert f"signed up to @{at}; 2 after it are not signed" in partly.out
    run("verify").ok(f"signed by 1 key up to @{at}; 2 after it are not")
    run("sign", "work", "--key", private)
    assert "not signed" not in run("verify", "--signed-by", signed["key"]).ok()
    other = run("verify", "--signed-by", "00" * 32)
    assert (other.code, "no signature of the key" in other.out) == (5, True)
    for bad in ("nonsense", "zz" * 32, store):
        run("verify", "--signed-by", bad).fails()
    for bad in (tmp_path / "none.pem", store):
        run("sign", "work", "--key", bad).fails()
