"""Replay, fork, receipts, and moving a session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, MalformedTranscript, StreamExists, StreamNotFound
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Draft
from eventctx.log.store import Address, Receipt
from eventctx.messages.facts import decode_facts, encode_facts, outline_facts
from eventctx.projections import audit, numbering, transcript, usage
from eventctx.projections.view import request_view
from eventctx.queries.transfer import import_drafts, looks_like_export, read_drafts
from eventctx.stores.memory import MemoryStore
from tests.sessions import exported, user
from tests.transcripts import Story, stories


async def told(engine: Engine, turns: int = 3) -> None:
    ctx = await engine.session("s", max_tokens=3_000)
    for number in range(turns):
        async with ctx.turn() as turn:
            await ctx.add_message(user(f"turn {number} " + "x" * 900))
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    await call.usage(1_000, 50, cache_read=400)
                await ctx.add_message({"role": "assistant", "content": f"answer {number}"})
    await ctx.close()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """With a session of three turns."""
    async with Engine(MemoryStore()) as engine:
        await told(engine)
        yield engine


async def test_a_transcript_ends_with_a_turn_and_an_audit_joins_usage_to_requests(
    engine: Engine,
) -> None:
    seen = await engine.transcript("s", turn=2)
    said = [m.message["content"][:8] for m in seen if m.message]
    assert said == ["turn 0 x", "answer 0", "turn 1 x", "answer 1"]
    assert [m.number for m in await engine.transcript("s", at=seen[2].position)] == [0, 1, 2]
    with pytest.raises(InvalidSetting, match="both"):
        await engine.transcript("s", at=1, turn=1)
    with pytest.raises(InvalidSetting, match="found -1"):
        await engine.transcript("s", at=-1)
    found = await engine.audit("s")
    assert [(row.turn, row.iteration) for row in found.requests] == [(1, 1), (2, 1), (3, 1)]
    assert [turn.number for turn in found.turns] == [1, 2, 3]
    assert (found.usage["m"].calls, found.usage["m"].prompt) == (3, 3_000)
    for row in found.requests:
        assert (row.reported, row.model) == (1_000, "m")
        assert sum(row.counts) == 2 * (row.turn or 0) - 1


async def test_a_fork_shares_the_past_of_its_session_and_has_its_own_future(engine: Engine) -> None:
    for at in (-1, 10_000):
        with pytest.raises(InvalidSetting, match=str(at)):
            await engine.fork("s", at, "branch")
    with pytest.raises(StreamExists):
        await engine.fork("s", 3, "s")
    with pytest.raises(StreamNotFound):
        await engine.fork("nobody", 3, "branch")
    at = (await engine.transcript("s", turn=2))[-1].position
    assert (await engine.fork("s", at, "branch")).position == at + 1
    ctx = await engine.session("branch", max_tokens=3_000)
    await ctx.add_message(user("another way"))
    assert len(await ctx.get_messages()) == 5
    assert len(await engine.transcript("s")) == 6
    assert (await engine.verify("branch")).ok
    own = await engine.audit("branch")
    assert (own.requests, own.usage) == ((), {})
    async with ctx.turn() as turn:
        assert turn.number == 3


# -- verification --------------------------------------------------------------------------------


async def test_a_rewritten_history_shows_against_a_receipt_which_reads_back(engine: Engine) -> None:
    real = (await engine.verify("s")).receipt
    forged, short = Engine(MemoryStore()), Engine(MemoryStore())
    await told(forged)
    await told(short, turns=1)
    assert (await forged.verify("s")).ok
    assert [one.kind for one in (await forged.verify("s", real)).problems] == ["receipt"]
    assert "the tail was cut" in (await short.verify("s", real)).problems[-1].text
    ctx = await engine.session("s", max_tokens=3_000)
    await ctx.add_message(user("later"))
    assert (await engine.verify("s", real)).ok
    receipt = Receipt("with@sign", 7, bytes(range(32)))
    assert Receipt.parse(str(receipt)) == receipt
    for bad in ("", "s@7", "s@x:" + "0" * 64, "@7:" + "0" * 64, "s@7:zz"):
        with pytest.raises(ValueError, match=r"receipt|invalid|hex"):
            Receipt.parse(bad)


async def test_a_view_that_shows_an_erased_message_still_verifies(engine: Engine) -> None:
    places = {}
    async for record in engine.records("s", bodies=True):
        if record.type == "context:message_added" and record.position < 10:
            facts = outline_facts(decode_facts(record.bodies[0].facts))
            places[Address(record.position)] = encode_facts(facts)
    bodies = tuple((one.position, one.index) for one in places)
    name, version, payload = encode_event(events.Erased(numbers=(), bodies=bodies))
    note = Draft(os.urandom(16), name, version, 0, payload)
    assert (await engine.store.erase({"s": places}, {"s": note})).bodies == len(places) > 1
    proof = await engine.verify("s")
    assert (proof.ok, proof.erased) == (True, len(places))
    for row in (await engine.audit("s")).requests:
        view = await engine.request_view("s", position=row.position)
        assert view.verified
    assert user("[erased]") in view.messages
    assert (await engine.transcript("s"))[0].message is None


# -- moving --------------------------------------------------------------------------------------


async def moved_in(to: Engine, lines: list[bytes], session: str = "s") -> int:
    """Import an export; how many records came."""
    return await import_drafts(to.store, session, read_drafts(lines[1:]))


@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_an_export_imports_back_equal_to_the_last_byte(story: Story) -> None:
    async def play() -> None:
        engine, other, moved = (Engine(MemoryStore()) for _ in range(3))
        ctx = await engine.session("s", max_tokens=2_000, on_overflow="send_floor")
        for message in story.messages:
            await ctx.add_message(message)
            await ctx.get_messages_for_request()
        lines = await exported(engine)
        assert looks_like_export(lines[0])
        assert await moved_in(other, lines) == len(lines) - 1
        assert await exported(other) == lines
        assert await moved_in(other, lines) == 0
        await moved_in(moved, lines, "new-name")
        assert (await moved.verify("new-name")).ok
        ours, theirs = await engine.audit("s"), await moved.audit("new-name")
        assert ours.requests == theirs.requests

    asyncio.run(play())


async def test_a_longer_export_adds_the_rest_and_a_forks_is_whole(engine: Engine) -> None:
    other, strange, alone = (Engine(MemoryStore()) for _ in range(3))
    early = await exported(engine)
    await told(engine, turns=1)
    late = await exported(engine)
    await moved_in(other, early)
    assert await moved_in(other, late) == len(late) - len(early) > 0
    assert await moved_in(other, early) == 0
    await told(strange, turns=1)
    with pytest.raises(StreamExists):
        await moved_in(other, await exported(strange))
    await engine.fork("s", 9, "branch")
    await moved_in(alone, await exported(engine, "branch"), "alone")
    assert (await alone.verify("alone")).ok
    assert (await alone.audit("alone")).requests == ()
    assert await alone.transcript("alone") == await engine.transcript("branch")


async def test_an_edited_or_broken_export_is_refused_before_it_is_written(engine: Engine) -> None:
    *before, edited = (await exported(engine))[1:4]
    assert b"turn 0" in edited
    torn = edited[: len(edited) // 2]
    await refused([before[0], edited])
    edits = ((b"turn 0", b"turn 9"), (b'"time":1', b'"time":2'))
    for line in (*(edited.replace(*one) for one in edits), torn):
        await refused([*before, line])
    for line in (b"{}", b""):
        await refused([line])


async def refused(lines: list[bytes]) -> None:
    store = MemoryStore()
    with pytest.raises(MalformedTranscript, match="line"):
        await import_drafts(store, "s", list(read_drafts(lines)))
    assert [info async for info in store.streams()] == []


# -- folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", [transcript, request_view, numbering, audit, usage])
async def test_a_fold_from_the_middle_equals_one_from_zero(projection: Any, engine: Engine) -> None:
    records = [record async for record in engine.records("s")]
    states = [*accumulate(records, projection.evolve, initial=projection.initial())]
    for middle in range(0, len(records), 5):
        again = reduce(projection.evolve, records[middle:], states[middle])
        assert _comparable(again) == _comparable(states[-1])


@settings(deadline=None, max_examples=40)
@given(steps=st.lists(st.sampled_from(["add", "add", "add", "set", "clear", "turn"]), max_size=20))
def test_the_transcript_read_in_runs_equals_the_fold(steps: list[str]) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s")
        for number, step in enumerate(steps):
            if step == "add":
                await ctx.add_message(user(f"m{number}"))
            elif step == "set":
                await ctx.set_messages((await ctx.get_messages())[1:])
            elif step == "clear":
                await ctx.clear()
            else:
                async with ctx.turn():
                    await ctx.add_message(user(f"m{number}"))
        state = transcript.initial()
        async for record in engine.records("s"):
            state = transcript.evolve(state, record)
            found = await engine.transcript("s", at=record.position)
            lines = [(line.number, line.position) for line in state.lines]
            assert [(m.number, m.position) for m in found] == lines

    asyncio.run(play())


def _comparable(state: Any) -> Any:
    """Digest objects compare by identity, so a layout is compared by what it measures."""
    if hasattr(state, "measure"):
        return state.measure(), state.entries()
    if isinstance(state, msgspec.Struct):
        return [_comparable(part) for part in msgspec.structs.astuple(state)]
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return [_comparable(part) for part in state]
    return state


async def test_relative_and_absolute_urls_name_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    absolute = f"sqlite:///{tmp_path}/two.db"
    for url in ("sqlite:///one.db", absolute, "three.db", tmp_path / "four.db"):
        async with eventctx.open(url) as engine:
            await engine.session("s")
    made = [path.name for path in tmp_path.iterdir() if path.suffix == ".db"]  # noqa: ASYNC240
    assert sorted(made) == ["four.db", "one.db", "three.db", "two.db"]
