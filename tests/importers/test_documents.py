"""Documents and folders: SWE-agent, mini-swe-agent, lists of messages, Cline and Roo Code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import InvalidSetting, MalformedTranscript, UnknownFormat
from eventctx.importers import found
from eventctx.importers.detect import choose
from eventctx.importers.formats import chat, trajectories
from eventctx.importers.found import search
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import import_paths
from eventctx.importers.source.items import (
    CallEnded,
    Item,
    MessageItem,
    ModelCall,
    Session,
    TurnBegan,
    TurnEnded,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, ClineTask, OpenHands, openhands_talk
from tests.importers.given import call, jsonl, put, text
from tests.importers.items import items_of, of_type, texts
from tests.importers.taken import events, load, messages, next_request, same

TASK: list[dict[str, Any]] = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "fix it"},
]


def doc(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def swe(value: Any) -> list[Item]:
    return items_of(trajectories.parse_swe_agent, doc(value))


def swe_file() -> dict[str, Any]:
    function = {"name": "bash", "arguments": "{}"}
    asked = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    answer = {"role": "assistant", "content": "t", "thought": "t", "action": "ls", **asked}
    result = {"role": "tool", "content": "out", "tool_call_ids": ["c1"]}
    demo = {"role": "user", "content": "a demonstration", "is_demo": True}
    steps = [{"action": "ls", "observation": "out", "response": "t"}]
    info = {"exit_status": "exit_cost", "model_stats": {"api_calls": 1}}
    return {"trajectory": steps, "history": [TASK[0], demo, TASK[1], answer, result], "info": info}


def test_runs_of_swe_agent_are_a_turn_of_their_agent_and_end_with_their_reason() -> None:
    value = swe_file()
    value["history"][1]["agent"] = "teacher"
    assert of_type(swe(value), Session)[0].agent is None
    _, demo, *rows = value["history"]
    value["history"] = [demo, *[{**row, "agent": "main"} for row in rows]]
    assert of_type(swe(value), Session)[0].agent == "main"
    rows = [*TASK, {"role": "assistant", "content": "ls"}, {"role": "user", "content": "out"}]
    found = swe({"history": rows, "trajectory": []})
    assert len(of_type(found, TurnBegan)) == len(of_type(found, ModelCall)) == 1
    assert [m.by_harness for m in of_type(found, MessageItem)] == [False, False, False, True]
    mini = {"messages": TASK, "info": {"exit_status": "LimitsExceeded"}}
    told = [swe(swe_file()), items_of(trajectories.parse_mini, doc(mini))]
    ends = [end for items in told for end in of_type(items, TurnEnded)]
    errors = [(end.status, end.error) for end in ends]
    assert errors == [("error", "exit_cost"), ("error", "LimitsExceeded")]


CALLS = [
    {"id": own, "type": "function", "function": {"name": own, "arguments": "{}"}} for own in "ab"
]
CHAT: list[dict[str, Any]] = [
    *TASK,
    {"role": "assistant", "content": None, "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": "a", "content": '{"output":"{\\"x\\":1}"}'},
    {"role": "tool", "tool_call_id": "b", "content": ""},
    {"role": "assistant", "content": "   "},
    {"role": "user", "content": [{"type": "text", "text": "more"}]},
]


def test_a_list_reads_the_same_in_every_wrapping() -> None:
    for data in (doc(CHAT), json.dumps(CHAT).encode(), jsonl(CHAT), doc({"messages": CHAT})):
        found = items_of(chat.parse, data)
        assert texts(found) == CHAT
        assert len(of_type(found, TurnBegan)) == len(of_type(found, ModelCall)) == 2


@pytest.mark.parametrize("data", [b'{"messages": [', b'{"messages": 3}', b"3", b"\n\n"])
def test_a_document_that_is_none_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(MalformedTranscript, match="expected"):
        items_of(chat.parse, data)


def test_the_answer_of_a_logged_request_may_be_a_message_or_a_list_of_items() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    usage = {"input_tokens": 5, "cache_read_input_tokens": 45, "output_tokens": 3}
    body = {"id": "m1", "type": "message", "model": "m", "stop_reason": "end_turn", **said}
    log = {"system": "be good", "messages": TASK[1:], "response": {**body, "usage": usage}}
    found = items_of(chat.parse, doc(log))
    assert texts(found) == [*TASK, said]
    (request,) = of_type(found, ModelCall)
    assert (request.usage.prompt, request.finish_reason) == (50, "end_turn")
    called = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    items = [{"type": "reasoning", "summary": []}, called]
    answer = {"id": "r1", "status": "completed", "output": items, "created_at": 5}
    found = items_of(chat.parse, doc({"input": TASK, "response": answer}))
    assert texts(found) == [*TASK, *items]
    assert (len(of_type(found, ModelCall)), of_type(found, CallEnded)[0].time) == (1, 5 * 10**9)


# -- folders ---------------------------------------------------------------------------------------


async def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    log = OpenHands()
    for number in range(12):
        log.user(f"message {number}")
    folder, store = log.folder(tmp_path / "conversation-7" / "events"), MemoryStore()
    put(folder.parent / "base_state.json", b"{}")
    put(folder / "notes.txt", b"no event")
    summary = await load(store, folder)
    assert (summary.format, summary.session) == ("openhands", "conversation-7")
    told = [message["content"][0]["text"] for message in await messages(store, "conversation-7")]
    assert told == [f"message {number}" for number in range(12)]


async def test_events_that_appear_later_are_added(tmp_path: Path) -> None:
    store, other, part = MemoryStore(), MemoryStore(), OpenHands()
    log = openhands_talk().user("more").action("c2", "r2").action("c3", "r2").seen("c2").seen("c3")
    log.condensed("e2", "e3", summary="S", summary_offset=2).says("bye")
    for row in log.rows:
        part.rows.append(row)
        await load(store, part.folder(tmp_path / "run"))
    await load(other, tmp_path / "run")
    assert (await load(store, tmp_path / "run")).added == 0
    assert await same(store, other, "run")


async def test_what_follows_a_missing_event_waits_unless_all_is_complete(tmp_path: Path) -> None:
    folder = openhands_talk().user("more").folder(tmp_path / "run")
    missing = [folder / f"event-0000{number}-e{number}.json" for number in (2, 3)]
    kept = [path.read_bytes() for path in missing]
    for path in missing:
        path.unlink()
    store, other = MemoryStore(), MemoryStore()
    summary = await load(store, folder)
    assert summary.messages == 2
    assert "event 2 is missing" in summary.waiting[0]
    whole = await load(other, folder, complete=True)
    assert whole.messages == 4
    assert whole.warnings == ("line 5: missing before it: event 2 to 3",)
    # What was taken as complete stays so.
    assert (await load(other, folder)).added == 0
    for path, data in zip(missing, kept, strict=True):
        path.write_bytes(data)
    summary = await load(store, folder)
    assert (summary.messages, summary.waiting) == (6, ())


async def test_a_document_or_a_folder_of_none_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "event-x.json", b"{}")
    with pytest.raises(UnknownFormat, match="folder of OpenHands events"):
        await load(MemoryStore(), tmp_path)
    with pytest.raises(UnknownFormat, match="folder"):
        await load(MemoryStore(), openhands_talk().folder(tmp_path), format="pi")


async def test_a_search_takes_folders_of_events_as_wholes_with_files(tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    for name in ("run-7", "run-8"):
        openhands_talk().folder(agents / name / "events")
    put(agents / "run-7" / "base_state.json", b"{}")
    put(agents / "events.jsonl", AmplifierLog().prompt("x").data())
    done = await import_paths(MemoryStore(), [agents], complete=True)
    assert sorted(str(one.session) for one in done.sessions) == ["amp-1", "run-7", "run-8"]
    (other,) = done.passed_over
    assert (other.reason, other.error) == ("no transcript: an object with the keys none", None)


@pytest.mark.parametrize("folder", ["/", "many"])
async def test_a_folder_that_nobody_means_all_of_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "MOST_ENTRIES", 20)
    for number in range(21):
        put(tmp_path / "many" / str(number % 4) / f"{number}.txt", b"")
    with pytest.raises(InvalidSetting, match="name a folder in it"):
        await import_paths(MemoryStore(), [tmp_path / folder])
    assert (await import_paths(MemoryStore(), [tmp_path / "many" / "0"])).sessions == ()


# -- tasks of Cline and Roo Code, and sessions of Cline's newer releases ---------------------------

JARS = text("<task>\nsort the jars\n</task>")


def result(call_id: str, value: str = "done") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(value)]}


def long_task(*, roo: bool = False) -> ClineTask:
    """Five answers: a first pair that stays, three calls, and words at the end."""
    task = ClineTask(roo=roo).user(JARS).answer(text("on it"), call("t1"))
    for number in (1, 2, 3):
        task.user(result(f"t{number}")).answer(call(f"t{number + 1}"))
    return task.user(result("t4")).answer(text("sorted"))


async def test_a_task_is_its_messages_with_what_its_screen_tells(tmp_path: Path) -> None:
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


async def test_words_in_a_persons_frames_begin_a_turn_and_results_do_not(tmp_path: Path) -> None:
    task = ClineTask().user(JARS).answer(text("<read_file>x</read_file>"))
    task.user(text("[read_file for 'x'] Result:\nlisting")).answer(text("what now?"))
    task.user(text("[attempt_completion] Result:"), text("<feedback>\nmore\n</feedback>"))
    store, summary = await taken(task.answer(text("so")), tmp_path)
    assert summary.turns == 2
    added = await events(store, "1760", "context:message_added")
    assert [one.observation for one in added] == [False, False, True, False, False, False]


async def test_what_a_task_leaves_out_or_shortens_is_so_from_the_next_request_on(
    tmp_path: Path,
) -> None:
    task = long_task().user(text("<feedback>more</feedback>"), leaves_out=[2, 5])
    task.answer(text("so")).user(text("<feedback>on</feedback>")).answer(text("well"))
    store, summary = await taken(task, tmp_path)
    assert summary.compactions == 1
    shown = await next_request(store, "1760")
    assert [one["content"] for one in shown[:2]] == [[JARS], [text("on it"), call("t1")]]
    # A result without its call goes, too; a call without its result gets one in the view.
    assert len(shown) == 14 - 4 - 1 + 1
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
    assert [one["content"] for one in shown[:2]] == [[JARS], "[hidden]"]
    assert len(shown) == 12 - 4 + 1
    (done,) = await events(store, "1760", "context:post_compact")
    assert done.tokens_recorded == 800


@pytest.mark.parametrize("roo", [False, True])
async def test_a_task_that_is_rewritten_as_it_goes_adds_the_rest(roo: bool, tmp_path: Path) -> None:
    store, task = MemoryStore(), ClineTask(roo=roo)

    async def grown() -> ImportSummary:
        return await load(store, task.write(tmp_path / "1760"), format="cline")

    task.user(JARS).answer(text("on it"), call("t1"))
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
    task.rows[-1]["content"] = [text("[JARS RESUMPTION]"), text("<user_message>go</user_message>")]
    assert (await load(store, task.answer(text("so")).write(tmp_path / "1760"))).messages == 12


async def test_a_search_finds_a_task_once_and_looks_at_its_screen(tmp_path: Path) -> None:
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
    old = [{"role": "user", "content": [JARS]}, {"role": "assistant", "content": [text("so")]}]
    for name, rows, format_ in (
        ("cline.json", long_task().rows, "cline"),
        ("roo.json", long_task(roo=True).condensed("c", "S").rows, "cline"),
        ("api_conversation_history.json", old, "cline"),
        ("old.json", old, "messages"),
    ):
        assert choose(put(tmp_path / name, json.dumps(rows).encode()), None).name == format_


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


async def test_what_the_last_compaction_left_stands_for_what_was_before(tmp_path: Path) -> None:
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
