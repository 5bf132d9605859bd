"""``copy``: what it prints, refuses, and leaves in place."""

from __future__ import annotations

import pytest

from eventctx.cli.output.program import DAMAGE, STORE, USAGE
from tests.cli.test_backup import damage
from tests.stores.many_sessions import make, run_measured


def test_a_copy_says_what_it_did(run, store, tmp_path):
    target = tmp_path / "copy.db"
    done = run("copy", store, target)
    assert done.code == 0, done.err
    copied, checked, place = done.out.splitlines()
    assert copied.startswith("copied 1 session: ") and copied.endswith(" KB")
    assert (checked, place) == ("checked 1 session, read back and equal, in:", str(target))
    for command in (("audit", "work"), ("log", "work", "--bodies"), ("verify",)):
        here = run(*command, "--json", "--store", store).out
        there = run(*command, "--json", "--store", target).out
        assert here.replace("global_position", "") == there.replace("global_position", "")
    again = run("copy", store, target)
    assert again.out.startswith("copied 0 sessions (1 there already): 0 records")


def test_damage_has_its_own_exit_code_and_is_named(run, store, tmp_path):
    damage(store)
    done = run("copy", store, tmp_path / "copy.db")
    assert done.code == DAMAGE
    assert "DAMAGED work @" in done.out
    found = run("copy", store, tmp_path / "copy.db", "--json")
    assert (found.code, found.document["ok"]) == (DAMAGE, False)
    (problem,) = found.document["problems"]
    assert problem["session"] == "work" and problem["damage"]


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        ("nothing.db", "to.db", STORE, "there is no store at"),
        ("s.db", "s.db", USAGE, "found one that was named twice"),
        ("s.db", "memory://", USAGE, "expected one that outlives the command"),
        ("s.db", "mysql://me:hunter2@h/db", USAGE, "postgresql://"),
    ],
)
def test_stores_that_cannot_be_copied(run, store, tmp_path, source, target, code, words):
    places = [one if "://" in one else store.parent / one for one in (source, target)]
    done = run("copy", *places)
    assert (done.code, words in done.err) == (code, True), done.err
    assert "hunter2" not in done.err


@pytest.mark.slow
def test_a_copy_of_many_sessions_takes_no_more_memory(tmp_path):
    peaks = []
    for count in (1_000, 6_000):
        source = make(tmp_path / f"{count}.db", count)
        found, peak = run_measured("copy", source, tmp_path / f"copy-{count}.db", "--json")
        assert (found["ok"], found["copied"], found["checked"]) == (True, count, count)
        peaks.append(peak)
    # What is under way is bounded, and more of it is where another program has the processor. The
    # records of a session take a kilobyte at the least.
    assert peaks[1] - peaks[0] < 4 * 1024, peaks
