"""The checks can fail: with one guard of the product taken away, the fault after it is noticed.

Each test takes away one guard, and expects the very check that the other files make to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import eventctx
from eventctx.log import integrity
from eventctx.messages.overlap import Overlap
from eventctx.queries import verification, verify
from eventctx.session import turns
from eventctx.session.erasure import erasing
from eventctx.stores import sqlite_writer
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.stores.sqlite_schema import Durability
from tests.faults.disks import check_crash_states, record_a_run
from tests.faults.given import STORE, fill, scratch, sound_store
from tests.faults.processes import check_acknowledged
from tests.faults.test_damage import change_byte, edit_often, empty_facts, flip_bits, swap_places
from tests.faults.test_disks import fail_often
from tests.faults.test_storms import storm_often
from tests.session.test_deferred_events import ends_behind_a_slow_disk
from tests.session.test_erasing import SECRET, WORDS, files_with, talk

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(("durability", "syncs"), [("normal", True), ("full", False)])
async def test_a_store_that_waits_for_no_disk_loses_what_it_acknowledged(
    tmp_path: Path, durability: Durability, syncs: bool
) -> None:
    steps = await record_a_run(tmp_path, durability, syncs=syncs)
    with pytest.raises(AssertionError, match=r"missing|damaged|not a store"):
        await asyncio.to_thread(check_crash_states, steps, 60, 2)


async def test_a_record_that_is_gone_is_missed() -> None:
    with scratch() as folder:
        await fill(folder)
        async with eventctx.open(folder / STORE, receipts=False) as engine:
            receipts = [
                eventctx.Receipt(one.stream, one.position, one.digest)
                async for one in engine.records("s")
            ]
        await check_acknowledged(folder / STORE, receipts)
        connection = apsw.Connection(str(folder / STORE))
        connection.execute(
            "DELETE FROM records WHERE pos = (SELECT max(pos) FROM records WHERE stream ="
            " (SELECT id FROM streams WHERE name='s'))"
        ).fetchall()
        connection.close()
        with pytest.raises(AssertionError, match="acknowledged and lost"):
            await check_acknowledged(folder / STORE, receipts)


async def test_with_the_chain_unchecked_edits_pass(monkeypatch: Patch) -> None:
    sound = await sound_store()
    monkeypatch.setattr(verify, "follows", lambda *_: True)
    with pytest.raises(AssertionError, match="nothing was found"):
        await edit_often(sound, 40, 1, (swap_places, change_byte))


async def test_with_facts_unchecked_edits_pass(monkeypatch: Patch) -> None:
    sound = await sound_store()
    monkeypatch.setattr(verification, "_facts_are_true", lambda *_: True)
    monkeypatch.setattr(verification.ContentChecker, "_check_facts", lambda *_: None)
    with pytest.raises(AssertionError, match="nothing was found"):
        await edit_often(sound, 10, 1, (empty_facts,))


async def test_with_digests_of_contents_unread_changed_text_is_shown(monkeypatch: Patch) -> None:
    sound = await sound_store()
    monkeypatch.setattr(integrity, "is_sound", lambda _: True)
    with pytest.raises(AssertionError, match="changed text is shown"):
        await edit_often(sound, 40, 1, (change_byte,))


async def test_without_receipts_the_end_of_the_log_goes_unnoticed(monkeypatch: Patch) -> None:
    sound = await sound_store(closed=False)
    monkeypatch.setattr(ReceiptBook, "last", lambda _: {})
    with pytest.raises(AssertionError, match="nothing was found"):
        await flip_bits(sound, STORE + "-wal", 20, 1)


async def test_errors_of_the_driver_would_be_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(sqlite_writer, "translate", lambda error, *_: error)
    with pytest.raises(apsw.Error):
        await fail_often(6, 1)


async def test_turns_that_are_not_finished_get_lost_in_a_storm(monkeypatch: Patch) -> None:
    monkeypatch.setattr(turns, "finish", lambda work: work)
    with pytest.raises(AssertionError, match="prompt:submit"):
        await storm_often(20, 1)


async def test_ends_that_are_not_insisted_on_get_lost(monkeypatch: Patch) -> None:
    async def once(emit: Callable[[], Awaitable[None]]) -> None:
        await emit()

    monkeypatch.setattr(turns, "insist", once)
    assert 0 in await ends_behind_a_slow_disk()


async def erase_a_tool_round(folder: Path) -> None:
    """Erase a result; its call and its shortened copy hold words of it."""
    async with eventctx.open(folder / STORE, receipts=False) as engine:
        context = await engine.session("s", max_tokens=4_000)
        await context.add_message({"role": "user", "content": "read it"})
        call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "foxtrot.txt"}}
        await context.add_message({"role": "assistant", "content": [call]})
        text = "sierra is what the file holds\n" * 300
        result = {"type": "tool_result", "tool_use_id": "c1", "content": text}
        await context.add_message({"role": "user", "content": [result]})
        await talk(context, 15, 20)
        await engine.erase("s", [2])
    assert files_with(folder) == files_with(folder, "sierra") == []


async def erase_what_was_summarised(folder: Path) -> None:
    """Erase a message of which a summary has kept too little for a comparison of words."""

    async def summarizer(request: eventctx.SummaryRequest) -> str:
        told = " ".join(str(message) for message in (*request.earlier, *request.messages))
        return "They spoke of foxtrot." if "foxtrot" in told else "They spoke."

    async with eventctx.open(folder / STORE, receipts=False) as engine:
        context = await engine.session(
            "s", max_tokens=2_000, policy="summarize", summarizer=summarizer
        )
        await talk(context, 2)
        await context.add_message({**SECRET, "role": "assistant"})
        await talk(context, 12)
        assert files_with(folder, "spoke of foxtrot")
        await engine.erase("s", [4])
    assert files_with(folder) == []


async def erase_what_was_repeated(folder: Path) -> None:
    """Erase a message that a host repeated in what it sent besides."""
    async with eventctx.open(folder / STORE, receipts=False) as engine:
        context = await engine.session("s", policy="workset")
        await context.add_message(SECRET)
        await context.get_messages_for_request()
        (row,) = (await engine.audit("s")).requests
        reminder = {"role": "user", "content": f"<reminder>{WORDS}</reminder>"}
        await context.record_sent(row.position, 1, [(1, reminder)], 0)
        await engine.erase("s", [0])
    assert files_with(folder) == []


def without_words(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Overlap, "shares", lambda *_: False)


def without_shortened(monkeypatch: Patch) -> None:
    """Shortened copies are found by the plan and by their words, so both are taken away."""
    decode = erasing.decode_event

    def forgetful(record: Any) -> Any:
        event = decode(record)
        plan = getattr(event, "plan", None)
        if record.type != "context:post_compact" or plan is None:
            return event
        return msgspec.structs.replace(event, plan=msgspec.structs.replace(plan, shortened=()))

    without_words(monkeypatch)
    monkeypatch.setattr(erasing, "decode_event", forgetful)


@pytest.mark.parametrize(
    ("erase", "without"),
    [
        (
            erase_a_tool_round,
            lambda patch: patch.setattr(erasing, "whole_rounds", lambda _, numbers: set(numbers)),
        ),
        (erase_a_tool_round, without_shortened),
        (
            erase_what_was_summarised,
            lambda patch: patch.setattr(erasing, "_stands_for", lambda *_: False),
        ),
        (erase_what_was_repeated, without_words),
    ],
)
async def test_an_erasure_that_misses_one_kind_of_copy_is_noticed(
    tmp_path: Path,
    monkeypatch: Patch,
    erase: Callable[[Path], Awaitable[None]],
    without: Callable[[Patch], None],
) -> None:
    (tmp_path / "whole").mkdir()
    await erase(tmp_path / "whole")
    without(monkeypatch)
    (tmp_path / "mutated").mkdir()
    with pytest.raises(AssertionError):
        await erase(tmp_path / "mutated")


async def test_the_plan_alone_finds_a_shortened_copy(tmp_path: Path, monkeypatch: Patch) -> None:
    without_words(monkeypatch)
    await erase_a_tool_round(tmp_path)
