"""What one reader of a message sees, all see; and that none of them takes long."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.cli.output.messages import shown_parts, snippet
from eventctx.log.events import MessageAdded
from eventctx.log.record import make_body
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import PartKind, read_parts, words_of
from eventctx.messages.recall_text import text_of
from eventctx.messages.shorten import Limit, shorten
from eventctx.messages.speaker import is_of_harness
from eventctx.orchestrators.providers.amplifier import converted
from eventctx.projections.trace.texts import genai_message
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.policies.given import asks, one_session
from tests.sessions import append_event, user

Message = dict[str, Any]
Marks = dict[str, PartKind]

# -- messages whose every part says who it is ----------------------------------------------------


class Writer:
    """Writes parts, each with a text of its own that is found again in what readers make of it."""

    def __init__(self) -> None:
        self.marks: Marks = {}

    def text(self, kind: PartKind) -> str:
        mark = f"mark{len(self.marks)}x"
        self.marks[mark] = kind
        return " ".join([mark] * 60)

    def block(self, kind: PartKind) -> Message:
        return {"type": "text", "text": self.text(kind)}

    def path(self) -> str:
        return json.dumps({"path": self.text("call")})

    def call_id(self) -> str:
        return f"id{len(self.marks)}"

    def result(self, form: str) -> Any:
        if form == "blocks":
            return [self.block("result"), self.block("result")]
        text = self.text("result")
        return text if form == "text" else {"error": None, "output": text, "success": True}


RESULT_FORMS = st.sampled_from(("text", "blocks", "structure"))


def anthropic_blocks(draw: st.DrawFn, writer: Writer, kind: str) -> list[Any]:
    """A part; a hosted call and its result are two."""
    if kind == "text":
        return [writer.block("text")]
    if kind == "bare":
        return [writer.text("text")]
    if kind == "other":
        return [{"type": "container_upload", "note": writer.text("other")}]
    if kind == "compaction":
        return [{"type": "compaction", "content": writer.text("other")}]
    if kind == "thinking":
        return [{"type": kind, "thinking": writer.text("thinking"), "signature": "c2ln"}]
    if kind == "tool_use":
        asked = {"path": writer.text("call")}
        return [{"type": kind, "id": writer.call_id(), "name": "read", "input": asked}]
    if kind == "hosted":
        asked = {"query": writer.text("hosted")}
        call = {"id": writer.call_id(), "name": "web_search", "input": asked}
        found = [{"type": "web_search_result", "title": writer.text("hosted")}]
        result = {"tool_use_id": call["id"], "content": found}
        return [{"type": "server_tool_use", **call}, {"type": "web_search_tool_result", **result}]
    if kind == "result":
        answer = {"tool_use_id": writer.call_id(), "content": writer.result(draw(RESULT_FORMS))}
        return [{"type": "tool_result", **answer}]
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    return [{"type": "document", "title": writer.text("document"), "source": source}]


def anthropic(draw: st.DrawFn, writer: Writer) -> Message:
    role = draw(st.sampled_from(("user", "assistant")))
    kinds = ["text", "bare", "other", "compaction"]
    kinds += ["thinking", "tool_use", "hosted"] if role == "assistant" else ["result", "document"]
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    blocks = [block for kind in chosen for block in anthropic_blocks(draw, writer, kind)]
    return {"role": role, "content": blocks}


def chat(draw: st.DrawFn, writer: Writer) -> Message:
    role = draw(st.sampled_from(("user", "assistant", "tool", "function")))
    if role == "function":
        return {"role": role, "name": "read", "content": writer.result("text")}
    if role == "tool":
        ids: Message = draw(st.sampled_from(({"tool_call_id": "a"}, {"tool_call_ids": ["a", "b"]})))
        return {"role": role, **ids, "content": writer.result(draw(RESULT_FORMS))}
    message: Message = {"role": role, "content": None}
    form = draw(st.sampled_from(("text", "blocks", "refusal block", "none")))
    if form == "text":
        message["content"] = writer.text("text")
    elif form == "blocks":
        message["content"] = [writer.block("text")]
    elif form == "refusal block" and role == "assistant":
        message["content"] = [{"type": "refusal", "refusal": writer.text("refusal")}]
    if role == "user":
        return message
    for key, kind in (("refusal", "refusal"), ("reasoning_content", "thinking")):
        if draw(st.booleans()):
            message[key] = writer.text(kind)
    called = draw(st.sampled_from(("tool_calls", "function_call", None)))
    if called == "tool_calls":
        function = {"name": "read", "arguments": writer.path()}
        custom = {"name": "patch", "input": writer.text("call")}
        calls = {"function": function, "custom": custom}
        message[called] = [{"id": kind, "type": kind, kind: one} for kind, one in calls.items()]
    elif called == "function_call":
        message[called] = {"name": "read", "arguments": writer.path()}
    return message


ANSWERED = ("message", "output", "reasoning", "web_search_call", "mcp_call")
ITEMS = st.sampled_from((*ANSWERED, "function_call", "custom_tool_call", "local_shell_call"))


def responses(draw: st.DrawFn, writer: Writer) -> Message:
    item = draw(ITEMS)
    if item == "message":
        role = draw(st.sampled_from(("user", "assistant")))
        kind = "input_text" if role == "user" else "output_text"
        content: list[Message] = [{"type": kind, "text": writer.text("text")}]
        if role == "assistant":
            content.append({"type": "refusal", "refusal": writer.text("refusal")})
        return {"type": item, "role": role, "content": content}
    if item == "output":
        form = draw(st.sampled_from(("text", "blocks")))
        kind = draw(st.sampled_from(("function_call_output", "custom_tool_call_output")))
        return {"type": kind, "call_id": "a", "output": writer.result(form)}
    if item == "reasoning":
        summary = [{"type": "summary_text", "text": writer.text("thinking")}]
        texts = [{"type": "reasoning_text", "text": writer.text("thinking")}]
        return {"type": item, "summary": summary, "content": texts, "encrypted_content": "gAAA"}
    if item == "function_call":
        return {"type": item, "call_id": "a", "name": "read", "arguments": writer.path()}
    if item == "custom_tool_call":
        return {"type": item, "call_id": "a", "name": "patch", "input": writer.text("call")}
    if item == "local_shell_call":
        action = {"type": "exec", "command": ["echo", writer.text("call")]}
        return {"type": item, "call_id": "a", "action": action}
    if item == "web_search_call":
        return {"type": item, "id": "w", "action": {"query": writer.text("hosted")}}
    asked, given_ = writer.text("hosted"), writer.text("hosted")
    return {"type": item, "id": "m", "name": "ask", "arguments": asked, "output": given_}


def amplifier(draw: st.DrawFn, writer: Writer) -> Message:
    if draw(st.booleans()):
        form = draw(RESULT_FORMS)
        return {"role": "tool", "tool_call_id": "a", "name": "r", "content": writer.result(form)}
    thought = {"type": "thinking", "thinking": writer.text("thinking"), "signature": "c2ln"}
    if draw(st.booleans()):
        return {"role": "assistant", "content": writer.text("text"), "thinking_block": thought}
    arguments = {"path": writer.text("call")}
    called = {"type": "tool_call", "id": "a", "name": "read", "input": arguments}
    said = {"type": "text", "text": writer.text("text")}
    return {
        "role": "assistant",
        "content": [{**block, "visibility": None} for block in (thought, said, called)],
        "tool_calls": [{"id": "a", "tool": "read", "arguments": copy.deepcopy(arguments)}],
        "thinking_block": dict(thought),
    }


@st.composite
def marked_messages(draw: st.DrawFn) -> tuple[Message, Marks]:
    writer = Writer()
    dialect = draw(st.sampled_from((anthropic, chat, responses, amplifier)))
    return dialect(draw, writer), writer.marks


thorough = settings(max_examples=some(60, 300), deadline=None)


def found_by(marks: Marks, text: str) -> Marks:
    return {mark: kind for mark, kind in marks.items() if mark in text}


def without(marks: Marks, *kinds: PartKind) -> Marks:
    return {mark: kind for mark, kind in marks.items() if kind not in kinds}


@thorough
@given(marked_messages())
def test_every_text_is_counted_and_in_one_part_of_its_kind_to_which_its_place_leads(
    given_: tuple[Message, Marks],
) -> None:
    message, marks = given_
    seen: dict[str, list[str]] = {mark: [] for mark in marks}
    for part in read_parts(message):
        at: Any = message
        for step in part.place:
            at = at[step]
        assert at == part.value
        for mark in found_by(marks, repr(part.value)):
            seen[mark].append(part.kind)
    assert seen == {mark: [kind] for mark, kind in marks.items()}
    facts, least = read_facts(message), Counter[str]()
    for mark, kind in marks.items():
        least[kind] += 61 * len(mark) - 1
    words = least["text"] + least["refusal"] + least["document"] + least["other"]
    assert facts.prose + facts.arguments >= words + least["call"] + least["hosted"]
    assert facts.prose >= words
    assert facts.arguments >= least["call"]
    assert facts.outcome >= least["result"]
    assert facts.thinking >= least["thinking"]


@thorough
@given(marked_messages())
def test_screens_traces_search_and_summarizers_see_all_parts_and_a_user_words_and_documents_alone(
    given_: tuple[Message, Marks],
) -> None:
    message, marks = given_
    screen = "\n".join(part.text for part in shown_parts(message))
    assert found_by(marks, screen) == marks
    trace = json.dumps(genai_message(message, str))
    assert found_by(marks, trace) == without(marks, "document")
    assert found_by(marks, text_of(message)) == without(marks, "thinking")
    # What a summarizer is told after Amplifier's providers, whose rows have words of their own.
    told = json.dumps(converted(message))
    assert without(found_by(marks, told), "thinking") == without(marks, "thinking")
    spoken = {mark for mark, kind in marks.items() if kind in ("text", "refusal")}
    assert set(found_by(marks, words_of(message))) == spoken
    shown = found_by(marks, json.dumps(eventctx.for_audience([message], "user")))
    assert set(shown.values()) <= {"text", "refusal", "document"}
    assert spoken <= set(shown)


@thorough
@given(marked_messages())
def test_shortening_finds_all_but_thinking_and_documents(given_: tuple[Message, Marks]) -> None:
    message, marks = given_
    short = json.dumps(shorten(copy.deepcopy(message), 1, Limit(0, 0, 0)))
    for mark, kind in marks.items():
        whole = " ".join([mark] * 60) in short
        asked = kind == "hosted" and mark in str(message.get("arguments"))
        assert whole != (asked or kind in ("text", "refusal", "call", "result")), (mark, kind)


# -- refusals ------------------------------------------------------------------------------------


def test_thinking_that_the_provider_keeps_is_shown_as_thinking() -> None:
    kept = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert snippet(kept, 40) == "(thinking)"
    assert [part.kind for part in shown_parts(kept)] == ["thinking"]


async def test_facts_that_an_older_reader_stored_are_not_taken_for_damage() -> None:
    message = {"role": "assistant", "content": None, "refusal": "I will not."}
    old = msgspec.structs.replace(read_facts(message), reader=2, prose=0)
    store = MemoryStore()
    body = make_body(encode_message(message), encode_facts(old), os.urandom)
    await append_event(store, MessageAdded(), body)
    async with eventctx.Engine(store) as engine:
        assert (await engine.verify("s")).ok


# -- views ---------------------------------------------------------------------------------------


async def test_a_row_of_several_results_keeps_only_the_ids_whose_calls_are_in_the_view() -> None:
    answers = {"role": "tool", "tool_call_ids": ["gone", "a"], "content": "out"}
    async with one_session() as (_, ctx):
        await ctx.add_messages([user("go"), asks("a"), answers])
        request = await ctx.get_messages_for_request()
        assert request[2] == {**answers, "tool_call_ids": ["a"]}
        assert await ctx.get_messages() == [*request[:2], answers]


# -- time ----------------------------------------------------------------------------------------


def test_an_element_with_an_endless_name_is_read_once() -> None:
    # Tried with every shorter name again, this takes minutes.
    assert is_of_harness("<local-command-" + "a" * 600_000)
    assert not is_of_harness("<skill></skill>" * 40_000 + "And now?")
