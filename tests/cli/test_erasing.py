"""``erase``, ``delete``, ``prune``, ``sign``: what a person reads; and all goes only if asked."""

from __future__ import annotations

import asyncio
import os

import pytest

import eventctx
from eventctx.cli.output.program import UNSIGNED
from eventctx.log.store import Receipt
from tests.cli.test_terminal import Terminal


def test_without_a_terminal_erase_only_shows_what_would_go(run, store):
    done = run("erase", "work", 0, "--store", store)
    assert done.code == 0
    assert "goes: #0" in done.out
    assert "add --yes" in done.err
    assert "[erased]" not in run("transcript", "work", "--store", store).out


def test_erase_destroys_and_says_that_all_still_verifies(run, store):
    done = run("erase", "work", 0, "--reason", "on request", "--yes", "--store", store)
    assert done.code == 0
    assert "chains and receipts still verify" in done.out
    assert "[erased]" in run("transcript", "work", "--store", store).out
    checked = run("verify", "work", "--store", store)
    assert (checked.code, "erased on purpose" in checked.out) == (0, True)
    shown = run("log", "work", "--type", "context:erased", "--json", "--store", store)
    assert "on request" in shown.out


def test_a_message_that_is_not_there_is_bad_usage(run, store):
    done = run("erase", "work", 9999, "--yes", "--store", store)
    assert done.code == 2
    assert "expected numbers from 0 to" in done.err


def test_delete_shows_asks_and_leaves_one_record(run, store):
    run("fork", "work", "early", "--at", 2, "--store", store)
    refused = run("delete", "work", "--yes", "--store", store)
    assert refused.code == 2
    assert "forks" in refused.err and "early" in refused.err
    shown = run("delete", "work", "--forks", "--store", store)
    assert "goes: early, work" in shown.out and "add --yes" in shown.err
    done = run("delete", "work", "--forks", "--yes", "--store", store)
    assert "deleted early, work" in done.out
    assert "deleted on purpose" in run("verify", "--store", store).out
    assert run("transcript", "work", "--store", store).code == 2
    assert "work" not in run("sessions", "--store", store).out


def test_prune_deletes_only_what_is_older(run, store):
    kept = run("prune", "--older-than", "36h", "--yes", "--json", "--store", store).document
    assert (kept["deleted"], kept["sessions"], kept["kept"]) == (False, [], [])
    assert run("transcript", "work", "--store", store).code == 0
    done = run("prune", "--older-than", "0h", "--yes", "--json", "--store", store).document
    assert done["deleted"] is True
    assert [one["session"] for one in done["sessions"]] == ["work"]
    assert "No session is that old" in run("prune", "--older-than", "0h", "--store", store).out


@pytest.mark.parametrize("age", ["", "90", "d", "1y", "-3d", "1e9d"])
def test_an_age_that_is_none_is_bad_usage(run, store, age):
    done = run("prune", "--older-than", age, "--store", store)
    assert done.code == 2
    assert "such as 90d" in done.err


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "goes"), [("n", False), ("y", True)])
def test_at_a_terminal_a_person_is_asked(run, store, answer, goes):
    with Terminal("erase", "work", 0, "--store", store) as terminal:
        terminal.until("Erase all this for ever?")
        os.write(terminal.master, f"{answer}\n".encode())
        terminal.all()
    assert ("[erased]" in run("transcript", "work", "--store", store).out) == goes


async def say_more(store) -> None:
    async with eventctx.open(store) as engine:
        ctx = await engine.session("work")
        for text in ("one more", "and another"):
            await ctx.add_message({"role": "user", "content": text})


def test_sign_and_verify_by_the_public_key(run, store, tmp_path):
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    private = tmp_path / "key.pem"
    key = ed25519.Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    signed = run("sign", "work", "--key", private, "--json", "--store", store).document
    at = Receipt.parse(signed["receipt"]).position - 1
    assert run("verify", "--signed-by", signed["key"], "--store", store).code == 0
    asyncio.run(say_more(store))
    partly = run("verify", "--signed-by", signed["key"], "--store", store)
    assert partly.code == UNSIGNED
    assert f"signed up to @{at}; 2 after it are not signed" in partly.out
    told = run("verify", "--store", store)
    assert told.code == 0
    assert f"signed by 1 key up to @{at}; 2 after it are not" in told.out
    run("sign", "work", "--key", private, "--store", store)
    whole = run("verify", "--signed-by", signed["key"], "--store", store)
    assert (whole.code, "not signed" in whole.out) == (0, False)
    other = run("verify", "--signed-by", "00" * 32, "--store", store)
    assert other.code == 5
    assert "no signature of the key" in other.out
    for bad in ("nonsense", "zz" * 32, store):
        assert run("verify", "--signed-by", bad, "--store", store).code == 2
    assert run("sign", "work", "--key", tmp_path / "none.pem", "--store", store).code == 2
    assert run("sign", "work", "--key", store, "--store", store).code == 2
