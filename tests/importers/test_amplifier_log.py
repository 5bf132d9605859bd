"""Amplifier's event logs, trap by trap (reference/formats.md 3.3, reference/amplifier.md 2.2)."""

from __future__ import annotations

import json

import pytest

from eventctx.importers.formats import amplifier
from eventctx.importers.formats.amplifier_log import parse
from eventctx.importers.source.items import (
    CallEnded,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
)
from tests.importers.agents import AmplifierLog, amplifier_talk, passing_reminder
from tests.importers.given import (
    always,
    call,
    ended_usages,
    items_of,
    jsonl,
    of_type,
    roles,
    text,
    texts,
    thinking,
)

# -- the event log -------------------------------------------------------------------------------


def test_a_session_that_was_started_for_an_agent_has_its_name() -> None:
    named = amplifier_talk().data().replace(b"amp-1", b"0000000000000000-4f1c2d3e4a5b6c7d_explorer")
    (first,) = of_type(items_of(parse, named), Session)
    assert first.agent == "explorer"


def test_usage_in_the_other_dialect_and_in_the_providers_words() -> None:
    log = AmplifierLog().prompt("go")
    for value in "abc":
        log.request().response(text(value))
    answers = [row["data"] for row in log.rows if row["event"] == "llm:response"]
    answers[0]["usage"] = {"input": 10, "cache_write": 5, "cache_read": 4, "output": 3}
    answers[1]["usage"] = None
    answers[1]["raw"]["usage"] = {"input_tokens": 1, "cache_read_input_tokens": 20}
    answers[2]["usage"] = {"input_tokens": 0, "output_tokens": 0}
    first, second, third = ended_usages(items_of(parse, log.data()))
    assert (first.prompt, first.cache_read, first.output) == (15, 4, 3)
    assert (second.prompt, third) == (21, None)


def test_a_line_may_have_a_type_for_an_event_and_no_data_of_its_own() -> None:
    log = amplifier_talk()
    flat = [{**row, **row["data"], "type": row["event"]} for row in log.rows]
    for row in flat:
        del row["event"], row["data"]
    found = items_of(amplifier.parse, jsonl(flat))
    assert texts(found) == texts(items_of(parse, log.data()))
    assert len(of_type(found, ModelCall)) == 2


def test_of_each_request_only_what_is_new_is_kept() -> None:
    log = AmplifierLog().prompt("go " + "x" * 5_000)
    for number in range(20):
        log.request(tools=[{"name": "y" * 5_000}]).response(call(f"t{number}")).tool(f"t{number}")
    found = items_of(parse, log.data())
    requests = [raw.data for raw in of_type(found, Raw) if raw.kind == "llm:request.rest"]
    assert len(requests) == 20
    assert max(map(len, requests[1:])) < 2_000
    last = json.loads(requests[-1])["data"]["raw"]
    lines = [n for n, row in enumerate(log.rows, 1) if row["event"] == "llm:request"]
    assert last["tools"] == {"same_as_line": lines[-2]}
    assert last["messages"]["then"] == log.talk[last["messages"]["first"] : -2]


def test_a_mark_for_the_cache_that_moves_on_makes_no_new_message() -> None:
    log = AmplifierLog().prompt("go").request().response(call("t1")).tool("t1").request()
    for row in log.rows:
        if row["event"] == "llm:request":
            sent = [dict(message) for message in row["data"]["raw"]["messages"]]
            content = sent[-1]["content"]
            blocks = [text(content)] if isinstance(content, str) else content
            sent[-1]["content"] = [{**blocks[-1], "cache_control": {"type": "ephemeral"}}]
            row["data"]["raw"]["messages"] = sent
    found = items_of(parse, log.data())
    assert roles(found) == ["system", "user", "assistant", "user"]
    assert not any("cache_control" in json.dumps(message) for message in texts(found))


def test_a_reminder_in_passing_is_no_message_unless_a_later_request_still_has_it() -> None:
    log = AmplifierLog().prompt("go").request(passing_reminder()).response(call("t1")).tool("t1")
    row = log.request().rows[-1]
    sent = json.loads(json.dumps(row["data"]["raw"]["messages"]))
    sent[-1]["content"][0]["content"] += "\n\n<system-reminder>x</system-reminder>"
    row["data"]["raw"]["messages"] = sent
    found = items_of(parse, log.response(text("x")).data())
    assert texts(found)[1:] == log.talk
    rest = [raw.data for raw in of_type(found, Raw) if raw.kind == "llm:request.rest"]
    assert [b"<system-reminder>" in data for data in rest] == [True, True]
    log = AmplifierLog().prompt("go").request(passing_reminder())
    log.talk.append(passing_reminder())
    log.response(text("a")).prompt("more").request().response(text("b"))
    assert passing_reminder() in texts(items_of(parse, log.data()))


def test_the_same_words_said_twice_are_two_messages() -> None:
    log = AmplifierLog()
    for _ in range(3):
        log.prompt("continue").request().response(text("ok"))
    found = items_of(parse, log.data())
    assert roles(found) == ["system", *["user", "assistant"] * 3]
    assert len(of_type(found, TurnBegan)) == 3


def test_a_log_that_begins_in_the_middle_has_what_its_first_request_has() -> None:
    log = amplifier_talk().prompt("more").request().response(text("sure"))
    found = items_of(parse, jsonl(log.rows[-4:]))
    assert texts(found) == [{"role": "system", "content": [text("be good")]}, *log.talk]
    assert len(of_type(found, ModelCall)) == 1


def test_a_result_that_a_loop_logged_as_text_tells_its_failure() -> None:
    log = AmplifierLog().prompt("go").request().response(call("t1"), call("t2"))
    log.tool("t1").tool("t2")
    log.rows[-1]["data"]["result"] = "Error: no such file"
    found = of_type(items_of(parse, log.request().data()), MessageItem)
    assert [message.failed for message in found][-1]


def test_a_session_that_was_taken_up_again_goes_on_in_the_same_file() -> None:
    log = amplifier_talk().event("session:end").event("session:resume").prompt("more").request()
    log.rows[-4]["ts"] = "2020-01-01T00:00:00Z"
    found = items_of(parse, log.response(text("sure")).data())
    assert roles(found) == ["system", "user", "assistant", "user", "assistant", "user", "assistant"]
    assert len(of_type(found, Session)) == 1


# -- logs without the requests' messages ---------------------------------------------------------


def lean() -> AmplifierLog:
    """What is logged where the requests and answers themselves are not."""
    log = AmplifierLog().event("prompt:submit", prompt="go").event("provider:request")
    log.event("llm:request", model="m", provider="p")
    log.event("llm:response", model="m", usage={"input_tokens": 5})
    thought = {"type": "thinking", "text": "hm", "signature": "s"}
    used = {"type": "tool_call", "id": "t1", "name": "bash", "arguments": {"a": 1}}
    for block in (thought, used):
        log.event("content_block:start").event("content_block:end", block=block)
    log.event("tool:post", tool_call_id="t1", tool_name="bash", result={"output": "x"})
    log.event("provider:request").event("llm:request").event("llm:response")
    return log.event("content_block:end", block=text("done")).event("prompt:complete")


def test_the_events_themselves_tell_what_the_requests_do_not() -> None:
    found = items_of(parse, lean().data())
    first, answer, result, last = texts(found)
    called = {"type": "tool_call", "id": "t1", "name": "bash", "input": {"a": 1}}
    assert (first, last["content"]) == ({"role": "user", "content": "go"}, [text("done")])
    assert answer == {"role": "assistant", "content": [thinking("hm", "s"), called]}
    about = {"role": "tool", "tool_call_id": "t1", "name": "bash"}
    assert result == {**about, "content": '{"output": "x"}'}
    assert [usage and usage.prompt for usage in ended_usages(found)] == [5, None]
    assert len(of_type(found, TurnBegan)) == len(of_type(found, TurnEnded)) == 1


def test_a_log_without_any_model_events_still_has_its_answers() -> None:
    log = lean()
    log.rows = [row for row in log.rows if not row["event"].startswith("llm:")]
    found = items_of(parse, log.data())
    assert roles(found) == ["user", "assistant", "tool", "assistant"]
    assert len(of_type(found, ModelCall)) == 2


# -- answers without requests, and calls logged in levels -----------------------------------------


def test_answers_one_after_another_keep_their_own_blocks() -> None:
    log = AmplifierLog().prompt("go")
    for part in "abc":
        log.event("llm:response", usage={"input_tokens": 5})
        log.event("content_block:end", block=text(part))
        log.event("content_block:end", block=text("more"))
    found = items_of(parse, log.data(), always)
    told = [message["content"] for message in texts(found)[1:]]
    assert told == [[text(part), text("more")] for part in "abc"]
    assert len(of_type(found, CallEnded)) == 3


def in_levels(*, whole_first: bool = False) -> AmplifierLog:
    """Two calls as releases before 2026 log them: in short, cut, and whole."""
    log = AmplifierLog().prompt("go")
    for number in range(2):
        params = {"model": "claude", "system": "be good", "messages": list(log.talk)}
        log.event("llm:request", model="claude", provider="anthropic", message_count=1)
        log.event("llm:request:debug", request={**params, "messages": ["cut…"]})
        log.event("llm:request:raw", provider="anthropic", params=params)
        usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 2}
        body = {"role": "assistant", "content": [text(f"answer {number}")], "usage": usage}
        short = ("llm:response", {"usage": {"input": 3, "output": 2}, "model": "claude"})
        whole = ("llm:response:raw", {"response": body})
        for name, data in (whole, short) if whole_first else (short, whole):
            log.event(name, **data)
            log.event("llm:response:debug", response={"content_preview": "ans…"})
        log.talk.append({"role": "assistant", "content": body["content"]})
        log.event("content_block:end", block=body["content"][0])
        log.prompt(f"and {number}")
    return log


@pytest.mark.parametrize("whole_first", [False, True])
def test_a_call_that_is_logged_in_levels_is_one_call(whole_first: bool) -> None:
    log = in_levels(whole_first=whole_first)
    found = items_of(parse, log.data())
    assert texts(found) == [{"role": "system", "content": "be good"}, *log.talk[:-1]]
    assert len(of_type(found, ModelCall)) == 2
    usages = [usage for usage in ended_usages(found) if usage is not None]
    assert usages[0].prompt == 43  # the short level leaves the cache out
    parts = [raw.kind for raw in of_type(found, Raw)]
    assert parts.count("llm:request.rest") == parts.count("llm:request:debug") == 2
