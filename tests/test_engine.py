"""Replay, fork, verification, and moving a session."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.engine import Engine
from eventctx.errors import (
    InvalidSetting,
    MalformedTranscript,
    NotAStore,
    StreamExists,
    StreamNotFound,
)
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import Address, Receipt
from eventctx.messages.facts import decode_facts, encode_facts, outline_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections import audit, numbering, transcript, usage
from eventctx.projections.view import request_view
from eventctx.queries.transfer import export_lines, import_drafts, looks_like_export, read_drafts
from eventctx.queries.verify import verify
from eventctx.stores.memory import MemoryStore
from tests.transcripts import Story, stories


async def told(engine: Engine, turns: int = 3, session: str = "s") -> None:
    ctx = await engine.session(session, max_tokens=3_000)
    for number in range(turns):
        async with ctx.turn() as turn:
            await ctx.add_message({"role": "user", "content": f"turn {number} " + "x" * 900})
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    await call.usage(1_000, 50, cache_read=400)
                await ctx.add_message({"role": "assistant", "content": f"answer {number}"})
    await ctx.close()


async def test_the_transcript_at_a_turn_ends_where_the_turn_ended() -> None:
    async with eventctx.open() as engine:
        await told(engine)
        seen = await engine.transcript("s", turn=2)
        assert [m.message["content"][:8] for m in seen if m.message] == [
            "turn 0 x",
            "answer 0",
            "turn 1 x",
            "answer 1",
        ]
        assert [m.number for m in await engine.transcript("s", at=seen[2].position)] == [0, 1, 2]
        with pytest.raises(InvalidSetting, match="both"):
            await engine.transcript("s", at=1, turn=1)
        with pytest.raises(InvalidSetting, match="found -1"):
            await engine.transcript("s", at=-1)


async def test_the_audit_joins_requests_turns_and_reported_usage() -> None:
    async with eventctx.open() as engine:
        await told(engine)
        found = await engine.audit("s")
        assert [(row.turn, row.iteration) for row in found.requests] == [(1, 1), (2, 1), (3, 1)]
        assert [turn.number for turn in found.turns] == [1, 2, 3]
        assert found.usage["m"].calls == 3
        assert found.usage["m"].prompt == 3_000
        for row in found.requests:
            assert (row.reported, row.model) == (1_000, "m")
            assert sum(row.counts) == 2 * (row.turn or 0) - 1


async def test_a_fork_shares_the_past_and_has_its_own_future() -> None:
    async with eventctx.open() as engine:
        await told(engine)
        at = (await engine.transcript("s", turn=2))[-1].position
        receipt = await engine.fork("s", at, "branch")
        assert receipt.position == at + 1
        ctx = await engine.session("branch", max_tokens=3_000)
        await ctx.add_message({"role": "user", "content": "another way"})
        assert len(await ctx.get_messages()) == 5
        assert len(await engine.transcript("s")) == 6
        assert (await engine.verify("branch")).ok
        own = await engine.audit("branch")
        assert own.requests == ()
        assert own.usage == {}
        async with ctx.turn() as turn:
            assert turn.number == 3


@pytest.mark.parametrize("at", [-1, 10_000])
async def test_a_fork_outside_the_session_is_refused(at: int) -> None:
    async with eventctx.open() as engine:
        await told(engine)
        with pytest.raises(InvalidSetting, match=str(at)):
            await engine.fork("s", at, "branch")
        with pytest.raises(StreamExists):
            await engine.fork("s", 3, "s")
        with pytest.raises(StreamNotFound):
            await engine.fork("nobody", 3, "branch")


# -- verification --------------------------------------------------------------------------------


class Tampered:
    """A store's records after somebody edited them; only what ``verify`` reads."""

    def __init__(self, records: list[Record], head: Any) -> None:
        self.records = records
        self._head = head

    async def head(self, stream: str) -> Any:
        return self._head

    async def load_snapshot(self, stream: str, name: str) -> None:
        return None

    async def read(self, stream: str, start: int, stop: int) -> Any:
        for record in self.records:
            yield record


async def tampering(change: Any, receipt: Receipt | None = None) -> list[str]:
    engine = Engine(MemoryStore())
    await told(engine)
    records = [record async for record in engine.records("s", bodies=True)]
    head = await engine.store.head("s")
    found = await verify(Tampered(change(records), head), "s", receipt)  # type: ignore[arg-type]
    return [problem.kind for problem in found.problems]


def _edited(records: list[Record], place: int, **fields: Any) -> list[Record]:
    changed = msgspec.structs.replace(records[place], **fields)
    return [*records[:place], changed, *records[place + 1 :]]


async def test_an_untouched_log_has_no_problems() -> None:
    assert await tampering(lambda records: records) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": b'{"event":"context:message_added","x":1}'},
        {"time": 5},
        {"type": "context:cleared"},
        {"turn_id": "other"},
        {"iteration": 9},
        {"id": bytes(16)},
        {"digest": bytes(32)},
    ],
)
async def test_an_edited_record_is_found(fields: dict[str, Any]) -> None:
    assert "record" in await tampering(lambda records: _edited(records, 4, **fields))


async def test_an_edited_body_is_found_by_its_salted_digest() -> None:
    def edit(records: list[Record]) -> list[Record]:
        place = next(n for n, r in enumerate(records) if r.bodies)
        body = records[place].bodies[0]
        changed = Body(body.digest, body.facts, b'{"role":"user"}', body.salt)
        return _edited(records, place, bodies=(changed,))

    assert await tampering(edit) == ["body"]


async def test_edited_facts_are_found_although_no_digest_covers_them() -> None:
    forged = encode_facts(read_facts({"role": "tool", "tool_call_id": "x", "content": ""}))

    def edit(facts: bytes) -> Any:
        def change(records: list[Record]) -> list[Record]:
            place = next(n for n, r in enumerate(records) if r.bodies)
            body = msgspec.structs.replace(records[place].bodies[0], facts=facts)
            return _edited(records, place, bodies=(body,))

        return change

    assert await tampering(edit(forged)) == ["facts"]
    assert await tampering(edit(b"\xc1no facts")) == ["facts"]


async def test_a_missing_record_a_swapped_pair_and_a_cut_tail_are_found() -> None:
    assert "missing" in await tampering(lambda records: [*records[:5], *records[6:]])
    swapped = await tampering(lambda r: [*r[:5], r[6], r[5], *r[7:]])
    assert swapped
    assert "missing" in await tampering(lambda records: records[:-2])

    def relabelled(records: list[Record]) -> list[Record]:
        one = msgspec.structs.replace(records[5], position=6)
        two = msgspec.structs.replace(records[6], position=5)
        return [*records[:5], two, one, *records[7:]]

    assert "record" in await tampering(relabelled)


async def test_a_rewritten_history_shows_only_against_a_receipt() -> None:
    engine = Engine(MemoryStore())
    await told(engine)
    real = (await engine.verify("s")).receipt
    forged = Engine(MemoryStore())
    await told(forged)
    assert (await forged.verify("s")).ok
    against = await forged.verify("s", real)
    assert [problem.kind for problem in against.problems] == ["receipt"]
    short = Engine(MemoryStore())
    await told(short, turns=1)
    cut = await short.verify("s", real)
    assert "the tail was cut" in cut.problems[-1].text
    ctx = await engine.session("s", max_tokens=3_000)
    await ctx.add_message({"role": "user", "content": "later"})
    assert (await engine.verify("s", real)).ok


def test_a_receipt_reads_back_from_its_text() -> None:
    receipt = Receipt("with@sign", 7, bytes(range(32)))
    assert Receipt.parse(str(receipt)) == receipt
    for bad in ("", "s@7", "s@x:" + "0" * 64, "@7:" + "0" * 64, "s@7:zz"):
        with pytest.raises(ValueError, match=r"receipt|invalid|hex"):
            Receipt.parse(bad)


async def test_a_view_that_shows_an_erased_message_still_verifies() -> None:
    async with eventctx.open() as engine:
        await told(engine)
        places = {}
        async for record in engine.records("s", bodies=True):
            if record.type == "context:message_added" and record.position < 10:
                facts = outline_facts(decode_facts(record.bodies[0].facts))
                places[Address(record.position)] = encode_facts(facts)
        name, version, payload = encode_event(
            events.Erased(numbers=(), bodies=tuple((one.position, one.index) for one in places))
        )
        note = Draft(os.urandom(16), name, version, 0, payload)
        assert (await engine.store.erase({"s": places}, {"s": note})).bodies == len(places) > 1
        proof = await engine.verify("s")
        assert (proof.ok, proof.erased) == (True, len(places))
        for row in (await engine.audit("s")).requests:
            view = await engine.request_view("s", position=row.position)
            assert view.verified
        assert {"role": "user", "content": "[erased]"} in view.messages
        assert (await engine.transcript("s"))[0].message is None


# -- moving --------------------------------------------------------------------------------------


async def exported(engine: Engine, session: str = "s") -> list[bytes]:
    info = await engine.store.head(session)
    assert info is not None
    return [line async for line in export_lines(engine.store, info)]


@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_an_export_imports_back_equal_to_the_last_byte(story: Story) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s", max_tokens=2_000, on_overflow="send_floor")
        for message in story.messages:
            await ctx.add_message(message)
            await ctx.get_messages_for_request()
        lines = await exported(engine)
        assert looks_like_export(lines[0])
        other = Engine(MemoryStore())
        assert await import_drafts(other.store, "s", read_drafts(lines[1:])) == len(lines) - 1
        assert await exported(other) == lines
        assert await import_drafts(other.store, "s", read_drafts(lines[1:])) == 0
        moved = Engine(MemoryStore())
        await import_drafts(moved.store, "new-name", read_drafts(lines[1:]))
        assert (await moved.verify("new-name")).ok
        ours, theirs = await engine.audit("s"), await moved.audit("new-name")
        assert ours.requests == theirs.requests

    asyncio.run(play())


async def test_a_fork_is_exported_whole_and_verifies_alone() -> None:
    engine = Engine(MemoryStore())
    await told(engine)
    await engine.fork("s", 9, "branch")
    other = Engine(MemoryStore())
    await import_drafts(other.store, "alone", read_drafts((await exported(engine, "branch"))[1:]))
    assert (await other.verify("alone")).ok
    assert (await other.audit("alone")).requests == ()
    assert await other.transcript("alone") == await engine.transcript("branch")


async def test_a_longer_export_adds_the_rest_and_a_different_one_is_refused() -> None:
    engine = Engine(MemoryStore())
    await told(engine, turns=1)
    early = await exported(engine)
    await told(engine, turns=1)
    late = await exported(engine)
    other = Engine(MemoryStore())
    await import_drafts(other.store, "s", read_drafts(early[1:]))
    added = await import_drafts(other.store, "s", read_drafts(late[1:]))
    assert added == len(late) - len(early) > 0
    assert await import_drafts(other.store, "s", read_drafts(early[1:])) == 0
    strange = Engine(MemoryStore())
    await told(strange, turns=1)
    with pytest.raises(StreamExists):
        await import_drafts(other.store, "s", read_drafts((await exported(strange))[1:]))


async def test_an_edited_or_broken_export_is_refused_before_anything_is_written() -> None:
    engine = Engine(MemoryStore())
    await told(engine)
    lines = (await exported(engine))[1:]
    for broken in (
        [*lines[:3], *lines[4:]],
        [*lines[:3], lines[3].replace(b"turn 0", b"turn 9"), *lines[4:]],
        [*lines[:3], lines[3][: len(lines[3]) // 2]],
        [b"{}"],
        [b""],
    ):
        if broken == lines:
            continue
        store = MemoryStore()
        with pytest.raises(MalformedTranscript, match="line"):
            await import_drafts(store, "s", list(read_drafts(broken)))
        assert [info async for info in store.streams()] == []


# -- folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", [transcript, request_view, numbering, audit, usage])
async def test_a_fold_from_the_middle_equals_one_from_zero(projection: Any) -> None:
    engine = Engine(MemoryStore())
    await told(engine)
    records = [record async for record in engine.records("s")]
    whole = projection.initial()
    states = [whole]
    for record in records:
        whole = projection.evolve(whole, record)
        states.append(whole)
    for middle in range(0, len(records), 5):
        again = states[middle]
        for record in records[middle:]:
            again = projection.evolve(again, record)
        assert _comparable(again) == _comparable(whole)


@settings(deadline=None, max_examples=40)
@given(steps=st.lists(st.sampled_from(["add", "add", "add", "set", "clear", "turn"]), max_size=20))
def test_the_transcript_read_in_runs_equals_the_fold(steps: list[str]) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session("s")
        for number, step in enumerate(steps):
            if step == "add":
                await ctx.add_message({"role": "user", "content": f"m{number}"})
            elif step == "set":
                await ctx.set_messages((await ctx.get_messages())[1:])
            elif step == "clear":
                await ctx.clear()
            else:
                async with ctx.turn():
                    await ctx.add_message({"role": "user", "content": f"m{number}"})
        head = await engine.store.head("s")
        assert head is not None
        for at in range(head.head + 1):
            state = transcript.initial()
            async for record in engine.records("s", stop=at):
                state = transcript.evolve(state, record)
            found = await engine.transcript("s", at=at)
            assert [(m.number, m.position) for m in found] == [
                (line.number, line.position) for line in state.lines
            ]

    asyncio.run(play())


def _comparable(state: Any) -> Any:
    """Digest objects compare by identity, so a layout is compared by what it measures."""
    if hasattr(state, "measure"):
        return state.measure(), state.entries()
    if isinstance(state, msgspec.Struct):
        return [_comparable(getattr(state, name)) for name in state.__struct_fields__]
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return [_comparable(part) for part in state]
    return state


@pytest.mark.parametrize("url", ["mysql://x", "sqlite:///", "", "sqlite://"])
async def test_a_store_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="store: expected"):
        await eventctx.open(url)


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match=str(tmp_path)):
        await eventctx.open(tmp_path)


async def test_a_relative_and_an_absolute_url_name_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (
        "sqlite:///one.db",
        f"sqlite:///{tmp_path}/two.db",
        "three.db",
        tmp_path / "four.db",
    ):
        async with eventctx.open(url) as engine:
            await engine.session("s")
    made = [path.name for path in tmp_path.iterdir() if path.suffix == ".db"]  # noqa: ASYNC240
    assert sorted(made) == ["four.db", "one.db", "three.db", "two.db"]
