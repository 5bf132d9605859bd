"""SWE-agent, mini-swe-agent, lists of messages (reference/formats.md 3.4 and 4), and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import InvalidSetting, MalformedTranscript, UnknownFormat
from eventctx.importers import found
from eventctx.importers.formats import chat, trajectories
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
from tests.importers.agents import AmplifierLog, OpenHands, openhands_talk
from tests.importers.given import items_of, jsonl, load, messages, of_type, put, same, texts

TASK: list[dict[str, Any]] = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "fix it"},
]


def doc(value: Any) -> bytes:
    return json.dumps(value, indent=2).encode()


def swe(value: Any) -> list[Item]:
    return items_of(trajectories.parse_swe_agent, doc(value))


# -- SWE-agent -----------------------------------------------------------------------------------


def swe_file() -> dict[str, Any]:
    function = {"name": "bash", "arguments": "{}"}
    asked = {"tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    answer = {"role": "assistant", "content": "t", "thought": "t", "action": "ls", **asked}
    result = {"role": "tool", "content": "out", "tool_call_ids": ["c1"]}
    demo = {"role": "user", "content": "a demonstration", "is_demo": True}
    steps = [{"action": "ls", "observation": "out", "response": "t"}]
    info = {"exit_status": "exit_cost", "model_stats": {"api_calls": 1}}
    return {"trajectory": steps, "history": [TASK[0], demo, TASK[1], answer, result], "info": info}


def test_swe_agent_turns_have_the_agent_that_the_rows_name_and_not_a_demonstrations() -> None:
    value = swe_file()
    value["history"][1]["agent"] = "teacher"
    assert of_type(swe(value), Session)[0].agent is None
    _, demo, *rows = value["history"]
    value["history"] = [demo, *[{**row, "agent": "main"} for row in rows]]
    assert of_type(swe(value), Session)[0].agent == "main"


def test_runs_that_failed_end_with_their_reason() -> None:
    mini = {"messages": TASK, "info": {"exit_status": "LimitsExceeded"}}
    told = [swe(swe_file()), items_of(trajectories.parse_mini, doc(mini))]
    ends = [end for items in told for end in of_type(items, TurnEnded)]
    errors = [(end.status, end.error) for end in ends]
    assert errors == [("error", "exit_cost"), ("error", "LimitsExceeded")]


def test_swe_agent_text_runs_have_one_turn() -> None:
    rows = [*TASK, {"role": "assistant", "content": "ls"}, {"role": "user", "content": "out"}]
    found = swe({"history": rows, "trajectory": []})
    assert len(of_type(found, TurnBegan)) == len(of_type(found, ModelCall)) == 1
    assert [m.by_harness for m in of_type(found, MessageItem)] == [False, False, False, True]


# -- mini-swe-agent ------------------------------------------------------------------------------


# -- plain lists ---------------------------------------------------------------------------------

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


async def test_what_follows_a_missing_event_waits_for_it_unless_the_import_is_complete(
    tmp_path: Path,
) -> None:
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


async def test_a_folder_without_events_is_none(tmp_path: Path) -> None:
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
