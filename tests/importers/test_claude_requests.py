"""Claude Code's own records of its requests become observed requests."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.errors import LogCorrupted
from eventctx.importers.load import ImportSummary, import_file
from eventctx.log import wire
from eventctx.log.wire import WireForm
from eventctx.queries.key_frames import timeline_at
from eventctx.queries.requests import RequestView, request_at
from eventctx.queries.sent import SentForm, addresses_of, sent_form, sources_of
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.importers.claude_requests import TOOLS, Recording, ask, hash_of, message_hash, said
from tests.importers.given import NOW, SESSION, call, put, raw_bytes, text
from tests.importers.taken import records

EXACT = "claude-code-exact/session.jsonl"


def outcome(call_id: str, words: str) -> dict[str, Any]:
    return said([{"tool_use_id": call_id, "type": "tool_result", "content": words}])


def two_requests() -> Recording:
    log = Recording().user("Say three steps")
    log.sends(ask()).answers("m1", text("On it."), call("t1")).result("t1", "one")
    asked = said([text("On it."), call("t1")], "assistant")
    log.sends(ask(), asked, outcome("t1", "one\n\n<system-reminder>9 left</system-reminder>"))
    return log.answers("m2", text("Done."), stop_reason="end_turn")


def one_request(words: str, sent: dict[str, Any], **about: Any) -> Recording:
    log = Recording().user(words).sends(sent, **about)
    return log.answers("m1", text("Done."), stop_reason="end_turn")


async def imported(log: Recording, tmp_path: Path, store: Any = None) -> tuple[Any, ImportSummary]:
    store = MemoryStore() if store is None else store
    path = put(tmp_path / "session.jsonl", log.data())
    return store, (await import_file(store, path, clock=lambda: NOW))[0]


async def requests_of(store: Any) -> list[RequestView]:
    rows = (await eventctx.Engine(store).audit(SESSION)).requests
    return [await request_at(store, SESSION, row.position) for row in rows]


async def last_sent(log: Recording, tmp_path: Path) -> tuple[Any, SentForm]:
    """The store, and the last request of an imported session, as it was sent."""
    store, _ = await imported(log, tmp_path)
    view = (await requests_of(store))[-1]
    assert view.verified
    assert view.sent is not None
    return store, view.sent


async def raw_parts(store: Any) -> bytes:
    found = await records(store, SESSION)
    assert "import:raw" in {one.type for one in found}
    return raw_bytes(found)


async def test_a_request_is_rebuilt_as_it_was_sent_with_what_was_put_in(tmp_path: Path) -> None:
    log = two_requests()
    store, _ = await imported(log, tmp_path)
    views = await requests_of(store)
    assert [view.known for view in views] == ["observed", "observed"]
    assert all(view.verified and view.consistent for view in views)
    assert [view.sent and view.sent.body() for view in views] == log.sent
    assert [view.messages for view in views] == [one["messages"] for one in log.sent]
    assert [view.tools for view in views] == [TOOLS, TOOLS]
    sent = views[1].sent
    assert sent is not None
    assert [one.numbers for one in sent.messages] == [(0,), (1,), (2,)]
    reminder, note = sent.messages[0].injected[0], sent.messages[2].injected[0]
    assert (reminder.place, reminder.start) == (("content", 0, "text"), 0)
    content = (sent.messages[2].message or {})["content"][0]["content"]
    assert content[note.start : note.end] == "\n\n<system-reminder>9 left</system-reminder>"


async def test_a_second_import_adds_only_the_new_request_of_a_grown_file(tmp_path: Path) -> None:
    log = two_requests()
    store, _ = await imported(log, tmp_path)
    assert (await imported(log, tmp_path, store))[1].added == 0
    answered = said([text("Done.")], "assistant")
    log.user("And now?").sends(*log.sent[-1]["messages"], answered, ask("And now?"))
    await imported(log.answers("m3", text("No."), stop_reason="end_turn"), tmp_path, store)
    views = await requests_of(store)
    assert [view.verified for view in views] == [True] * 3
    assert views[2].sent and views[2].sent.body() == log.sent[2]


async def test_cache_marks_stand_where_they_stood(tmp_path: Path) -> None:
    log = one_request("Say", said("Say"), mark=("messages", 0, "content", 0))
    _, sent = await last_sent(log, tmp_path)
    marked = {**text("Say"), "cache_control": {"type": "ephemeral"}}
    assert sent.body()["messages"] == [said([marked])]
    assert sent.body()["system"] == log.sent[0]["system"]


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("api-request-blob", {"hash": "0" * 64}),
        ("api-request-blob", {"message": {"role": "user", "content": "another"}}),
        ("api-request-blob", {"message": "no message"}),
        ("api-request-shape", {"shape": {"system": []}}),
        ("api-request", {"tail": ["not hex"]}),
        ("api-request", {"keep": 5, "base": "nobody"}),
        ("api-request", {"cut": True}),
        ("api-request", {"id": None}),
        ("api-request", {"params": {}}),
        ("api-request", {"shapeHash": ...}),
        ("api-request-blob", {"message": said("go", ""), "hash": message_hash(said("go", ""))}),
        ("api-request-shape", {"shape": {"tools": 5}, "shapeHash": hash_of({"tools": 5})}),
        ("api-request-shape", {"shape": {"system": 5}, "shapeHash": hash_of({"system": 5})}),
    ],
)
async def test_a_record_that_is_not_as_expected_leaves_its_requests_reconstructed(
    line: str, change: dict[str, Any], tmp_path: Path
) -> None:
    log = two_requests()
    changed = next(row for row in log.rows if row["type"] == line)
    changed.update(change)
    for key in [key for key, value in change.items() if value is ...]:
        del changed[key]
    store, summary = await imported(log, tmp_path)
    first = (await requests_of(store))[0]
    assert (first.known, first.verified, first.consistent) == ("reconstructed", False, True)
    assert summary.messages == 4
    assert (await imported(log, tmp_path, store))[1].added == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("api-request", "it is nowhere before its answer"),
        ("api-request-blob", "a message of it is not in the file"),
        ("api-request-shape", "its system prompt and its tools are not in the file"),
    ],
)
async def test_why_a_request_stays_reconstructed_is_said(
    line: str, reason: str, tmp_path: Path
) -> None:
    log = two_requests()
    log.rows.remove(next(row for row in log.rows if row["type"] == line))
    _, summary = await imported(log, tmp_path)
    assert f"the request request-0 stays reconstructed: {reason}" in summary.warnings[0]


async def test_a_message_sent_as_it_was_said_has_no_record_of_its_own(tmp_path: Path) -> None:
    log, hook = two_requests(), "Stop hook feedback: go on"
    log.user(hook, isMeta=True)
    log.sends(*log.sent[-1]["messages"], said([text("Done.")], "assistant"), said(hook))
    log.rows.remove([row for row in log.rows if row["type"] == "api-request-blob"][-1])
    store, sent = await last_sent(log.answers("m3", text("On."), stop_reason="end_turn"), tmp_path)
    assert sent.body() == log.sent[-1]
    assert sent.messages[-1].numbers == (4,)
    await eventctx.Engine(store).erase(SESSION, [4])
    assert message_hash(said(hook)).encode() not in await raw_parts(store)


async def test_a_message_written_anew_still_carries_a_persons_words(tmp_path: Path) -> None:
    log = one_request("go", ask("go")).user("on")
    anew = said([text("<system-reminder>\nBe quick.\n</system-reminder>"), text("go")])
    log.sends(anew, said([text("Done.")], "assistant"), said("on"))
    _, sent = await last_sent(log.answers("m2", text("Fine."), stop_reason="end_turn"), tmp_path)
    assert [one.numbers for one in sent.messages] == [(0,), (1,), (2,)]
    assert len(sent.messages[0].injected) == 1


async def test_of_messages_that_are_the_same_each_has_its_own_number(tmp_path: Path) -> None:
    done = said([text("Done.")], "assistant")
    log = one_request("one", said("one")).user("two").sends(said("one"), done, said("two"))
    log.answers("m2", text("Done."), stop_reason="end_turn").user("three")
    # Another run of the program begins its first request with nothing.
    messages = [said("one"), done, said("two"), done, said("three")]
    log.sends(*messages, base=None, keep=0, tail=[message_hash(one) for one in messages])
    _, sent = await last_sent(log.answers("m3", text("Done."), stop_reason="end_turn"), tmp_path)
    assert [one.numbers for one in sent.messages] == [(0,), (1,), (2,), (3,), (4,)]


async def test_a_request_that_failed_and_was_sent_again_is_one_call(tmp_path: Path) -> None:
    log = Recording().user("Say three steps").sends(ask()).sends(ask())
    log.answers("m1", text("Done."), stop_reason="end_turn")
    store, summary = await imported(log, tmp_path)
    assert (summary.calls, summary.observed, summary.unanswered) == (1, 1, 1)
    assert [view.verified for view in await requests_of(store)] == [True]


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("yes", said("yes")),
        (
            "Say three steps, and slowly and clearly",
            said("Say three steps, and slowly and clearly"),
        ),
        ("no", ask("no")),  # the copy holds more than the message
    ],
)
async def test_an_erased_message_takes_its_sent_copy_and_its_hash_along(
    words: str, sent: dict[str, Any], tmp_path: Path
) -> None:
    store, _ = await last_sent(one_request(words, sent), tmp_path)
    await eventctx.Engine(store).erase(SESSION, [0])
    (view,) = await requests_of(store)
    assert view.sent and view.sent.messages[0].message is None
    assert view.sent.erased
    assert view.verified
    left = [record async for record in store.read(SESSION)]
    hashed = message_hash(sent).encode()
    assert hashed not in await raw_parts(store)
    assert not any(hashed in record.payload for record in left)
    copies = [one.bodies[0].data for one in left if one.type == "context:request_content"]
    assert copies.count(None) == 1


async def test_a_request_with_another_digest_than_the_recorded_one_does_not_verify() -> None:
    form = WireForm(rule="claude-code-1", digest="ab" * 32, tail=((1, 0),), messages=1)
    store = MemoryStore()
    engine = eventctx.Engine(store)
    ctx = await engine.session(SESSION)
    await ctx.add_message({"role": "user", "content": "go"})
    await ctx.get_messages_for_request()
    sources = sources_of(await timeline_at(store, SESSION))
    sent = await sent_form(store, SESSION, sources, form, allow_damage=False)
    assert [one.message for one in sent.messages] == [{"role": "user", "content": "go"}]
    assert not sent.holds


async def edited(folder: Path, kind: bytes, **columns: bytes) -> SqliteStore:
    """A store with an imported session, whose first record that holds ``kind`` was edited."""
    store, _ = await imported(two_requests(), folder, await SqliteStore.open(folder / "s.db"))
    await store.close()
    with contextlib.closing(sqlite3.connect(folder / "s.db")) as database:
        rows = database.execute("SELECT pos, payload FROM records ORDER BY pos").fetchall()
        (place, *_) = [pos for pos, payload in rows if kind in payload]
        for column, value in columns.items():
            database.execute(f"UPDATE records SET {column} = ? WHERE pos = ?", (value, place))  # noqa: S608
        database.commit()
    return await SqliteStore.open(folder / "s.db")


async def test_a_sent_content_that_was_edited_is_shown_as_damage(tmp_path: Path) -> None:
    store = await edited(tmp_path, b'"kind":"tools"', data=b'[{"name":"another"}]')
    at = (await eventctx.Engine(store).audit(SESSION)).requests[1].position
    with pytest.raises(LogCorrupted):
        await request_at(store, SESSION, at)
    view = await request_at(store, SESSION, at, allow_damage=True)
    assert (view.verified, view.consistent, view.tools) == (False, True, [{"name": "another"}])
    await store.close()


@pytest.mark.parametrize("data", [b'{"role": "us', b"[1]", b'"text"'])
async def test_a_sent_message_that_is_none_any_more_is_damage(data: bytes, tmp_path: Path) -> None:
    store = await edited(tmp_path, b'"kind":"message"', data=data)
    at = (await eventctx.Engine(store).audit(SESSION)).requests[1].position
    with pytest.raises(LogCorrupted):
        await request_at(store, SESSION, at, allow_damage=True)
    await store.close()


def test_a_request_that_was_edited_to_begin_with_itself_has_an_end() -> None:
    common: dict[str, Any] = {"rule": "r", "digest": "ab" * 32, "messages": 3, "keep": 2}
    itself = WireForm(tail=((1, 0), (2, 0)), base=7, **common)
    later = WireForm(tail=((3, 0),), base=9, **common)
    assert addresses_of({7: itself}, itself)[-2:] == [(1, 0), (2, 0)]
    assert addresses_of({7: later, 9: itself}, itself)[-2:] == [(1, 0), (2, 0)]


async def test_the_requests_equal_what_the_server_received(recorded_sessions: Path) -> None:
    path = recorded_sessions / EXACT
    lines = path.with_name("requests.jsonl").read_text().splitlines()
    received = [json.loads(line)["body"] for line in lines]
    store = MemoryStore()
    (summary,) = await import_file(store, path)
    engine = eventctx.Engine(store)
    rows = (await engine.audit(summary.session or "")).requests
    for row, body in zip(rows, received, strict=True):
        view = await request_at(store, summary.session or "", row.position)
        assert view.verified
        assert view.sent is not None
        rebuilt = view.sent.body()
        # Headers, and a billing line that comes first in the prompt, are in no record.
        del rebuilt["betas"], body["metadata"], body["stream"], body["system"][0]
        assert rebuilt == body


def test_the_digest_of_a_request_covers_each_part_of_it_and_their_order() -> None:
    one, two = wire.hash_of([b"a" * 32, b"b" * 32]), wire.hash_of([b"b" * 32, b"a" * 32])
    parts = [None, b"s" * 32, b"t" * 32]
    digests = {
        wire.request_digest(messages, system, tools, parameters)
        for messages in (one, two)
        for system in parts
        for tools in parts
        for parameters in parts
    }
    assert len(digests) == 2 * 3**3
    in_steps = wire.hash_of([b"b" * 32], wire.hash_of([b"a" * 32]))
    nothing = (None, None, None)
    assert wire.request_digest(one, *nothing) == wire.request_digest(in_steps, *nothing)
