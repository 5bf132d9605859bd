"""Tasks of Cline and Roo Code, and sessions of Cline's newer releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.detect import choose
from eventctx.importers.found import search
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import ClineTask
from tests.importers.given import call, events, load, messages, next_request, put, text

TASK = text("<task>\nsort the jars\n</task>")


def result(call_id: str, value: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(value)]}


def long_task(*, roo: bool = False) -> ClineTask:
    """Five answers: a first pair that stays, three calls, and words at the end."""
    task = ClineTask(roo=roo).user(TASK).answer(text("on it"), call("t1"))
    for number in (1, 2, 3):
        task.user(result(f"t{number}")).answer(call(f"t{number + 1}"))
    return task.user(result("t4")).answer(text("sorted"))


async def test_a_task_is_its_messages_with_what_the_screen_tells_of_requests(
    tmp_path: Path,
) -> None:
    store, summary = await taken(long_task(), tmp_path / "tasks")
    assert (summary.session, summary.format, summary.turns) == ("1760", "cline", 1)
    found = await messages(store, "1760")
    assert [set(message) for message in found] == [{"role", "content"}] * 10
    usage = await events(store, "1760", "usage:reported")
    assert [(one.prompt, one.output, one.cache_read) for one in usage] == [(60, 7, 30)] * 5
    assert {one.model for one in usage} == {"m"}
    # Roo counts cached tokens in the input where its protocol says so.
    task = long_task(roo=True)
    shown = json.loads(task.screen[0]["text"])
    task.screen[0]["text"] = json.dumps({**shown, "apiProtocol": "openai"})
    store, _ = await taken(task, tmp_path / "roo")
    usage = await events(store, "1760", "usage:reported")
    assert [one.prompt for one in usage] == [10, 60, 60, 60, 60]


async def taken(
    task: ClineTask, folder: Path, *, complete: bool = True, **more: Any
) -> tuple[MemoryStore, ImportSummary]:
    """The store and the summary of a task with ``more`` files."""
    store = MemoryStore()
    path = task.write(folder / "1760", **more)
    return store, await load(store, path, format="cline", complete=complete)


@pytest.mark.parametrize("screen", [None, b"", b'[{"ts":', b'{"a": 1}', b'[1, {"say": 5}]'])
async def test_a_task_without_a_readable_screen_has_no_usage(
    screen: bytes | None, tmp_path: Path
) -> None:
    path, store = long_task().write(tmp_path / "1760"), MemoryStore()
    shown = path.with_name("ui_messages.json")
    shown.unlink()
    if screen is not None:
        shown.write_bytes(screen)
    summary = await load(store, path, complete=True)
    assert summary.messages == 10
    assert await events(store, "1760", "usage:reported") == []
    broken = screen is not None and not screen.endswith((b"}", b"]"))
    assert any("ui_messages.json" in one for one in summary.warnings) == broken


async def test_words_in_the_frames_of_a_person_begin_a_turn_and_results_do_not(
    tmp_path: Path,
) -> None:
    task = ClineTask().user(TASK).answer(text("<read_file>x</read_file>"))
    task.user(text("[read_file for 'x'] Result:\nlisting")).answer(text("what now?"))
    task.user(text("[attempt_completion] Result:"), text("<feedback>\nmore\n</feedback>"))
    store, summary = await taken(task.answer(text("so")), tmp_path)
    assert summary.turns == 2
    added = await events(store, "1760", "context:message_added")
    assert [one.observation for one in added] == [False, False, True, False, False, False]


async def test_the_range_that_requests_leave_out_is_a_compaction_before_the_first(
    tmp_path: Path,
) -> None:
    task = long_task().user(text("<feedback>more</feedback>"), leaves_out=[2, 5])
    task.answer(text("so")).user(text("<feedback>on</feedback>")).answer(text("well"))
    store, summary = await taken(task, tmp_path)
    assert summary.compactions == 1
    shown = await next_request(store, "1760")
    assert [one["content"] for one in shown[:2]] == [[TASK], [text("on it"), call("t1")]]
    # A result without its call goes, too; a call without its result gets one in the view.
    assert len(shown) == 14 - 4 - 1 + 1


async def test_texts_that_cline_shortens_are_shortened_from_the_next_request_on(
    tmp_path: Path,
) -> None:
    task = long_task()
    told = task.screen[-2]["ts"]
    task.user(text("<feedback>more</feedback>")).answer(text("so"))
    edits = [[2, [2, [[0, [[told, "text", ["[read before]"], []]]]]]]]
    store, summary = await taken(task, tmp_path, context_history=edits)
    assert summary.compactions == 1
    shown = await next_request(store, "1760")
    assert shown[2]["content"] == [{**result("t1"), "content": [text("[read before]")]}]
    assert (await messages(store, "1760"))[2]["content"] == [result("t1")]


async def test_a_truncation_of_roo_hides_rows_when_the_screen_says_so(tmp_path: Path) -> None:
    task = long_task(roo=True).truncated("x1", 1, 4)
    task.user(text("<feedback>more</feedback>")).answer(text("so"))
    store, summary = await taken(task, tmp_path)
    assert (summary.messages, summary.compactions) == (12, 1)
    shown = await next_request(store, "1760")
    assert [one["content"] for one in shown[:2]] == [[TASK], "[hidden]"]
    assert len(shown) == 12 - 4 + 1
    (done,) = await events(store, "1760", "context:post_compact")
    assert done.tokens_recorded == 800


@pytest.mark.parametrize("roo", [False, True])
async def test_a_task_that_is_rewritten_as_it_goes_adds_the_rest(roo: bool, tmp_path: Path) -> None:
    store, task = MemoryStore(), ClineTask(roo=roo)

    async def grown() -> ImportSummary:
        return await load(store, task.write(tmp_path / "1760"), format="cline")

    task.user(TASK).answer(text("on it"), call("t1"))
    await grown()
    for number in (1, 2, 3):
        task.user(result(f"t{number}"))
        await grown()
        task.answer(call(f"t{number + 1}"))
        await grown()
    if roo:
        task.truncated("x1", 1, 2).user(result("t4")).answer(text("so"))
        await grown()
        task.condensed("c1", "In short")
        await grown()
    else:
        task.user(result("t4"), leaves_out=[2, 3]).answer(text("so"))
    task.user(text("<feedback>more</feedback>")).answer(text("well"))
    await grown()
    assert (await grown()).added == 0
    other, _ = await taken(task, tmp_path, complete=False)
    assert await messages(store, "1760") == await messages(other, "1760")
    assert await next_request(store, "1760") == await next_request(other, "1760")


async def test_a_last_prompt_waits_as_a_resumed_task_writes_it_anew(tmp_path: Path) -> None:
    task = long_task().user(text("<feedback>more</feedback>"))
    store, summary = await taken(task, tmp_path, complete=False)
    assert (summary.messages, len(summary.waiting)) == (10, 1)
    task.rows[-1]["content"] = [text("[TASK RESUMPTION]"), text("<user_message>go</user_message>")]
    assert (await load(store, task.answer(text("so")).write(tmp_path / "1760"))).messages == 12


async def test_a_search_finds_a_task_once_and_reads_it_again_when_its_screen_changed(
    tmp_path: Path,
) -> None:
    about = {"id": "b", "parentTaskId": "a"}
    path = long_task(roo=True).write(tmp_path / "b", history_item=about, settings={"x": 1})
    found = search(tmp_path)
    assert sorted(Path(one).name for one in found.files) == [path.name, "settings.json"]
    read = {Path(one.path).name for one in found.files[str(path)]}
    assert read == {path.name, "ui_messages.json", "history_item.json"}
    store = MemoryStore()
    done = await import_paths(store, [tmp_path / "b" / "ui_messages.json"], complete=True)
    assert [one.session for one in done.sessions] == ["b"]
    (link,) = await events(store, "b", "session:linked")
    assert (link.session, link.relation) == ("a", "parent")


def test_a_task_is_told_by_its_marks_or_by_its_name(tmp_path: Path) -> None:
    old = [{"role": "user", "content": [TASK]}, {"role": "assistant", "content": [text("so")]}]
    for name, rows, format_ in (
        ("cline.json", long_task().rows, "cline"),
        ("roo.json", long_task(roo=True).condensed("c", "S").rows, "cline"),
        ("api_conversation_history.json", old, "cline"),
        ("old.json", old, "messages"),
    ):
        assert choose(put(tmp_path / name, json.dumps(rows).encode()), None).name == format_


# -- sessions of newer releases --------------------------------------------------------------------


def session(folder: Path, *, rows: int = 4, **compaction: Any) -> Path:
    usage = {"inputTokens": 50, "outputTokens": 7, "cacheReadTokens": 20, "cacheWriteTokens": 5}
    about = {"modelInfo": {"id": "m", "provider": "anthropic"}, "metrics": usage}
    answer = [{"query": "list", "result": "a jar", "success": True}]
    talk: list[dict[str, Any]] = [
        {"role": "user", "content": [text('<user_input mode="act">sort</user_input>')]},
        {"role": "assistant", "content": [text("on it"), call("t1")], **about},
        {"role": "user", "content": [{**result("t1"), "content": answer}]},
        {"role": "assistant", "content": [text("sorted")], **about},
        {"role": "user", "content": [{"type": "file", "path": "/j", "content": "jars"}]},
        {"role": "assistant", "content": [text("read")], **about},
    ]
    head = {"version": 1, "agent": "lead", "sessionId": "s1", "updated_at": "2026-09-01T10:00:00Z"}
    stamped = [{"id": f"m{n}", "ts": 1_760_000_000_000 + n, **talk[n]} for n in range(rows)]
    told = {"messages": {**head, "system_prompt": "Be brief.", "messages": stamped}}
    for name, value in {**told, "compaction": compaction}.items():
        put(folder / f"s1.{name}.json", json.dumps(value).encode())
    put(folder / "s1.json", json.dumps({"session_id": "s1", "cwd": "/w"}).encode())
    return folder / "s1.messages.json"


async def test_the_messages_of_the_last_compaction_stand_for_those_before_it(
    tmp_path: Path,
) -> None:
    about = {"kind": "compaction_summary", "tokensBefore": 900}
    left = [{"role": "user", "content": [text("Context summary")], "metadata": about}]
    state, store = {"version": 1, "source_message_count": 2, "messages": left}, MemoryStore()
    for rows in (2, 4, 6):
        summary = await load(store, session(tmp_path / "s1", rows=rows, **state))
        assert (summary.messages, summary.compactions) == (rows + 1, 1)
    shown = [one["content"] for one in await next_request(store, "s1")]
    assert shown[:2] == ["Be brief.", [text("Context summary")]]
    (done,) = await events(store, "s1", "context:post_compact")
    assert done.tokens_recorded == 900


async def test_the_files_of_a_session_are_one_session(tmp_path: Path) -> None:
    path = session(tmp_path / "s1", source_message_count=2, messages=[])
    assert list(search(tmp_path).files) == [str(path)]
    done = await import_paths(MemoryStore(), [tmp_path / "s1" / "s1.compaction.json"])
    assert [one.session for one in done.sessions] == ["s1"]
