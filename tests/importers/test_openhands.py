"""OpenHands' events, trap by trap (reference/formats.md 3.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.openhands import parse
from eventctx.importers.source.items import (
    CallEnded,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    Warned,
)
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import OpenHands, openhands_talk
from tests.importers.given import (
    always,
    events,
    items_of,
    load,
    of_type,
    raw_kinds,
    roles,
    text,
    texts,
)


def test_events_are_messages_of_openais_chat() -> None:
    function = {"name": "run", "arguments": '{"a": 1}'}
    assert texts(items_of(parse, openhands_talk().data())) == [
        {"role": "system", "content": [text("be good")]},
        {"role": "user", "content": [text("go")]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [text("listing")], "name": "run"},
        {"role": "assistant", "content": [text("done")]},
    ]


@pytest.mark.parametrize("wrapped", ["jsonl", "list", "history", "pretty"])
def test_events_read_the_same_in_every_wrapping(wrapped: str) -> None:
    rows = openhands_talk().rows
    whole = {"history": rows, "id": "run"} if wrapped == "history" else rows
    indent = 2 if wrapped == "pretty" else None
    data = (
        openhands_talk().data() if wrapped == "jsonl" else json.dumps(whole, indent=indent).encode()
    )
    found = items_of(parse, data)
    assert texts(found) == texts(items_of(parse, openhands_talk().data()))
    assert ("document" in raw_kinds(found)) == (wrapped == "history")


def test_calls_of_one_answer_are_one_message_and_one_model_call() -> None:
    log = OpenHands().user("go").action("c1", "r1", thought=[text("both")]).action("c2", "r1")
    log.event("TokenEvent").action("c3", "r1").seen("c1").seen("c2").action("c4", "r2").seen("c4")
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    first = texts(found)[1]
    assert [call["id"] for call in first["tool_calls"]] == ["c1", "c2", "c3"]
    assert first["content"] == [text("both")]
    assert [call.response_id for call in of_type(found, ModelCall)] == ["r1", "r2"]


def test_a_call_that_comes_after_the_results_makes_no_second_model_call() -> None:
    log = OpenHands().action("c1", "r1").seen("c1").action("c2", "r1").seen("c2")
    found = items_of(parse, log.data())
    assert roles(found) == ["assistant", "tool", "assistant", "tool"]
    assert len(of_type(found, ModelCall)) == 1


def test_thoughts_and_their_signatures_come_along_once() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "sig="}
    more = {"type": "thinking", "thinking": "so", "signature": "two="}
    log = OpenHands().action("c1", "r1", reasoning_content="hm", thinking_blocks=[block])
    log.action("c2", "r1", reasoning_content="hm", thinking_blocks=[block, more]).seen("c1")
    answer = texts(items_of(parse, log.data()))[0]
    assert answer["reasoning_content"] == "hm"
    assert answer["thinking_blocks"] == [block, more]


def test_the_last_answer_waits_for_more_calls_unless_the_run_is_over() -> None:
    log = OpenHands().user("go").action("c1", "r1")
    assert roles(items_of(parse, log.data())) == ["user"]
    assert len(of_type(items_of(parse, log.data()), Waiting)) == 1
    assert roles(items_of(parse, log.data(), always)) == ["user", "assistant"]


def test_the_rest_of_an_event_besides_its_message_is_kept() -> None:
    log = OpenHands().system().action("c1", "r1", action={"kind": "A"}, security_risk="LOW")
    log.seen("c1", exit_code=0)
    kept = [json.loads(raw.data) for raw in of_type(items_of(parse, log.data()), Raw)]
    assert kept[0]["tools"] == [{"kind": "T"}]
    assert (kept[1]["action"], kept[1]["security_risk"]) == ({"kind": "A"}, "LOW")
    assert kept[1]["tool_call"] == {"origin": "completion"}
    assert kept[2]["observation"] == {"kind": "O", "exit_code": 0}


def test_older_observations_have_a_text_an_error_and_a_picture() -> None:
    log = OpenHands()
    for observation in (
        {"output": "out", "error": None, "screenshot_data": None},
        {"output": "", "error": "boom"},
        {"output": "page", "screenshot_data": "aGk="},
        {"kind": "K", "value": 3},
    ):
        log.event("ObservationEvent", tool_call_id="c", observation=observation)
    contents = [message["content"] for message in texts(items_of(parse, log.data()))]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert contents == [
        [text("out")],
        [text("Error: boom")],
        [text("page"), picture],
        [text('{"value":3}')],
    ]


def test_errors_and_refusals_are_failed_results() -> None:
    log = OpenHands().action("c1", "r1").action("c2", "r1").action("c3", "r1")
    log.event("AgentErrorEvent", tool_call_id="c1", tool_name="run", error="no such tool")
    log.event("UserRejectObservation", tool_call_id="c2", rejection_reason="not that")
    results = of_type(items_of(parse, log.seen("c3", is_error=True).data()), MessageItem)[1:]
    assert [result.failed for result in results] == [True, True, True]
    contents = [result.message["content"] for result in results]
    heading = text("[An error occurred during execution.]\n")
    assert contents == ["no such tool", "Action rejected: not that", [heading, text("done")]]


async def test_failed_results_are_tool_errors_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    log = OpenHands().user("go").action("c1", "r1").action("c2", "r1").seen("c1")
    log.event("AgentErrorEvent", tool_call_id="c2", tool_name="run", error="boom").says("hm")
    path.write_bytes(log.data())
    store = MemoryStore()
    await load(store, path)
    assert [e.call_id for e in await events(store, "run", "tool:post")] == ["c1"]
    assert [e.call_id for e in await events(store, "run", "tool:error")] == ["c2"]


def test_skills_are_told_after_the_words_and_images_one_by_one() -> None:
    message = {"role": "user", "content": [{"type": "image", "image_urls": ["u1", "u2"]}]}
    fields = {"llm_message": message, "extended_content": [text("s")]}
    log = OpenHands().event("MessageEvent", "user", **fields)
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in ("u1", "u2")]
    assert texts(items_of(parse, log.data()))[0]["content"] == [*urls, text("s")]


def test_only_a_persons_messages_begin_turns() -> None:
    note = {"role": "user", "content": "a hook says"}
    log = openhands_talk().event("MessageEvent", "environment", llm_message=note).user("more")
    found = items_of(parse, log.data())
    assert [item.line for item in of_type(found, TurnBegan)] == [2, 7]
    assert [item.line for item in of_type(found, MessageItem) if item.by_harness] == [6]


def test_a_conversation_that_failed_ends_its_turn() -> None:
    log = OpenHands().user("go").event("ConversationErrorEvent", code="LLMError", detail="x")
    (end,) = of_type(items_of(parse, log.data()), TurnEnded)
    assert (end.status, end.error) == ("error", "LLMError")


def test_state_events_are_kept_and_new_kinds_are_not_understood() -> None:
    log = OpenHands().event("PauseEvent").event("ConversationStateUpdateEvent").event("DanceEvent")
    found = items_of(parse, log.data())
    assert [raw.kind for raw in of_type(found, Raw) if not raw.understood] == ["DanceEvent"]
    assert len(of_type(found, Raw)) == 3


# -- bad input -----------------------------------------------------------------------------------


def test_an_event_whose_id_is_there_already_is_kept_and_warned_about() -> None:
    log = openhands_talk()
    log.rows.append(log.rows[1])
    found = items_of(parse, log.data())
    assert roles(found) == roles(items_of(parse, openhands_talk().data()))
    assert "MessageEvent.duplicate" in raw_kinds(found)
    assert len(of_type(found, Warned)) == 1


def test_a_result_without_its_call_is_a_message_all_the_same() -> None:
    assert roles(items_of(parse, OpenHands().seen("nobody").data())) == ["tool"]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "MessageEvent"},
        {"kind": "MessageEvent", "llm_message": 3},
        {"kind": "MessageEvent", "llm_message": {"content": "x"}},
        {"kind": "ActionEvent", "tool_call": 3},
        {"kind": "ActionEvent", "tool_call_id": ["c"]},
        {"kind": "ObservationEvent", "observation": {"content": []}},
        {"kind": "AgentErrorEvent", "tool_call_id": "c"},
        {"kind": "SystemPromptEvent", "system_prompt": None},
        {"kind": "Condensation", "forgotten_event_ids": "all"},
        {"kind": ["MessageEvent"]},
        {"kind": None},
    ],
)
def test_an_event_without_what_it_needs_is_kept_and_warned_about(fields: Any) -> None:
    log = openhands_talk()
    log.rows.insert(2, {"source": "user", "timestamp": "t", **fields})
    found = items_of(parse, log.data())
    assert roles(found) == roles(items_of(parse, openhands_talk().data()))
    unknown = [json.loads(raw.data) for raw in of_type(found, Raw) if not raw.understood]
    assert unknown == [log.rows[2]]
    assert len(of_type(found, Warned)) == 1


@pytest.mark.parametrize("wrong", [None, 3, "x", [], [3], {}, True])
def test_wrong_types_in_every_other_field_do_no_harm(wrong: Any) -> None:
    log = OpenHands().system().user("go").action("c1", "r1").seen("c1")
    log.condensed("e9", summary="S", summary_offset=0)
    needed = {"kind", "source", "tool_call_id", "system_prompt", "forgotten_event_ids"}
    if isinstance(wrong, str):
        needed.add("id")
    for row in log.rows:
        row.update({key: wrong for key in row if key not in needed})
    log.rows[1].update(extended_content=wrong, llm_message={"role": "user", "content": wrong})
    log.rows[2].update(reasoning_content=wrong, thinking_blocks=wrong)
    found = items_of(parse, log.data())
    assert isinstance(found[0], Session)
    assert roles(found) == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("data", [b"3", b'{"history": 3}', b'[{"kind": "Mess', b"\n"])
def test_a_file_that_holds_no_events_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(MalformedTranscript, match="expected"):
        items_of(parse, data)


def test_answers_end_their_calls() -> None:
    assert len(of_type(items_of(parse, openhands_talk().data()), CallEnded)) == 2
