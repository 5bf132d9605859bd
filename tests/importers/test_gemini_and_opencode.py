"""Gemini CLI's chats, whose history is written anew, and opencode's sessions in all their forms."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.found import FolderWatcher
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import project_of, sum_sessions
from eventctx.stores.memory import MemoryStore
from tests.importers.given import put, text
from tests.importers.taken import (
    events,
    linked_to,
    load,
    load_data,
    messages,
    records,
    usage,
    views_in_words,
    words,
)
from tests.importers.terminal_agents import (
    CHAT,
    Gemini,
    OpenCode,
    answers,
    calls,
    ran,
    says,
    thought,
    told,
    tool,
)

CONTEXT = "<session_context>\nToday is one day."
LATER = "<session_context>\nToday is another day."


async def test_calls_after_a_note_on_the_screen_are_the_answers_before(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("on it").record("warning", "a hook failed")
    nothing = dict.fromkeys(("input", "output", "cached", "thoughts", "tool", "total"), 0)
    log.answer("", tool("c1"), tokens=nothing, thoughts=[]).answer("done")
    store, summary = await load_data(tmp_path, log.data())
    assert summary.calls == 2
    assert await usage(store, CHAT) == (200, 20, 80, 6)
    assert len(await events(store, CHAT, "tool:pre")) == 1


async def test_a_compression_keeps_what_stays_also_amid_a_call(tmp_path: Path) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).user("go").answer("on it", tool("c1"))
    log.user("more").answer("sure")
    tail = [told("n1", says("more")), told("n2", thought("so"), says("sure "), kind="gemini")]
    summary_of = [told("n3", says("In short")), told("n4", says("Got it."), kind="gemini")]
    log.anew(told("s", says(LATER)), *summary_of, *tail).user("and?").answer("that")
    store, summary = await load_data(tmp_path, log.data())
    assert summary.compactions == 1
    last = (await views_in_words(store, CHAT))[-1]
    assert last[1:] == ["u:In short", "a:Got it.", "u:more", "a:sure", "u:and?"]
    assert last[0].startswith("u:<session_context>")
    log = Gemini().user("go").answer("hm").user("read").answer("", tool("c1", "jam"), own="a")
    called = told("n3", calls(None, file_path="a"), kind="gemini")
    log.anew(told("n1", says("In short")), told("n2", says("read")), called)
    store, summary = await load_data(tmp_path, log.results(answers("c1", "jam")).answer("x").data())
    assert summary.compactions == 1
    assert (await views_in_words(store, CHAT))[-1] == ["u:In short", "u:read", "a:c1", "u:jam"]


async def test_a_resumed_session_that_begins_anew_loses_nothing(tmp_path: Path) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).user("go", "u").answer("on it", tool("c1"))
    log.results(answers("c1"), own="r").answer("done", own="a").anew(told("s", says(LATER)))
    called = told("x", says("on it"), calls("c1", file_path="a"), kind="gemini")
    again = [told("s", says(LATER)), told("u", says("go")), called]
    again += [told("x", answers("c1")), told("r", answers("c1"))]
    log.anew(*again, told("a", says("done"), kind="gemini")).user("more").answer("yes")
    store, summary = await load_data(tmp_path, log.data())
    assert (summary.messages, summary.compactions) == (7, 0)
    last = (await views_in_words(store, CHAT))[-1][1:]
    assert last == ["u:go", "a:on it+c1", "u:done", "a:done", "u:more"]


async def test_a_masked_result_is_shortened_from_there_on(tmp_path: Path) -> None:
    log = Gemini().user("go", "u").answer("on it", tool("c1", "long " * 9), own="a").answer("so")
    masked = told("a", says("on it"), calls("c1", file_path="a"), kind="gemini")
    result, after = told("r", answers("c1", "[masked]")), told("b", says("so"), kind="gemini")
    log.anew(told("u", says("go")), masked, result, after).user("more").answer("yes")
    store, summary = await load_data(tmp_path, log.data())
    assert summary.compactions == 1
    _, before, last = await views_in_words(store, CHAT)
    assert before == ["u:go", "a:on it+c1", f"u:{'long ' * 9}"]
    assert last == ["u:go", "a:on it+c1", "u:[masked]", "a:so", "u:more"]
    (masking,) = [one for one in await records(store, CHAT) if one.type == "context:pre_compact"]
    assert b"gemini-cli:masking" in masking.payload


@pytest.mark.parametrize(
    "back",
    [
        lambda log: log.rewind("u2"),
        lambda log: log.anew(told("u1", says("go")), told("a1", says("yes"), kind="gemini")),
    ],
)
async def test_what_was_taken_back_is_in_the_transcript_and_in_no_later_request(
    back: Callable[[Gemini], Gemini], tmp_path: Path
) -> None:
    log = back(Gemini().user("go", "u1").answer("yes", own="a1").user("wrong", "u2").answer("no"))
    store, summary = await load_data(tmp_path, log.user("again").answer("sure").data())
    assert (summary.messages, summary.compactions) == (6, 0)
    assert (await views_in_words(store, CHAT))[-1] == ["u:go", "a:yes", "u:again"]


async def test_a_chat_that_has_just_begun_or_is_half_written_waits(tmp_path: Path) -> None:
    log = Gemini().anew(told("s", says(CONTEXT))).record("warning", "a hook failed")
    store, summary = await load_data(tmp_path, log.data())
    reason = "line 1: there is no message in the chat yet"
    assert (summary.session, summary.waiting) == (None, (reason,))
    assert [info async for info in store.streams()] == []
    log = Gemini().user("go").answer("on it").user("more")
    with pytest.raises(UnknownFormat, match="found neither"):
        await load_data(tmp_path, log.document()[:-20], "session-1.json")
    with pytest.raises(MalformedTranscript, match="one whole JSON document"):
        await load(MemoryStore(), tmp_path / "session-1.json", format="gemini-cli")
    _, summary = await load_data(tmp_path, log.data()[:-20], complete=False)
    assert (summary.messages, len(summary.waiting)) == (1, 2)


async def test_a_subagents_chat_is_a_session_of_its_own(tmp_path: Path) -> None:
    main = Gemini().user("go").answer("on it", tool("c1", agentId="helper-7")).answer("done")
    old = Gemini(kind="subagent", startTime="2026-01-01T10:00:05.250Z").user("count").answer("two")
    new = Gemini("helper-7", kind="subagent").user("count").answer("two")
    chats, store = tmp_path / "work" / "chats", MemoryStore()
    put(chats / "session-1.jsonl", main.data())
    put(chats / "session-2.json", old.document())
    put(chats / CHAT / "helper-7.jsonl", new.data())
    done = await import_paths(store, [tmp_path], complete=True)
    assert done.passed_over == ()
    names = sorted(one.session or "" for one in done.sessions)
    assert names == [CHAT, f"{CHAT}.agent-20260101100005250", "helper-7"]
    assert [await linked_to(store, name) for name in names[1:]] == [[CHAT], [CHAT]]


async def test_a_chat_that_goes_on_in_lines_is_passed_over_in_a_search(tmp_path: Path) -> None:
    log = Gemini().user("go").answer("yes")
    put(tmp_path / "session-1.json", log.document())
    put(tmp_path / "session-1.jsonl", log.user("more").answer("sure").data())
    done = await import_paths(MemoryStore(), [tmp_path], complete=True)
    assert [one.messages for one in done.sessions] == [4]
    assert [(one.path.name, one.error) for one in done.passed_over] == [("session-1.json", None)]


async def test_ids_that_are_missing_or_used_twice_lose_no_message(tmp_path: Path) -> None:
    log = Gemini().user("go").record("gemini", [calls(None)], model="m").results(answers(None))
    store, _ = await load_data(tmp_path, log.answer("done").data())
    found = await messages(store, CHAT)
    assert found[1]["content"][0]["id"] == found[2]["content"][0]["tool_use_id"] == "call-1"
    log = Gemini().user("go", "x").answer("on it", own="x").answer("on it", tool("c1"), own="x")
    store, summary = await load_data(tmp_path, log.user("more", "x").answer("sure").data())
    assert (summary.messages, summary.warned) == (5, 0)
    last = ["u:go", "a:on it+c1", "u:done", "u:more"]
    assert await views_in_words(store, CHAT) == [["u:go"], last]


# -- opencode --------------------------------------------------------------------------------------

THINKS = {"type": "reasoning", "text": "hm", "time": {"start": 1}}
OWN = "ses_1"


def session() -> OpenCode:
    log = OpenCode().user("go")
    both = (ran("c1"), ran("c2", status="error", error="bad"))
    return log.answer(THINKS, text("both"), *both).answer(text("done"))


async def exported(
    tmp_path: Path, log: OpenCode, *, complete: bool = True
) -> tuple[MemoryStore, ImportSummary]:
    return await load_data(tmp_path, log.export(), "export.json", complete=complete)


async def last_view(tmp_path: Path, log: OpenCode) -> list[str]:
    store, _ = await exported(tmp_path, log)
    return (await views_in_words(store, OWN))[-1]


@pytest.mark.parametrize(
    "written",
    [
        lambda root: session().storage(root / "storage"),
        lambda root: session().database(root / "opencode.db"),
        lambda root: put(root / "export.json", session().export()),
    ],
)
async def test_a_session_is_the_same_in_all_three_forms(
    written: Callable[[Path], Path], tmp_path: Path
) -> None:
    store = MemoryStore()
    summary = await load(store, written(tmp_path), complete=True)
    assert (summary.format, summary.session, summary.warned) == ("opencode", OWN, 0)
    assert (summary.turns, summary.calls) == (1, 2)
    found = await messages(store, OWN)
    assert [words(one) for one in found[:2]] == ["u:go", "a:?hm+both+c1+c2"]
    assert [words(one) for one in found[2:]] == ["u:done+bad", "a:done"]
    assert [one.get("is_error") for one in found[2]["content"]] == [None, True]
    # Prompts with what was cached; outputs with the reasoning, as the totals say.
    assert await usage(store, OWN) == (320, 20, 80, 6)
    # The folder of a session is its project.
    (sums,) = await sum_sessions(store, ReadErrors())
    assert await project_of(store, OWN, sums.sums) == "/w"


async def test_a_storage_and_a_database_are_all_of_their_sessions(tmp_path: Path) -> None:
    root, store = tmp_path / "opencode", MemoryStore()
    session().storage(root / "storage")
    child = OpenCode("ses_2", parentID=OWN, agent="explore").user("count")
    child.storage(root / "storage")
    put(root / "auth.json", b'{"anthropic": {"key": "secret"}}')
    done = await import_paths(store, [tmp_path], complete=True)
    assert done.passed_over == ()
    assert [(one.session, one.messages) for one in done.sessions] == [(OWN, 4), ("ses_2", 1)]
    assert await linked_to(store, "ses_2") == [OWN]
    path = session().database(tmp_path / "opencode.db")
    child.answer(text("two")).database(path)
    OpenCode("ses_3").database(path)  # without any message
    done = await import_paths(MemoryStore(), [path], complete=True)
    assert [(one.session, one.messages) for one in done.sessions] == [(OWN, 4), ("ses_2", 2)]


async def test_a_session_that_grows_adds_what_is_new(tmp_path: Path) -> None:
    store, whole, log = MemoryStore(), MemoryStore(), OpenCode().user("go")
    counts = []
    for grow in (lambda: log, lambda: log.answer(ran("c1")), lambda: log.user("more")):
        summary = await load(store, grow().storage(tmp_path))
        counts.append((summary.messages, len(summary.waiting)))
    assert counts == [(0, 1), (3, 0), (3, 1)]
    path = log.answer(text("yes")).storage(tmp_path)
    await load(store, path)
    await load(whole, path)
    assert await messages(store, OWN) == await messages(whole, OWN)


@pytest.mark.parametrize("form", ["storage", "database"])
async def test_a_watch_notices_what_is_written_next_to_a_sessions_file(
    form: str, tmp_path: Path
) -> None:
    root = tmp_path / "opencode"
    if form == "storage":
        session().storage(root / "storage")
        written = root / "storage" / "part" / "msg_03" / "prt_03_9.json"
    else:
        root.mkdir()
        written = session().database(root / "opencode.db").with_name("opencode.db-wal")
    watcher = FolderWatcher([tmp_path], quiet=600)
    (before,) = await watcher.look()
    written.write_text("{}")
    (after,) = await watcher.look()
    assert {one.path for one in after.files} - {one.path for one in before.files} == {str(written)}


async def test_a_compaction_keeps_its_tail_and_a_failed_summary_is_none(tmp_path: Path) -> None:
    log = session().user("more").answer(text("sure"))
    log.user({"type": "compaction", "auto": False, "tail_start_id": "msg_04"})
    log.answer(text("In short"), summary=True, parentID="msg_06").user("and?")
    asked = "u:What did we do so far?"
    last = await last_view(tmp_path, log.answer(text("that")))
    assert last == [asked, "a:In short", "u:more", "a:sure", "u:and?"]
    log = session().user({"type": "compaction", "auto": True})
    error = {"name": "ContextOverflowError", "data": {"message": "too large"}}
    log.answer(summary=True, parentID="msg_04", error=error).user("more").answer(text("sure"))
    assert (await last_view(tmp_path, log))[-2:] == [asked, "u:more"]
    assert (await exported(tmp_path, log))[1].compactions == 0


async def test_a_revert_that_may_be_undone_waits(tmp_path: Path) -> None:
    log = session().user("wrong").answer(text("no"))
    log.head["revert"] = {"messageID": "msg_04"}
    _, summary = await exported(tmp_path, log, complete=False)
    assert summary.waiting == ("line 5: going back to an earlier message may still be undone",)
    store, _ = await exported(tmp_path, log)
    (taken,) = [one for one in await records(store, OWN) if one.type == "context:post_compact"]
    assert b"taken_back" in taken.payload


async def test_answers_of_several_steps_or_with_an_error_are_told_apart(tmp_path: Path) -> None:
    for name, said in (("MessageAbortedError", ["a:half"]), ("APIError", [])):
        log = OpenCode().user("go").answer(text("half"), error={"name": name, "data": {}})
        last = await last_view(tmp_path, log.user("again").answer(text("sure")))
        assert last == ["u:go", *said, "u:again"]
    start, end = {"type": "step-start"}, {"type": "step-finish", "tokens": {"input": 50}}
    log = OpenCode().user("go").answer(ran("c1"), end, start, text("done"))
    store, summary = await exported(tmp_path, log)
    assert summary.calls == 2
    assert await views_in_words(store, OWN) == [["u:go"], ["u:go", "a:c1", "u:done"]]


async def test_a_persons_image_is_in_the_message(tmp_path: Path) -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
    listed = {"type": "file", "mime": "text/plain", "url": "file:///w/a.txt"}
    store, _ = await exported(tmp_path, OpenCode().user("see", image, listed).answer(text("ok")))
    _, shown = (await messages(store, OWN))[0]["content"]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert (shown["type"], shown["source"]) == ("image", source)


async def test_missing_and_broken_parts_are_told(tmp_path: Path) -> None:
    path, store = session().user("more").answer(text("sure")).storage(tmp_path), MemoryStore()
    shutil.rmtree(tmp_path / "part" / "msg_03")
    put(tmp_path / "part" / "msg_04" / "prt_04_1.json", b'{"id": "prt_04_1", "ty')
    put(tmp_path / "message" / OWN / "msg_99.json", b"")
    summary = await load(store, path, complete=True)
    assert summary.warnings == (
        "line 1: msg_99.json is not readable as JSON",
        "line 1: a message without a role",
        "line 4: the parts of the message are missing",
        "line 5: prt_04_1.json is not readable as JSON",
    )
    assert (summary.messages, summary.unknown) == (5, {"unreadable": 2, "message": 1})


async def test_another_programs_or_a_damaged_database_is_refused(tmp_path: Path) -> None:
    other = put(tmp_path / "opencode.db", b"SQLite format 3\0" + bytes(100))
    with pytest.raises((UnknownFormat, MalformedTranscript)):
        await load(MemoryStore(), other)
    other.unlink()
    data = session().database(other).read_bytes()
    with pytest.raises(MalformedTranscript, match="opencode export"):
        await load(MemoryStore(), put(other, data[:4096] + b"\xff" * (len(data) - 4096)))
