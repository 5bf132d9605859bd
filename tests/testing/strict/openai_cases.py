"""For each rule of OpenAI's APIs: a request that is accepted, and one that breaks the rule."""

from __future__ import annotations

from typing import Any

from eventctx.testing.strict_provider.response_items import issued_id

Body = dict[str, Any]
Case = tuple[Body, Body, str]

ASKED: Body = {"role": "user", "content": "Read x."}
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_LONG = "c" * 41


def call(one: str = "call_1", **function: Any) -> Body:
    called = {"name": "read", "arguments": "{}", **function}
    return {"id": one, "type": "function", "function": called}


def answer(*calls: Body, **fields: Any) -> Body:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(one: str = "call_1", content: Any = "text") -> Body:
    return {"role": "tool", "tool_call_id": one, "content": content}


def chat(*messages: Body, **fields: Any) -> Body:
    return {"messages": list(messages), **fields}


_ROUND = chat(ASKED, answer(call()), result())

CHAT: dict[str, Case] = {
    "some-message": (chat(ASKED), chat(), "Invalid 'messages': empty array."),
    "known-roles": (
        chat({**ASKED, "role": "developer"}),
        chat({**ASKED, "role": "human"}),
        "Invalid value: 'human'.",
    ),
    "no-extra-fields": (
        chat({**ASKED, "name": "Ada"}),
        chat({**ASKED, "metadata": {}}),
        "Unknown parameter: 'messages[0].metadata'.",
    ),
    "required-fields": (
        _ROUND,
        chat(ASKED, answer(call("None")), {"role": "tool", "content": "text"}),
        "Missing required parameter: 'messages[2].tool_call_id'.",
    ),
    "content-not-null": (
        chat(ASKED, {"role": "assistant", "content": None, "refusal": "No."}, ASKED),
        chat(ASKED, {"role": "assistant", "content": None}, ASKED),
        "Invalid value for 'content': expected a string, got null.",
    ),
    "content-not-empty": (
        chat({"role": "user", "content": [{"type": "text", "text": "x"}]}),
        chat({"role": "user", "content": []}),
        "Invalid 'messages[0].content': empty array.",
    ),
    "known-parts": (
        chat({"role": "user", "content": [_IMAGE]}),
        chat({"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
        "Invalid value: 'input_text'.",
    ),
    "images-from-user": (
        chat(ASKED, answer(call()), result(content=[{"type": "text", "text": "x"}])),
        chat(ASKED, answer(call()), result(content=[_IMAGE])),
        "this message with role 'tool' contains an image URL.",
    ),
    "calls-listed": (
        chat(ASKED, {"role": "assistant", "content": "x"}, ASKED),
        chat(ASKED, {"role": "assistant", "content": "x", "tool_calls": []}, ASKED),
        "Invalid 'messages[1].tool_calls': empty array.",
    ),
    "arguments-are-text": (
        _ROUND,
        chat(ASKED, answer(call(arguments={})), result()),
        "'messages[1].tool_calls[0].function.arguments': expected a string, but got object",
    ),
    "calls-answered": (
        chat(ASKED, answer(call("a"), call("b")), result("b"), result("a")),
        chat(ASKED, answer(call("a"), call("b")), result("a"), ASKED),
        "The following tool_call_ids did not have response messages: b",
    ),
    "results-have-calls": (
        _ROUND,
        chat(ASKED, answer(call()), result(), ASKED, result()),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    "one-result-a-call": (
        _ROUND,
        chat(ASKED, answer(call()), result(), result()),
        "Duplicate value for 'tool_call_id' of 'call_1' in message[3]",
    ),
    "call-ids-unique": (
        chat(ASKED, answer(call()), result(), answer(call()), result()),
        chat(ASKED, answer(call(), call()), result()),
        "Duplicate value for 'messages[1].tool_calls[1].id': 'call_1'",
    ),
    "call-id-length": (
        chat(ASKED, answer(call(_LONG[1:])), result(_LONG[1:])),
        chat(ASKED, answer(call(_LONG)), result(_LONG)),
        "maximum length 40, but got a string with length 41 instead.",
    ),
    "name-form": (
        chat(ASKED, answer(call(name="read_file-2")), result()),
        chat(ASKED, answer(call(name="read file")), result()),
        "Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern.",
    ),
}


def made(kind: str, **fields: Any) -> Body:
    return {"type": kind, **fields}


def function_call(one: str = "call_1", **fields: Any) -> Body:
    return made("function_call", call_id=one, name="read", arguments="{}", **fields)


def output(one: str = "call_1", **fields: Any) -> Body:
    return made("function_call_output", call_id=one, output="text", **fields)


def reasoning(one: str = "rs_1", **fields: Any) -> Body:
    return made("reasoning", id=one, summary=[], encrypted_content="gAAA", **fields)


def said(words: str = "Done.", **fields: Any) -> Body:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    return made("message", role="assistant", content=content, **fields)


def responses(*items: Body, **fields: Any) -> Body:
    return {"input": [ASKED, *items], **fields}


_THOUGHT = issued_id("rs", 1)
_FOR_IT = issued_id("fc", 2, _THOUGHT)
_ASKS = made("mcp_approval_request", id="mcpr_1", name="read", arguments="{}", server_label="files")
_ALLOWS = made("mcp_approval_response", approval_request_id="mcpr_1", approve=True)

RESPONSES: dict[str, Case] = {
    "some-item": ({"input": "Read x."}, {"input": []}, "Missing required parameter: 'input'."),
    "known-items": (
        responses(said()),
        responses(made("tool_use", id="x")),
        "Invalid value: 'tool_use'.",
    ),
    "known-roles": (
        {"input": [{"role": "developer", "content": "x"}]},
        {"input": [{"role": "tool", "content": "x"}]},
        "Invalid value: 'tool'.",
    ),
    "no-extra-fields": (
        responses(function_call(status="completed"), output()),
        responses(function_call(parsed_arguments=None), output()),
        "Unknown parameter: 'input[1].parsed_arguments'.",
    ),
    "required-fields": (
        responses(function_call(), output()),
        responses(function_call(), {key: output()[key] for key in ("type", "call_id")}),
        "Missing required parameter: 'input[2].output'.",
    ),
    "fields-are-text": (
        responses(function_call(), output()),
        responses({**function_call(), "arguments": {}}, output()),
        "Invalid type for 'input[1].arguments': expected a string, but got object instead.",
    ),
    "known-parts": (
        responses(said()),
        responses({**said(), "content": [{"type": "input_text", "text": "x"}]}),
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
    ),
    "item-ids-unique": (
        responses(said(id="msg_1"), said(id="msg_2")),
        responses(said(id="msg_1"), said(id="msg_1")),
        "Duplicate item found with id msg_1.",
    ),
    "item-id-form": (
        responses(function_call(id="fc_1"), output()),
        responses(function_call(id="call_1"), output()),
        "Invalid 'input[1].id': 'call_1'. Expected an ID that begins with 'fc'.",
    ),
    "id-length": (
        responses(function_call("c" * 64), output("c" * 64)),
        responses(function_call("c" * 65), output("c" * 65)),
        "maximum length 64, but got a string with length 65 instead.",
    ),
    "calls-answered": (
        responses(function_call("a"), function_call("b"), output("b"), output("a")),
        responses(function_call("a"), function_call("b"), output("a")),
        "No tool output found for function call b.",
    ),
    "outputs-have-calls": (
        responses(output(), previous_response_id="resp_1"),
        responses(output()),
        "No tool call found for function call output with call_id call_1.",
    ),
    "one-output-a-call": (
        responses(function_call(), output(), function_call(), output()),
        responses(function_call(), output(), output()),
        "call_1",
    ),
    "reasoning-followed": (
        responses(reasoning(), reasoning("rs_2"), said()),
        responses(said(), reasoning()),
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning-precedes": (
        responses(reasoning(_THOUGHT), function_call(id=_FOR_IT), output()),
        responses(function_call(id=_FOR_IT), output()),
        f"of type 'function_call' was provided without its required 'reasoning' item: '{_THOUGHT}'",
    ),
    "items-persisted": (
        responses(reasoning(), said(), store=False),
        responses({**reasoning(), "encrypted_content": None}, said(), store=False),
        "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
    ),
    "approvals-have-requests": (
        responses(_ASKS, _ALLOWS),
        responses(_ALLOWS),
        "No approval request found with id 'mcpr_1'.",
    ),
}
