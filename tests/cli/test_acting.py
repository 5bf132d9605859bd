"""``restore`` and ``compact``, which write, and ``view --verify``, which proves."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import apsw
import jsonschema
import pytest

import eventctx
from eventctx.engine import Engine
from tests.cli.schemas import published, without_other_keys


def in_view(run, store, number: int) -> bool:
    return run("why", "work", number, "--json", "--store", store).document["in_view"]


def types(run, store) -> list[str]:
    return [row["type"] for row in run("log", "work", "--json", "--store", store).lines]


# -- restore -------------------------------------------------------------------------------------


def test_restore_brings_a_whole_round_back_and_says_that_it_may_go_again(run, store):
    done = run("restore", "work", 2, "--store", store)
    assert done.code == 0
    assert "back in view, whole: #2, #3 (1 of them because they belong" in done.out
    assert "The next compaction may take them out again; --pin keeps them." in done.out
    assert in_view(run, store, 2) and in_view(run, store, 3)
    again = run("restore", "work", "#2", "--store", store)
    assert again.out == "in view already: #2\n"


def test_a_pinned_message_outlives_the_next_compaction(run, store):
    done = run("restore", "work", 2, 1, "--pin", "--json", "--store", store)
    assert done.document == {
        "session": "work",
        "asked_for": [2, 1],
        "restored": [2, 3],
        "in_view_already": [1],
        "pinned": [1, 2],
    }
    run("restore", "work", 4, "--store", store)
    run("compact", "work", "--policy", "simple", "--set", "keep_recent=1", "--store", store)
    assert in_view(run, store, 2) and in_view(run, store, 3)
    assert not in_view(run, store, 4)


def test_restore_brings_back_what_was_lost_of_a_kind(run, store):
    lost = run("lost", "work", "--json", "--store", store).document
    files = [one for one in lost["items"] if one["kind"] == "file"]
    gone = {one["number"] for one in files if one["state"] != "whole"}
    assert gone and not all(in_view(run, store, number) for number in gone)
    shown = run("lost", "work", "--store", store).out
    assert f"restore work --lost files --store {store}` brings files back." in shown
    done = run("restore", "work", "--lost", "files", "--json", "--store", store).document
    assert set(done["asked_for"]) == gone
    assert all(in_view(run, store, number) for number in gone)
    again = run("restore", "work", "--lost", "files", "--store", store)
    assert again.out == "Nothing to bring back: all files are in view, whole.\n"


def test_restore_refuses_what_is_no_message_of_the_transcript(run, store):
    before = types(run, store)
    for arguments, word in (
        (("work", 99), "expected message numbers of the transcript, found [99]"),
        (("work", "x"), "expected a message such as #6 or 6, found 'x'"),
        (("work",), "Expected a message, or --lost"),
        (("nope", 1), "no session 'nope'"),
    ):
        done = run("restore", *arguments, "--store", store)
        assert (done.code, done.out) == (2, "")
        assert word in re.sub(r"\s+", " ", done.err)
    assert types(run, store) == before


# -- compact -------------------------------------------------------------------------------------


def test_a_dry_run_changes_not_one_byte_and_tells_what_would_be_done(run, store):
    before = hashlib.sha256(store.read_bytes()).digest()
    arguments = ("work", "--policy", "simple", "--set", "keep_recent=3", "--store", store)
    text = run("compact", *arguments, "--dry-run").out
    would_be = run("compact", *arguments, "--dry-run", "--json").document
    assert hashlib.sha256(store.read_bytes()).digest() == before
    assert "would be compacted by simple" in text
    assert "older than the most recent messages that the policy keeps" in text
    assert "Dry run: nothing was written." in text
    done = run("compact", *arguments, "--json").document
    assert (would_be.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert would_be == done
    assert sum(one["messages"] for one in done["runs"]) == done["messages_before"]
    stays = sum(one["messages"] for one in done["runs"] if one["disposition"] == "kept")
    assert stays == done["messages_after"]


def test_without_a_policy_the_default_decides_and_the_ladder_with_a_setting_of_it(run, store):
    arguments = ("compact", "work", "--dry-run", "--store", store)
    assert "compacted by workset" in run(*arguments).out
    assert "compacted by ladder" in run(*arguments, "--set", "truncate_chars=100").out
    refused = run(*arguments, "--policy", "workset", "--set", "truncate_chars=100")
    assert refused.code == 2


def test_a_policy_that_asks_a_model_is_shown_and_not_applied(run, store):
    before = types(run, store)
    arguments = ("compact", "work", "--policy", "summarize", "--set", "compact_threshold=0.3",
                 "--set", "target_usage=0.1", "--store", store)  # fmt: skip
    shown = run(*arguments, "--dry-run")
    assert shown.code == 0
    assert "a summary for" in shown.out and "is inserted" in shown.out
    refused = run(*arguments)
    assert (refused.code, refused.out) == (2, "")
    assert "would ask a model for a summary of" in refused.err
    assert types(run, store) == before


def test_a_budget_below_what_must_stay_is_a_problem_and_changes_nothing(run, store):
    before = types(run, store)
    for extra in ([], ["--dry-run"], ["--json"]):
        done = run("compact", "work", "--budget", 5, *extra, "--store", store)
        assert (done.code, done.out) == (1, "")
        found = re.search(r"what must stay takes ~([\d,]+) tokens in \d+ messages", done.err)
        assert found is not None
        floor = found[1].replace(",", "")
        assert f"nothing was changed; the smallest budget that works is {floor}" in done.err
    assert types(run, store) == before
    arguments = ("compact", "work", "--budget", floor, "--store", store)
    alone = run(*arguments)
    assert (alone.code, alone.out) == (1, "")
    assert "nothing of what came before the message that is to be answered" in alone.err
    assert types(run, store) == before
    enough = run(*arguments, "--force", "--json")
    assert (enough.code, enough.document["outcome"]) == (0, "applied")
    assert enough.document["tokens_after"] <= int(floor)


def test_a_budget_that_leaves_no_room_for_a_summary_is_refused_and_names_it(run, tmp_path):
    path = tmp_path / "s.db"

    async def summarizer(asked):
        return "the parser is done " * 20

    async def write() -> None:
        async with eventctx.open(path) as engine:
            ctx = await engine.session("work", policy="summarize", summarizer=summarizer)
            for number in range(12):
                await ctx.add_message({"role": "user", "content": f"task {number} " * 60})
                await ctx.add_message({"role": "assistant", "content": f"done {number} " * 60})
            made = await ctx.compact(budget=6_000)
            assert made.outcome == "applied" and made.fallback is None, made.error

    asyncio.run(write())
    before = types(run, path)
    arguments = ("compact", "work", "--budget", 240, "--store", path)
    for extra in ([], ["--dry-run"], ["--json"]):
        refused = run(*arguments, *extra)
        assert (refused.code, refused.out) == (1, "")
        assert re.search(
            r"a budget of 240 would leave \d+ of \d+ messages, ~\d+ of ~[\d,]+ tokens, and lose "
            r"the summary for #1–#\d+; what must stay takes ~\d+ tokens: nothing was changed; "
            r"raise the budget, or force it",
            refused.err,
        )
    assert types(run, path) == before
    forced = run(*arguments, "--force", "--dry-run", "--json")
    (gone,) = forced.document["insertions_removed"]
    assert gone["kind"] == "summary" and gone["stands_for"][0][0] == 1
    made = run(*arguments, "--force")
    assert made.code == 0
    assert re.search(r"the summary for #1–#\d+ went\n", made.out)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("nope",), "no session 'nope'"),
        (("work", "--policy", "nope"), "expected one of"),
        (("work", "--set", "keep_recent"), "expected KEY=VALUE, found 'keep_recent'"),
        (("work", "--set", "kepe_recent=3"), "found ['kepe_recent']"),
        (("work", "--policy", "simple", "--set", "keep_recent=x"), "keep_recent: expected an int"),
        (("work", "--budget", 0), "--budget"),
        (("work", "--set", "target_usage=2"), "target_usage"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_bad_settings_are_refused_before_anything_is_done(run, store, arguments, word):
    done = run("compact", *arguments, "--store", store)
    assert (done.code, done.out) == (2, "")
    assert word in re.sub(r"\s+", " ", done.err)


def test_the_answer_of_a_view_that_is_verified_is_as_published(run, store):
    document = run("view", "work", "--turn", 3, "--verify", "--json", "--store", store).document
    jsonschema.validate(document, without_other_keys(published("view")))
    assert document["proof"]["digest_matches"]


# -- view --verify -------------------------------------------------------------------------------


def body_of(store: Path, number: int) -> int:
    """The row of the store that holds a message's body."""

    async def position() -> int:
        async with eventctx.open(store) as engine:
            assert isinstance(engine, Engine)
            return (await engine.transcript("work"))[number].position

    return asyncio.run(position())


def test_a_view_that_verifies_says_what_was_compared(run, store):
    done = run("view", "work", "--turn", 1, "--verify", "--store", store)
    assert done.code == 0
    assert "has the digest that was recorded" in done.out
    assert "8 stored contents of 8 messages have their own digests." in done.out
    assert done.out.endswith("The view verifies.\n")


def test_an_edited_body_is_found_with_its_position(run, store):
    at = body_of(store, 1)
    with apsw.Connection(str(store)) as connection:
        connection.execute(
            "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), 'Task', 'Tusk') AS BLOB) "
            "WHERE position = ?",
            (at,),
        )
    done = run("view", "work", "--turn", 1, "--verify", "--store", store)
    assert done.code == 1
    assert f"those in the records at @{at}." in done.out
    assert "DOES NOT VERIFY" in done.out
    proof = run("view", "work", "--turn", 1, "--verify", "--json", "--store", store)
    assert proof.code == 1
    assert (proof.document["verified"], proof.document["proof"]["edited"]) == (False, [at])


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
    done = await asyncio.to_thread(run, *command, "--store", tmp_path / "s.db")
    assert (done.code, done.err) == (0, "")


def test_an_erased_body_is_told_and_does_no_harm(run, store):
    at = body_of(store, 1)
    with apsw.Connection(str(store)) as connection:
        connection.execute("UPDATE records SET data = NULL, salt = NULL WHERE position = ?", (at,))
    done = run("view", "work", "--turn", 1, "--verify", "--store", store)
    assert done.code == 0, done.out
    assert "7 stored contents of 8 messages have their own digests." in done.out
    assert "Erased on purpose" in done.out and "#1." in done.out


def test_force_takes_a_view_down_to_what_must_stay_and_says_that_it_is_over_the_budget(run, store):
    arguments = ("compact", "work", "--budget", 5, "--force", "--store", store)
    shown = run(*arguments, "--dry-run")
    assert shown.code == 0
    assert re.search(r"what must stay is ~\d+ tokens over the budget of 5\n", shown.out)
    made = run(*arguments)
    assert made.code == 0 and "tokens over the budget of 5" in made.out
    assert run("compact", "work", "--json", "--store", store).document["messages_before"] <= 2


def test_nothing_to_compact_is_said(run, tmp_path):
    path = tmp_path / "s.db"

    async def write() -> None:
        async with eventctx.open(path) as engine:
            await (await engine.session("work")).add_message({"role": "user", "content": "hello"})

    asyncio.run(write())
    for extra in ([], ["--dry-run"]):
        done = run("compact", "work", *extra, "--store", path)
        assert done.code == 0
        assert done.out.startswith("skipped: nothing in view can go")
