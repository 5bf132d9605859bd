"""Tasks of Cline and Roo Code, and sessions of Cline's newer releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.detect import choose
from eventctx.importers.found import search
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import ClineTask
from tests.importers.given import call, events, forked, load, messages, text

TASK = text("<task>\nsort the jars\n</task>")


def result(call_id: str, value: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(value)]}


def long_task(*, roo: bool = False) -> ClineTask:
    """Five answers: a first pair that stays, three calls, and words at the end."""
    task = ClineTask(roo=roo).user(TASK).answer(text("on it"), call("t1"))
    for number in (1, 2, 3):
        task.user(result(f"t{number}")).answer(call(f"t{number + 1}"))
    return task.user(result("t4")).answer(text("sorted"))


async def view(store: MemoryStore, session: str) -> list[Any]:
    context = await forked(Engine(store), session)
    return [message["content"] for message in await context.get_messages_for_request()]


async def taken(path: Path, **options: Any) -> tuple[MemoryStore, ImportSummary]:
    store = MemoryStore()
    return store, await load(store, path, **options)


async def test_a_task_is_its_messages_with_what_the_screen_tells_of_requests(
    tmp_path: Path,
) -> None:
    path = long_task().write(tmp_path / "tasks" / "1760")
    store, summary = await taken(path, complete=True)
    assert (summary.session, summary.format, summary.turns) == ("1760", "cline", 1)
    found = await messages(store, "1760")
    assert [set(message) for message in found] == [{"role", "content"}] * 10
    usage = await events(store, "1760", "usage:reported")
    assert [(one.prompt, one.output, one.cache_read) for one in usage] == [(60, 7, 30)] * 5
    assert {one.model for one in usage} == {"m"}


async def test_roo_counts_cached_tokens_in_the_input_where_its_protocol_says_so(
    tmp_path: Path,
) -> None:
    task = long_task(roo=True)
    shown = json.loads(task.screen[0]["text"])
    task.screen[0]["text"] = json.dumps({**shown, "apiProtocol": "openai"})
    store, _ = await taken(task.write(tmp_path / "roo"), format="cline", complete=True)
    usage = await events(store, "roo", "usage:reported")
    assert [one.prompt for one in usage] == [10, 60, 60, 60, 60]


@pytest.mark.parametrize("screen", [None, b"", b'[{"ts":', b'{"a": 1}', b'[1, {"say": 5}]'])
async def test_a_task_without_a_readable_screen_has_no_usage(
    screen: bytes | None, tmp_path: Path
) -> None:
    path = long_task().write(tmp_path / "1760")
    (tmp_path / "1760" / "ui_messages.json").unlink()
    if screen is not None:
        (tmp_path / "1760" / "ui_messages.json").write_bytes(screen)
    store, summary = await taken(path, complete=True)
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
    store, summary = await taken(task.answer(text("so")).write(tmp_path / "old"), complete=True)
    assert summary.turns == 2
    added = await events(store, "old", "context:message_added")
    assert [one.observation for one in added] == [False, False, True, False, False, False]


async def test_the_range_that_requests_leave_out_is_a_compaction_before_the_first(
    tmp_path: Path,
) -> None:
    task = long_task().user(text("<feedback>more</feedback>"), leaves_out=[2, 5])
    task.answer(text("so")).user(text("<feedback>on</feedback>")).answer(text("well"))
    store, summary = await taken(task.write(tmp_path / "1760"), complete=True)
    assert summary.compactions == 1
    shown = await view(store, "1760")
    assert shown[:3] == [[TASK], [text("on it"), call("t1")], shown[2]]
    # A result without its call goes, too; a call without its result gets one in the view.
    assert len(shown) == 14 - 4 - 1 + 1


async def test_texts_that_cline_shortens_are_shortened_from_the_next_request_on(
    tmp_path: Path,
) -> None:
    task = long_task()
    told = task.screen[-2]["ts"]
    task.user(text("<feedback>more</feedback>")).answer(text("so"))
    edits = [[2, [2, [[0, [[told, "text", ["[read before]"], []]]]]]]]
    path = task.write(tmp_path / "1760", context_history=edits)
    store, summary = await taken(path, complete=True)
    assert summary.compactions == 1
    shown = await view(store, "1760")
    assert shown[2] == [{**result("t1"), "content": [text("[read before]")]}]
    assert (await messages(store, "1760"))[2]["content"] == [result("t1")]


async def test_a_truncation_of_roo_hides_rows_when_the_screen_says_so(tmp_path: Path) -> None:
    task = long_task(roo=True).truncated("x1", 1, 4)
    task.user(text("<feedback>more</feedback>")).answer(text("so"))
    store, summary = await taken(task.write(tmp_path / "roo"), complete=True)
    assert (summary.messages, summary.compactions) == (12, 1)
    shown = await view(store, "roo")
    assert shown[:2] == [[TASK], "[hidden]"]
    assert len(shown) == 12 - 4 + 1
    (done,) = await events(store, "roo", "context:post_compact")
    assert done.tokens_recorded == 800


@pytest.mark.parametrize("roo", [False, True])
async def test_a_task_that_is_rewritten_as_it_goes_adds_the_rest(roo: bool, tmp_path: Path) -> None:
    store, folder = MemoryStore(), tmp_path / "1760"
    task = ClineTask(roo=roo).user(TASK).answer(text("on it"), call("t1"))
    await load(store, task.write(folder), format="cline")
    for number in (1, 2, 3):
        task.user(result(f"t{number}"))
        await load(store, task.write(folder), format="cline")
        task.answer(call(f"t{number + 1}"))
        await load(store, task.write(folder), format="cline")
    if roo:
        task.truncated("x1", 1, 2).user(result("t4")).answer(text("so"))
        await load(store, task.write(folder), format="cline")
        task.condensed("c1", "In short")
        await load(store, task.write(folder), format="cline")
    else:
        task.user(result("t4"), leaves_out=[2, 3]).answer(text("so"))
    task.user(text("<feedback>more</feedback>")).answer(text("well"))
    path = task.write(folder)
    await load(store, path, format="cline")
    assert (await load(store, path, format="cline")).added == 0
    other, _ = await taken(path, format="cline")
    assert await messages(store, "1760") == await messages(other, "1760")
    assert await view(store, "1760") == await view(other, "1760")


async def test_a_last_prompt_waits_as_a_resumed_task_writes_it_anew(tmp_path: Path) -> None:
    task = long_task().user(text("<feedback>more</feedback>"))
    path = task.write(tmp_path / "1760")
    store, summary = await taken(path)
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
    for name, task in (("cline", long_task()), ("roo", long_task(roo=True).condensed("c", "S"))):
        (tmp_path / f"{name}.json").write_text(json.dumps(task.rows))
        assert choose(tmp_path / f"{name}.json", None).name == "cline"
    old = [{"role": "user", "content": [TASK]}, {"role": "assistant", "content": [text("so")]}]
    for name, format_ in (("api_conversation_history.json", "cline"), ("old.json", "messages")):
        (tmp_path / name).write_text(json.dumps(old))
        assert choose(tmp_path / name, None).name == format_


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
    stamped = [
        {"id": f"m{n}", "ts": 1_760_000_000_000 + n, **row} for n, row in enumerate(talk[:rows])
    ]
    folder.mkdir(exist_ok=True)
    path = folder / "s1.messages.json"
    path.write_text(json.dumps({**head, "system_prompt": "Be brief.", "messages": stamped}))
    (folder / "s1.json").write_text(json.dumps({"session_id": "s1", "cwd": "/w"}))
    if compaction:
        (folder / "s1.compaction.json").write_text(json.dumps(compaction))
    return path


async def test_the_messages_of_the_last_compaction_stand_for_those_before_it(
    tmp_path: Path,
) -> None:
    about = {"kind": "compaction_summary", "tokensBefore": 900}
    left = [{"role": "user", "content": [text("Context summary")], "metadata": about}]
    state = {"version": 1, "source_message_count": 2, "messages": left}
    folder, store = tmp_path / "s1", MemoryStore()
    for rows in (2, 4, 6):
        summary = await load(store, session(folder, rows=rows, **state))
        assert (summary.messages, summary.compactions) == (rows + 1, 1)
    assert (await view(store, "s1"))[:2] == ["Be brief.", [text("Context summary")]]
    (done,) = await events(store, "s1", "context:post_compact")
    assert done.tokens_recorded == 900


async def test_the_files_of_a_session_are_one_session(tmp_path: Path) -> None:
    path = session(tmp_path / "s1", source_message_count=2, messages=[])
    assert list(search(tmp_path).files) == [str(path)]
    done = await import_paths(MemoryStore(), [tmp_path / "s1" / "s1.compaction.json"])
    assert [one.session for one in done.sessions] == ["s1"]
