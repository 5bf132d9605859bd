"""Erasing messages and deleting sessions: nothing of them stays anywhere, and all else verifies."""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, SessionWasDeleted, StreamNotFound
from eventctx.importers.load import import_file
from eventctx.log.events import PlanStart
from eventctx.queries.transfer import export_lines, import_drafts, read_drafts
from eventctx.stores.receipt_book import ReceiptBook
from tests.session.given import prove, records_of
from tests.sessions import model, names, user

WORDS = "the launch code is 0042 alpha zulu tango foxtrot and nobody may ever know it"
SECRET = user(f"Hello. {WORDS}. Please remember.")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    async with eventctx.open(tmp_path / "store.db", receipts=tmp_path / "book.jsonl") as opened:
        yield opened


def files_with(folder: Path, words: str = "foxtrot") -> list[str]:
    """Names of the files that hold the words, plain or compressed as raw parts are."""
    found = []
    for file in sorted(folder.rglob("*")):
        data = file.read_bytes() if file.is_file() else b""
        at = [place for place in range(len(data)) if data.startswith(b"\x78\x5e", place)]
        plain = b"".join(map(_inflated, (data[place:] for place in at)))
        if words.encode() in data + plain:
            found.append(file.name)
    return found


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data)
    except zlib.error:
        return b""


async def talk(context: eventctx.Context, count: int, size: int = 60) -> None:
    for number in range(count):
        said, answered = f"question {number} " * size, f"answer {number} " * size
        await context.add_messages([user(said), model(answered)])
        await context.get_messages_for_request()


async def test_an_erased_message_is_in_no_file_and_all_verifies(
    engine: Engine, tmp_path: Path
) -> None:
    context = await engine.session("s", max_tokens=3_000)
    await context.add_message(SECRET)
    await talk(context, 5)
    receipt = await context.add_message(user("last"))
    assert [one.number for one in await engine.recall("foxtrot")] == [0]
    assert files_with(tmp_path)

    done = await engine.erase("s", [0], reason="on request")
    assert (done.numbers, done.sessions, done.scrubbed) == ((0,), ("s",), True)
    assert len(context._session.bodies) == 0, "contents are in memory no more"
    assert files_with(tmp_path) == []
    assert await engine.recall("foxtrot") == []
    proof = await engine.verify("s", receipt)
    assert (proof.problems, proof.erased) == ((), done.bodies)
    await prove(engine)
    await context.add_message(user("more"))
    sent = await context.get_messages_for_request()
    assert "[erased]" in str(sent) and "foxtrot" not in str(sent)
    (record,) = await records_of(engine.store, kind="context:erased")
    assert json.loads(record.payload)["reason"] == "on request"
    # What a host gives back makes no message of an erased one.
    given = await context.get_messages()
    assert given[0] == user("[erased]")
    await context.set_messages(given)
    assert [one.number for one in await engine.transcript("s")] == list(range(13))


async def test_another_engine_of_the_session_sends_nothing_erased(
    engine: Engine, tmp_path: Path
) -> None:
    async with eventctx.open(tmp_path / "store.db", receipts=False) as other:
        context = await other.session("s")
        await context.add_message(SECRET)
        await talk(context, 2)
        assert "foxtrot" in str(await context.get_messages_for_request())
        await engine.erase("s", [0])
        shown = await context.get_messages_for_request(), await context.get_messages()
        assert "foxtrot" not in str(shown)
        assert (await other.verify("s")).ok


async def test_summaries_of_an_erased_message_go_along(engine: Engine, tmp_path: Path) -> None:
    async def summarizer(request: eventctx.SummaryRequest) -> str:
        told = [str(message) for message in (*request.earlier, *request.messages)]
        return "They said: " + " ".join(text for text in told if "foxtrot" in text)[:400]

    context = await engine.session("s", max_tokens=2_000, policy="summarize", summarizer=summarizer)
    await talk(context, 2)
    await context.add_message({**SECRET, "role": "assistant"})
    await talk(context, 12)
    assert "They said" in str(await context.get_messages_for_request())
    assert files_with(tmp_path, "They said: {'role")
    done = await engine.erase("s", [4])
    assert done.bodies > 1
    assert files_with(tmp_path) == []
    assert (await engine.verify("s")).ok
    assert "foxtrot" not in str(await context.get_messages_for_request())


@pytest.mark.parametrize("own", [{}, {"id": "call_0"}], ids=["no ids", "one id in every answer"])
async def test_a_tool_round_goes_alone_of_those_of_its_id(
    engine: Engine, own: dict[str, str]
) -> None:
    context = await engine.session("s")
    await context.add_message(user("read them"))
    answered = {"tool_call_id": own["id"]} if own else {"tool_name": "read"}
    for name in ("alpha", "bravo", "charlie"):
        call = {**own, "function": {"name": "read", "arguments": {"path": name}}}
        await context.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
        await context.add_message({"role": "tool", **answered, "content": f"{name} is read"})
    done = await engine.erase("s", [4])
    assert done.numbers == (3, 4)
    kept = str(await context.get_messages_for_request())
    assert "alpha is read" in kept and "charlie is read" in kept and "bravo" not in kept


async def test_a_tool_round_goes_with_its_shortened_copies(engine: Engine, tmp_path: Path) -> None:
    context = await engine.session("s", max_tokens=4_000, policy="ladder")
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "foxtrot.txt"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": (WORDS + " ") * 100}
    for role, content in (("user", "read it"), ("assistant", [call]), ("user", [result])):
        await context.add_message({"role": role, "content": content})
    await talk(context, 15, 20)
    compactions = await records_of(engine.store, kind="context:post_compact")
    shortened = [body.data or b"" for one in compactions for body in one.bodies]
    assert any(b"alpha zulu" in data for data in shortened), "the beginning of the result is kept"
    before = await engine.store.head("s")
    planned = await engine.erase("s", [2], dry_run=True)
    assert await engine.store.head("s") == before
    done = await engine.erase("s", [2])
    assert (planned.numbers, planned.bodies) == (done.numbers, done.bodies)
    assert done.numbers == (1, 2)
    assert files_with(tmp_path) == files_with(tmp_path, "alpha zulu") == []
    await prove(engine)


async def test_what_a_host_was_sent_and_hints_go_along(engine: Engine, tmp_path: Path) -> None:
    context = await engine.session("s", max_tokens=3_000)
    await context.add_message(user(f"{SECRET['content']} The account is DE-4471-x, hurry."))
    await talk(context, 6)
    await context.get_messages_for_request()
    prepared = (await engine.audit("s")).requests[-1]
    reminder = user(f"<system-reminder>{WORDS}</system-reminder>")
    other = user("an addition that has nothing to do with it")
    await context.record_sent(prepared.position, 3, [(1, reminder), (1, other)], 0)
    # A hint goes along that holds its words, or names what it names.
    for hint in (f"Keep that {WORDS}", "the account de-4471-x", "whatever is in a hurry"):
        await context.compact(keep=hint)
        await talk(context, 6)
    await engine.erase("s", [0])
    assert files_with(tmp_path) == files_with(tmp_path, "4471-x") == []
    assert files_with(tmp_path, "nothing to do with it")
    assert files_with(tmp_path, "whatever is in")
    assert (await engine.verify("s")).ok


async def test_every_fork_that_reaches_it_loses_it_and_says_so(
    engine: Engine, tmp_path: Path
) -> None:
    context = await engine.session("s", max_tokens=3_000)
    await context.add_messages([user("before"), SECRET])
    await talk(context, 3)
    await engine.fork("s", 1, "before")
    await engine.fork("s", 4, "behind")
    await engine.fork("behind", 5, "behind that")
    fork = await engine.session("behind that", max_tokens=2_000)
    await talk(fork, 8)
    done = await engine.erase("behind that", [1])
    assert set(done.sessions) == {"s", "behind", "behind that"}
    assert files_with(tmp_path) == []
    for name in ("s", "before", "behind", "behind that"):
        assert (await engine.verify(name)).ok
        erased = await records_of(engine.store, name, "context:erased")
        assert len(erased) == (name != "before")
    await engine.fork("s", 4, "made later")
    assert (await engine.verify("made later")).ok
    info = await engine.store.head("made later")
    lines = [line async for line in export_lines(engine.store, info)]
    await import_drafts(engine.store, "moved", read_drafts(lines[1:]))
    assert (await engine.verify("moved")).ok
    assert (await engine.transcript("made later"))[1].message is None


async def test_raw_parts_of_an_imported_file_go_and_stay_away(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path.with_name(f"{tmp_path.name}-chat.jsonl")
    lines = [
        {"type": "user", "uuid": "u1", "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z",
         "message": SECRET},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s",
         "timestamp": "2026-01-01T00:00:01Z", "content": SECRET["content"]},
        {"type": "assistant", "uuid": "a1", "parentUuid": "u1", "sessionId": "s",
         "timestamp": "2026-01-01T00:00:02Z",
         "message": {"role": "assistant", "content": [{"type": "text", "text": "Noted."}]}},
    ]  # fmt: skip
    padding = {"type": "progress", "sessionId": "s", "data": "x" * 2_000}
    file.write_text("".join(json.dumps(line) + "\n" for line in [*lines, padding]))
    (summary,) = await import_file(engine.store, file, complete=True)
    assert summary.raw and summary.session
    assert files_with(tmp_path)
    await engine.erase(summary.session, [0])
    assert files_with(tmp_path) == []
    (again,) = await import_file(engine.store, file, complete=True)
    assert (again.added, files_with(tmp_path)) == (0, [])
    assert (await engine.verify(summary.session)).ok


async def test_thinking_behind_an_erased_message_is_left_out(engine: Engine) -> None:
    context = await engine.session("s")
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    answer = {"role": "assistant", "content": [thinking, {"type": "text", "text": "Noted."}]}
    await context.add_messages([SECRET, answer, user("go on")])
    assert "hm" in str(await context.get_messages_for_request())
    await engine.erase("s", [0])
    assert "thinking" not in str(await context.get_messages_for_request())
    await prove(engine)


async def test_messages_that_repeat_the_words_are_named_and_stay(engine: Engine) -> None:
    context = await engine.session("s")
    await context.add_messages([user(WORDS), model(f"You said: {WORDS}")])
    done = await engine.erase("s", [0])
    assert done.repeated == (("s", 1),)
    assert (await engine.transcript("s"))[1].message is not None
    await engine.erase("s", [1])
    assert (await engine.verify("s")).ok


@pytest.mark.parametrize("numbers", [[], [99], [-1], ["0"], [True], [0, 99]])
async def test_a_number_without_a_message_is_refused(engine: Engine, numbers: Any) -> None:
    await (await engine.session("s")).add_message(SECRET)
    with pytest.raises(InvalidSetting, match="erase of 's': expected numbers from 0 to 0"):
        await engine.erase("s", numbers)
    assert (await engine.transcript("s"))[0].message == SECRET
    for attempt in (lambda: engine.erase("nobody", [0]), lambda: engine.delete("nobody")):
        with pytest.raises(StreamNotFound):
            await attempt()


async def test_a_deleted_session_is_in_no_file_and_all_verifies(
    engine: Engine, tmp_path: Path
) -> None:
    context = await engine.session("s")
    await context.add_message(SECRET)
    await talk(context, 3)
    await (await engine.session("other")).add_message(user("stays"))
    await engine.recall("foxtrot")
    assert await engine.delete("s", reason="retention") == ["s"]
    assert files_with(tmp_path) == files_with(tmp_path, "question") == []
    assert [info.stream for info in await engine.sessions()] == ["other"]
    found = await engine.verify_store()
    assert found.ok
    assert {one.stream: one.deleted for one in found.sessions} == {"s": 11, "other": 0}
    assert ReceiptBook(tmp_path / "book.jsonl").last()["s"].position == 11
    assert [one.session for one in await engine.recall("stays")] == ["other"]
    assert await engine.recall("question") == []
    await engine.close()
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute("UPDATE records SET time = time + 1").fetchall()
    connection.close()
    async with eventctx.open(tmp_path / "store.db", receipts=False) as again:
        found = await again.verify_store()
    (edited,) = [one for one in found.sessions if one.stream == "s"]
    assert [one.kind for one in edited.problems] == ["record"]


async def test_the_name_of_a_deleted_session_stays_unused(engine: Engine, tmp_path: Path) -> None:
    context = await engine.session("s")
    receipt = await context.add_message(SECRET)
    await engine.delete("s")
    for attempt in (
        lambda: engine.session("s"),
        lambda: engine.delete("s"),
        lambda: engine.fork("s", 1, "t"),
        lambda: context.add_message(SECRET),
    ):
        with pytest.raises(SessionWasDeleted, match="deleted on purpose"):
            await attempt()
    file = tmp_path.with_name(f"{tmp_path.name}-again.jsonl")
    file.write_text(json.dumps(SECRET) + "\n")
    with pytest.raises(SessionWasDeleted):
        await import_file(engine.store, file, session="s")
    (problem,) = (await engine.verify("s", receipt)).problems
    assert problem.kind == "receipt" and "the session was deleted" in problem.text


async def test_a_session_with_forks_is_deleted_with_them_or_not_at_all(engine: Engine) -> None:
    await talk(await engine.session("s"), 2)
    await engine.fork("s", 2, "fork")
    await engine.fork("fork", 3, "fork of it")
    with pytest.raises(InvalidSetting, match="found 'fork', which read its records"):
        await engine.delete("s")
    assert len(await engine.transcript("fork of it")) == 2
    assert await engine.delete("s", forks=True) == ["fork of it", "fork", "s"]
    assert (await engine.verify_store()).ok


async def test_sessions_expire_by_their_last_record_but_for_younger_forks(tmp_path: Path) -> None:
    now = itertools.count(1_000)
    path = tmp_path / "store.db"
    async with eventctx.open(path, clock=lambda: next(now), receipts=False) as engine:
        for name in ("old", "kept", "young"):
            now = itertools.count(next(now) + 1_000)
            await (await engine.session(name)).add_message(user(name))
        await engine.fork("kept", 1, "fork")
        await engine.erase("old", [0])
        found = await engine.expired(3_500)
        assert [(one.session, one.kept_by) for one in found] == [("kept", ("fork",)), ("old", ())]


async def test_an_engine_closes_though_another_process_deleted_its_session(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with eventctx.open(path) as other:
        async with eventctx.open(path) as engine:
            gone, kept = await engine.session("gone"), await engine.session("kept")
            for context in (gone, kept):
                await context.add_message(SECRET)
            await other.delete("gone", reason="asked for")
            for context in (gone, kept):
                await context.emit(PlanStart())
        assert (await names(other, "kept"))[-1] == "plan:start"
