"""For each rule of Gemini and of Bedrock: a request that is accepted, and one that breaks it."""

from __future__ import annotations

from typing import Any

Body = dict[str, Any]
Case = tuple[Body, Body, str]

GEMINI_3 = "gemini-3-pro"


def content(role: str, *parts: Body) -> Body:
    return {"role": role, "parts": list(parts)}


def calls(name: str = "read", one: str = "1", **fields: Any) -> Body:
    return {"functionCall": {"name": name, "id": one, "args": {}}, **fields}


def responds(name: str = "read", one: str = "1") -> Body:
    return {"functionResponse": {"name": name, "id": one, "response": {"output": "text"}}}


def gemini(*contents: Body, **fields: Any) -> Body:
    return {"contents": list(contents), **fields}


_ASKS = content("user", {"text": "Read x."})
_SAYS = content("model", {"text": "Done."})
_SIGNED = {"thoughtSignature": "skip_thought_signature_validator"}
_ROUND = (content("model", calls()), content("user", responds()))

GEMINI: dict[str, Case] = {
    "some-content": (gemini(_ASKS), gemini(), "contents is not specified"),
    "known-roles": (
        gemini(_ASKS, _SAYS, _ASKS),
        gemini(_ASKS, content("assistant", {"text": "Done."}), _ASKS),
        "Please use a valid role: user, model.",
    ),
    "first-is-user": (gemini(_ASKS, _SAYS), gemini(_SAYS, _ASKS), "begin with a user turn"),
    "content-not-empty": (
        gemini(_ASKS, _SAYS, _ASKS),
        gemini(_ASKS, content("model"), _ASKS),
        "contents[1].parts: contents.parts must not be empty.",
    ),
    "part-not-empty": (
        gemini(_ASKS, content("model", {"text": "", **_SIGNED}), _ASKS),
        gemini(_ASKS, content("model", {"text": ""}), _ASKS),
        "it has an empty text parameter",
    ),
    "calls-follow-user": (
        gemini(_ASKS, *_ROUND, *_ROUND),
        gemini(_ASKS, _SAYS, *_ROUND),
        "function call turn comes immediately after a user turn",
    ),
    "responses-follow-calls": (
        gemini(_ASKS, *_ROUND),
        gemini(_ASKS, *_ROUND, content("user", responds())),
        "function response turn comes immediately after a function call turn",
    ),
    "as-many-responses": (
        gemini(_ASKS, content("model", calls(), calls()), content("user", responds(), responds())),
        gemini(_ASKS, content("model", calls(), calls()), content("user", responds())),
        "the number of function response parts is equal to the number of function call parts",
    ),
    "same-functions": (
        gemini(_ASKS, content("model", calls("a")), content("user", responds("a"))),
        gemini(_ASKS, content("model", calls("a")), content("user", responds("b"))),
        "have the names and ids",
    ),
    "calls-signed": (
        gemini(
            *(_ASKS, *_ROUND, _SAYS, _ASKS),  # of an earlier turn
            *(content("model", calls(**_SIGNED), calls()), content("user", responds(), responds())),
            model=GEMINI_3,
        ),
        gemini(_ASKS, *_ROUND, model=GEMINI_3),
        "missing a thought_signature in functionCall parts. This is required",
    ),
}


def message(role: str, *blocks: Body) -> Body:
    return {"role": role, "content": list(blocks)}


def use(one: str = "a") -> Body:
    return {"toolUse": {"toolUseId": one, "name": "read", "input": {}}}


def result(one: str = "a", *parts: Body, **fields: Any) -> Body:
    return {"toolResult": {"toolUseId": one, "content": list(parts), **fields}}


def converse(*messages: Body, **fields: Any) -> Body:
    return {"messages": list(messages), **fields}


_PERSON = message("user", {"text": "Read x."})
_MODEL = message("assistant", {"text": "Done."})
_THINKS = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
_UNSIGNED = {"reasoningContent": {"reasoningText": {"text": "hm"}}}
_BEDROCK_ROUND = converse(_PERSON, message("assistant", use()), message("user", result()))


def _answered(*results: Body) -> Body:
    return converse(_PERSON, message("assistant", use()), message("user", *results))


BEDROCK: dict[str, Case] = {
    "first-is-user": (
        converse(_PERSON, _MODEL, _PERSON),
        converse(_MODEL, _PERSON),
        "A conversation must start with a user message.",
    ),
    "known-roles": (
        converse(_PERSON, _MODEL, _PERSON),
        converse(_PERSON, message("model", {"text": "x"}), _PERSON),
        "Value 'model' at 'messages.1.role' failed to satisfy constraint",
    ),
    "roles-alternate": (
        converse(_PERSON, _MODEL, _PERSON),
        converse(_PERSON, _PERSON),
        "A conversation must alternate between user and assistant roles.",
    ),
    "content-not-empty": (
        converse(_PERSON, _MODEL, _PERSON),
        converse(_PERSON, message("assistant"), _PERSON),
        "The content field in the Message object at messages.1 is empty.",
    ),
    "one-member-a-block": (
        converse(_PERSON),
        converse(message("user", {"text": "x", "cachePoint": {"type": "default"}})),
        "messages.0.content.0",
    ),
    "text-not-blank": (
        _answered(result("a", {"text": ""})),
        converse(_PERSON, message("assistant", {"text": " "}, use()), message("user", result())),
        "The text field in the ContentBlock object at messages.1.content.0 is blank.",
    ),
    "calls-answered": (
        converse(
            _PERSON, message("assistant", use(), use("b")), message("user", result(), result("b"))
        ),
        converse(_PERSON, message("assistant", use(), use("b")), message("user", result())),
        "Expected toolResult blocks at messages.2.content for the following Ids: b",
    ),
    "results-have-calls": (
        _BEDROCK_ROUND,
        _answered(result(), result("b")),
        "The number of toolResult blocks at messages.2.content exceeds the number of toolUse",
    ),
    "call-ids-unique": (
        _BEDROCK_ROUND,
        converse(_PERSON, message("assistant", use(), use()), message("user", result())),
        "The toolUse blocks at messages.1.content contain duplicate Ids: a",
    ),
    "one-result-a-call": (
        _BEDROCK_ROUND,
        _answered(result(), result()),
        "The toolResult blocks at messages.2.content contain duplicate Ids: a",
    ),
    "call-id-form": (
        _BEDROCK_ROUND,
        converse(_PERSON, message("assistant", use("a|b")), message("user", result("a|b"))),
        "Value 'a|b' at 'messages.1.content.0.toolUse.toolUseId' failed to satisfy constraint",
    ),
    "errors-say-something": (
        _answered(result("a", {"text": "No such file."}, status="error")),
        _answered(result("a", status="error")),
        "messages.2.content.0.toolResult cannot be empty when status value is error.",
    ),
    "json-is-object": (
        _answered(result("a", {"json": {"lines": [1]}})),
        _answered(result("a", {"json": [1]})),
        "messages.2.content.0.toolResult.content.0.json is invalid. Provide a json object",
    ),
    "block-in-its-role": (
        converse(_PERSON, message("assistant", _THINKS, {"text": "x"}), _PERSON),
        converse(message("user", _THINKS, {"text": "x"})),
        "reasoningContent blocks are not allowed in user messages",
    ),
    "last-block-not-reasoning": (
        converse(_PERSON, message("assistant", _THINKS, {"text": "x"}), _PERSON),
        converse(_PERSON, message("assistant", _THINKS), _PERSON),
        "messages.1: The final block in an assistant message cannot be `thinking`.",
    ),
    "reasoning-signed": (
        converse(_PERSON, message("assistant", _THINKS, {"text": "x"}), _PERSON),
        converse(_PERSON, message("assistant", _UNSIGNED, {"text": "x"}), _PERSON),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "no-prefill": (
        converse(_PERSON, _MODEL, modelId="us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        converse(_PERSON, _MODEL, modelId="us.anthropic.claude-opus-4-6-v1"),
        "does not support assistant message prefill",
    ),
    "prefill-without-space": (
        converse(_PERSON, message("assistant", {"text": "The "}), _PERSON),
        converse(_PERSON, message("assistant", {"text": "The "})),
        "final assistant content cannot end with trailing whitespace",
    ),
}
