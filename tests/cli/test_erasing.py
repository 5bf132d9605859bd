"""``erase``, ``delete``, ``prune``, ``sign``: what a person reads; and all goes only if asked."""

from __future__ import annotations

import os

import pytest

from eventctx.cli.output.program import UNSIGNED
from eventctx.log.store import Receipt
from tests.cli.conftest import say
from tests.cli.test_terminal import Terminal


def test_erase_shows_what_would_go_or_destroys_it_and_all_still_verifies(run, store):
    shown = run("erase", "work", 0)
    assert (shown.code, "goes: #0" in shown.out, "add --yes" in shown.err) == (0, True, True)
    assert "[erased]" not in run("transcript", "work").out
    done = run("erase", "work", 0, "--reason", "on request", "--yes")
    done.ok("chains and receipts still verify")
    run("transcript", "work").ok("[erased]")
    run("verify", "work").ok("erased on purpose")
    run("log", "work", "--type", "context:erased", "--json").ok("on request")
    run("erase", "work", 9999, "--yes").fails("expected numbers from 0 to")


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
