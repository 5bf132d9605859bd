"""opencode's sessions: its storage, its database and its exports."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.found import FolderWatcher
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import project_of, sum_sessions
from eventctx.stores.memory import MemoryStore
from tests.importers.given import load, messages, records
from tests.importers.terminal_agents import OpenCode, ran
from tests.importers.test_gemini import usage, views, words

THINKS = {"type": "reasoning", "text": "hm", "time": {"start": 1}}


def text(value: str, **part: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **part}


def session() -> OpenCode:
    log = OpenCode().user("go")
    log.answer(THINKS, text("both"), ran("c1"), ran("c2", status="error", error="bad"))
    return log.answer(text("done"))


async def imported(
    tmp_path: Path, log: OpenCode, *, complete: bool = True
) -> tuple[MemoryStore, ImportSummary]:
    path = tmp_path / "export.json"
    path.write_bytes(log.export())
    store = MemoryStore()
    return store, await load(store, path, complete=complete)


@pytest.mark.parametrize("form", ["storage", "database", "export"])
async def test_a_session_is_the_same_in_all_three_forms(form: str, tmp_path: Path) -> None:
    log = session()
    if form == "storage":
        path = log.storage(tmp_path / "storage")
    elif form == "database":
        path = log.database(tmp_path / "opencode.db")
    else:
        path = tmp_path / "export.json"
        path.write_bytes(log.export())
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    assert (summary.format, summary.session, summary.warned) == ("opencode", "ses_1", 0)
    assert (summary.turns, summary.calls) == (1, 2)
    found = await messages(store, "ses_1")
    assert [words(one) for one in found] == [
        "u:go",
        "a:?hm+both+c1+c2",
        "u:done+bad",
        "a:done",
    ]
    assert [one.get("is_error") for one in found[2]["content"]] == [None, True]
    # Prompts with what was cached; outputs with the reasoning, as the totals say.
    assert await usage(store, "ses_1") == (320, 20, 80, 6)


async def test_a_storage_is_one_session_for_each_head(tmp_path: Path) -> None:
    root = tmp_path / "opencode" / "storage"
    session().storage(root)
    OpenCode("ses_2", parentID="ses_1", agent="explore").user("count").storage(root)
    (tmp_path / "opencode" / "auth.json").write_text('{"anthropic": {"key": "secret"}}')
    store = MemoryStore()
    done = await import_paths(store, [tmp_path], complete=True)
    assert done.passed_over == ()
    assert [(one.session, one.messages) for one in done.sessions] == [("ses_1", 4), ("ses_2", 1)]
    links = [one for one in await records(store, "ses_2") if one.type == "session:linked"]
    assert [b"ses_1" in one.payload for one in links] == [True]


async def test_the_folder_of_a_session_is_its_project(tmp_path: Path) -> None:
    store, _ = await imported(tmp_path, session())
    (found,) = await sum_sessions(store, ReadErrors())
    assert await project_of(store, "ses_1", found.sums) == "/w"


async def test_a_database_is_all_of_its_sessions(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    session().database(path)
    OpenCode("ses_2").user("count").answer(text("two")).database(path)
    OpenCode("ses_3").database(path)  # without any message
    store = MemoryStore()
    done = await import_paths(store, [path], complete=True)
    assert [(one.session, one.messages) for one in done.sessions] == [("ses_1", 4), ("ses_2", 2)]


async def test_a_session_that_grows_adds_what_is_new(tmp_path: Path) -> None:
    store = MemoryStore()
    log = OpenCode().user("go")
    counts = []
    for grow in (lambda: log, lambda: log.answer(ran("c1")), lambda: log.user("more")):
        summary = await load(store, grow().storage(tmp_path / "storage"))
        counts.append((summary.messages, len(summary.waiting)))
    assert counts == [(0, 1), (3, 0), (3, 1)]
    log.answer(text("yes"))
    await load(store, log.storage(tmp_path / "storage"))
    whole = MemoryStore()
    await load(whole, log.storage(tmp_path / "storage"))
    assert await messages(store, "ses_1") == await messages(whole, "ses_1")


@pytest.mark.parametrize("form", ["storage", "database"])
async def test_a_watch_notices_what_is_written_next_to_a_sessions_file(
    form: str, tmp_path: Path
) -> None:
    root = tmp_path / "opencode"
    root.mkdir()
    log = session()
    if form == "storage":
        log.storage(root / "storage")
        written = root / "storage" / "part" / "msg_03" / "prt_03_9.json"
    else:
        log.database(root / "opencode.db")
        written = root / "opencode.db-wal"
    watcher = FolderWatcher([tmp_path], quiet=600)
    (before,) = await watcher.look()
    written.write_text("{}")
    (after,) = await watcher.look()
    assert {one.path for one in after.files} - {one.path for one in before.files} == {str(written)}


async def test_a_compaction_keeps_its_tail_after_the_summary(tmp_path: Path) -> None:
    log = session().user("more").answer(text("sure"))
    log.user({"type": "compaction", "auto": False, "tail_start_id": "msg_04"})
    log.answer(text("In short"), summary=True, parentID="msg_06").user("and?")
    store, _ = await imported(tmp_path, log.answer(text("that")))
    assert (await views(store, "ses_1"))[-1] == [
        "u:What did we do so far?",
        "a:In short",
        "u:more",
        "a:sure",
        "u:and?",
    ]


async def test_a_summary_that_failed_compacts_nothing(tmp_path: Path) -> None:
    log = session().user({"type": "compaction", "auto": True})
    error = {"name": "ContextOverflowError", "data": {"message": "too large"}}
    log.answer(summary=True, parentID="msg_04", error=error).user("more")
    store, summary = await imported(tmp_path, log.answer(text("sure")))
    assert summary.compactions == 0
    assert (await views(store, "ses_1"))[-1][-2:] == ["u:What did we do so far?", "u:more"]


async def test_a_revert_that_may_be_undone_waits(tmp_path: Path) -> None:
    log = session().user("wrong").answer(text("no"))
    log.head["revert"] = {"messageID": "msg_04"}
    _, summary = await imported(tmp_path, log, complete=False)
    assert summary.waiting == ("line 5: going back to an earlier message may still be undone",)
    store, _ = await imported(tmp_path, log)
    taken = [one for one in await records(store, "ses_1") if one.type == "context:post_compact"]
    assert [b"taken_back" in one.payload for one in taken] == [True]


@pytest.mark.parametrize(("name", "stays"), [("MessageAbortedError", True), ("APIError", False)])
async def test_an_answer_with_an_error_is_sent_again_only_if_a_person_ended_it(
    name: str, stays: bool, tmp_path: Path
) -> None:
    log = OpenCode().user("go").answer(text("half"), error={"name": name, "data": {}})
    store, _ = await imported(tmp_path, log.user("again").answer(text("sure")))
    said = ["a:half"] if stays else []
    assert (await views(store, "ses_1"))[-1] == ["u:go", *said, "u:again"]


async def test_an_old_message_with_several_steps_is_several_calls(tmp_path: Path) -> None:
    start, end = {"type": "step-start"}, {"type": "step-finish", "tokens": {"input": 50}}
    log = OpenCode().user("go").answer(ran("c1"), end, start, text("done"))
    store, summary = await imported(tmp_path, log)
    assert summary.calls == 2
    assert await views(store, "ses_1") == [["u:go"], ["u:go", "a:c1", "u:done"]]


async def test_a_persons_image_is_in_the_message(tmp_path: Path) -> None:
    image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
    listed = {"type": "file", "mime": "text/plain", "url": "file:///w/a.txt"}
    store, _ = await imported(tmp_path, OpenCode().user("see", image, listed).answer(text("ok")))
    blocks = (await messages(store, "ses_1"))[0]["content"]
    assert [one["type"] for one in blocks] == ["text", "image"]
    assert blocks[1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}


# -- bad input -----------------------------------------------------------------------------------


async def test_missing_and_broken_parts_are_told(tmp_path: Path) -> None:
    root = tmp_path / "storage"
    path = session().user("more").answer(text("sure")).storage(root)
    shutil.rmtree(root / "part" / "msg_03")
    (root / "part" / "msg_04" / "prt_04_1.json").write_text('{"id": "prt_04_1", "ty')
    (root / "message" / "ses_1" / "msg_99.json").write_text("")
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    assert summary.warnings == (
        "line 1: msg_99.json is not readable as JSON",
        "line 1: a message without a role",
        "line 4: the parts of the message are missing",
        "line 5: prt_04_1.json is not readable as JSON",
    )
    assert (summary.messages, summary.unknown) == (5, {"unreadable": 2, "message": 1})


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises((UnknownFormat, MalformedTranscript)):
        await load(MemoryStore(), path)


async def test_a_damaged_database_says_what_to_do(tmp_path: Path) -> None:
    path = session().database(tmp_path / "opencode.db")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(MalformedTranscript, match="opencode export"):
        await load(MemoryStore(), path)
