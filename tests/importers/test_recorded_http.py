"""Bodies of recorded HTTP, streams of events, and YAML that is not what it seems."""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventctx.errors import MalformedTranscript, UnknownFormat
from eventctx.importers.formats.cassettes import cassette
from eventctx.importers.formats.provider_answers import joined_answer
from eventctx.importers.load import import_file
from eventctx.importers.source import http_recording
from eventctx.importers.source.http_recording import body_of, events_of, read_yaml
from eventctx.importers.source.items import CallEnded, Raw
from eventctx.stores.memory import MemoryStore
from tests.importers.given import call, put, text, thinking
from tests.importers.items import as_lines, of_type, texts
from tests.importers.recorded_http import (
    CHAT,
    RESPONSES,
    Tape,
    completion,
    message,
    request,
    response,
    said,
    stream,
    user,
)

BODY = {"messages": [user("gö")]}
PLAIN = json.dumps(BODY)


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "recorded",
    [
        {"parsed_body": BODY},
        {"body": PLAIN},
        {"body": PLAIN.encode()},
        {"body": {"string": PLAIN}},
        {"body": {"encoding": "UTF-8", "string": PLAIN}},
        {"body": {"string": gzip.compress(PLAIN.encode())}},
        {"body": {"base64_string": b64encode(PLAIN.encode()).decode()}},
        {"body": {"encoding": "base64", "string": b64encode(PLAIN.encode()).decode()}},
        {"body": {"base64_string": b64encode(gzip.compress(PLAIN.encode())).decode()}},
    ],
)
def test_a_body_is_read_in_every_form(recorded: dict[str, Any]) -> None:
    assert body_of(recorded) == BODY


def test_what_is_no_json_is_a_text_and_what_unpacks_to_too_much_stays_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert body_of({"body": "<html>"}) == "<html>"
    zeros = "0" * 9_000
    packed = gzip.compress(zeros.encode())
    assert body_of({"body": packed}) == zeros
    monkeypatch.setattr(http_recording, "MAX_BYTES", 9_000)
    kept = body_of({"body": packed})
    assert isinstance(kept, str) and kept != zeros


def test_credentials_are_left_out_of_what_is_kept() -> None:
    tape = Tape().exchange(request(user("go")), message(text("hi")))
    tape.rows[0]["request"]["headers"] |= {"Authorization": "Bearer secret", "host": "x"}
    tape.rows[0]["response"]["headers"]["Set-Cookie"] = ["secret"]
    kept = b"".join(raw.data for raw in of_type(parsed(tape.yaml()), Raw))
    assert b"secret" not in kept
    assert all(word in kept for word in (b"[left out]", b'"host":"x"'))


def parsed(data: bytes, name: str = "tape.yaml") -> list[Any]:
    return list(cassette.parse(as_lines(data), name))


def test_ruby_cassettes_are_read_too() -> None:
    sent = {"encoding": "UTF-8", "string": json.dumps(request(user("go")))}
    answered = {"encoding": "ASCII-8BIT", "string": json.dumps(message(text("hi")))}
    about = {"method": "post", "uri": "https://api.anthropic.com/v1/messages"}
    row = {
        "request": {**about, "body": sent},
        "response": {"status": {"code": 200}, "body": answered},
        "recorded_at": "Mon, 05 Jan 2026 10:00:09 GMT",
    }
    found = parsed(b"---\n" + yaml.safe_dump({"http_interactions": [row]}).encode())
    assert texts(found) == [user("go"), {"role": "assistant", "content": [text("hi")]}]
    assert of_type(found, CallEnded)[0].time == 1_767_607_209_000_000_000


# -- streams ---------------------------------------------------------------------------------------


def delta(place: int, kind: str, **fields: str) -> dict[str, Any]:
    told = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": place, "delta": told}


def anthropic_stream() -> str:
    whole = message(usage={"input_tokens": 3, "cache_read_input_tokens": 40, "output_tokens": 1})
    thought, words, use = [
        {"type": "content_block_start", "index": place, "content_block": block}
        for place, block in enumerate((thinking("", ""), text(""), call("t1")))
    ]
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    return stream(
        {"type": "message_start", "message": {**whole, "stop_reason": None}},
        *({"type": "ping"}, thought),
        delta(0, "thinking_delta", thinking="h"),
        delta(0, "thinking_delta", thinking="m"),
        *(delta(0, "signature_delta", signature="sig="), words),
        delta(1, "text_delta", text="look"),
        *(delta(1, "text_delta", text="ing"), use),
        delta(2, "input_json_delta", partial_json='{"a": '),
        delta(2, "input_json_delta", partial_json="1}"),
        {"type": "content_block_stop", "index": 2},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )


def test_a_streamed_message_is_put_together_and_a_cut_one_has_what_came() -> None:
    whole = anthropic_stream()
    found = parsed(Tape().says(request(user("go"), stream=True), whole).yaml())
    blocks = [thinking("hm", "sig="), text("looking"), call("t1", a=1)]
    assert texts(found)[1] == {"role": "assistant", "content": blocks}
    (ended,) = of_type(found, CallEnded)
    assert (ended.usage.prompt, ended.usage.output, ended.finish_reason) == (43, 9, "tool_use")
    for end in range(0, len(whole), 7):
        assert isinstance(joined_answer(events_of(whole[:end])), dict)
    (*_, last) = joined_answer(events_of(whole[: whole.index('"1}"')]))["content"]
    assert last["input"] == '{"a": '


def test_a_streamed_completion_is_put_together() -> None:
    def chunk(**told: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": told, "finish_reason": told.pop("finish", None)}
        return {"id": "c1", "model": "m-1", "created": 7, "choices": [choice], "usage": None}

    def called(place: int, **function: str) -> dict[str, Any]:
        name = {"id": f"t{place}"} if "name" in function else {}
        return {"index": place, **name, "function": function}

    usage = {"prompt_tokens": 43, "completion_tokens": 2}
    body = stream(
        chunk(role="assistant", content="", reasoning_content="h"),
        *(chunk(reasoning_content="m"), chunk(content="look"), chunk(content="ing")),
        chunk(tool_calls=[called(0, name="f", arguments="")]),
        chunk(tool_calls=[called(0, arguments='{"a"'), called(1, name="g", arguments="{}")]),
        chunk(tool_calls=[called(0, arguments=": 1}")], finish="tool_calls"),
        {"id": "c1", "choices": [], "usage": usage},
        named=False,
    )
    found = parsed(Tape(CHAT).says(request(user("go"), stream=True), body).yaml())
    answer = texts(found)[1]
    assert (answer["content"], answer["reasoning_content"]) == ("looking", "hm")
    calls = [(one["id"], one["function"]) for one in answer["tool_calls"]]
    first, second = {"name": "f", "arguments": '{"a": 1}'}, {"name": "g", "arguments": "{}"}
    assert calls == [("t0", first), ("t1", second)]
    (ended,) = of_type(found, CallEnded)
    assert (ended.usage.prompt, ended.finish_reason) == (43, "tool_calls")


@pytest.mark.parametrize("cut", [False, True])
def test_a_streamed_response_is_its_last_event_or_the_items_so_far(cut: bool) -> None:
    whole = response("r1", said("hi"))
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_text.delta", "delta": "h"},
        {"type": "response.output_item.done", "output_index": 0, "item": said("hi")},
        {"type": "response.completed", "response": whole},
    ]
    body = stream(*(events[:-1] if cut else events))
    found = parsed(Tape(RESPONSES).says({"input": "go", "stream": True}, body).yaml())
    assert texts(found) == [user("go"), said("hi")]
    (ended,) = of_type(found, CallEnded)
    assert (ended.usage is None) == cut


# -- YAML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("interactions: " + "[" * 300 + "]" * 300, "deeper"),
        ("interactions:\n" + "- " * 300 + "x", "deeper"),
        # PyYAML has a limit of its own since 6.0.4, which it may meet first, in words of its own.
        ("interactions: " + "[" * 100_000, "at most 256 levels"),
        ("interactions:\n" + "- " * 50_000, "at most 256 levels"),
        ("interactions: &a [*a]", "holds itself"),
        ("interactions: [\n", "one whole YAML document"),
        ("interactions: !!python/object/apply:os.getcwd []", "one whole YAML document"),
        ("interactions: \x00", "one whole YAML document"),
    ],
)
def test_yaml_that_cannot_be_trusted_is_refused(written: str, problem: str) -> None:
    with pytest.raises(MalformedTranscript, match=problem):
        read_yaml(written.encode(), "tape.yaml")


def test_aliases_are_written_out_unless_they_multiply() -> None:
    written = b"a: &x [1]\nb: *x\nc: 2026-01-05\nd: 2026-01-05T10:00:00Z\n1: .nan\n"
    found = {"a": [1], "b": [1], "c": "2026-01-05", "d": "2026-01-05T10:00:00Z", "1": None}
    assert read_yaml(written, "x") == found
    lines = ["a0: &a0 [" + ",".join("x" * 10) + "]"]
    lines += [f"a{n}: &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    with pytest.raises(MalformedTranscript, match="aliases"):
        read_yaml("\n".join(lines).encode(), "tape.yaml")


async def test_a_missing_pyyaml_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UnknownFormat, match=r"eventctx\[cassettes\]"):
        await import_file(MemoryStore(), put(tmp_path / "tape.yaml", b"interactions: []\n"))
    # JSON needs none.
    tape = Tape(CHAT).exchange(request(user("go")), completion("hi"))
    done = await import_file(MemoryStore(), put(tmp_path / "tape.json", tape.json()))
    assert done[0].messages == 2


async def test_other_yaml_is_of_no_known_format(tmp_path: Path) -> None:
    other = Tape("https://example.org/x").exchange(None, "hello").yaml()
    for data, problem in (
        (b"name: x\non: push\n", "found"),
        (other, "a cassette without requests"),
    ):
        with pytest.raises(UnknownFormat, match=problem):
            await import_file(MemoryStore(), put(tmp_path / "config.yaml", data))
