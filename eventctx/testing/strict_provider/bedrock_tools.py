"""Rules of Amazon Bedrock's Converse API for calls and results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from eventctx.testing.strict_provider.bedrock import (
    BedrockBlock,
    BedrockRequest,
)
from eventctx.testing.strict_provider.rule import Found, Rule

_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


def _check_answered(request: BedrockRequest) -> Iterator[Found]:
    for message, following in request.neighbours():
        answered = following.ids("toolResult")
        missing = [one for one in message.ids("toolUse") if one not in answered]
        if missing:
            yield (
                f"{following.path}.content",
                (
                    f"Expected toolResult blocks at {following.path}.content for the following "
                    f"Ids: {', '.join(missing)}"
                ),
            )


def _check_have_calls(request: BedrockRequest) -> Iterator[Found]:
    called: set[str] = set()
    for message in request.messages:
        if not set(message.ids("toolResult")) <= called:
            yield (
                f"{message.path}.content",
                (
                    f"The number of toolResult blocks at {message.path}.content exceeds the "
                    "number of toolUse blocks of previous turn."
                ),
            )
        called = set(message.ids("toolUse"))


def _check_unique_calls(request: BedrockRequest) -> Iterator[Found]:
    yield from _duplicates(request, "toolUse")


def _check_one_result(request: BedrockRequest) -> Iterator[Found]:
    yield from _duplicates(request, "toolResult")


def _duplicates(request: BedrockRequest, name: str) -> Iterator[Found]:
    for message in request.messages:
        ids = message.ids(name)
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            path = f"{message.path}.content"
            yield path, f"The {name} blocks at {path} contain duplicate Ids: {', '.join(twice)}"


def _check_id_form(request: BedrockRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.name in ("toolUse", "toolResult") and not _ID.match(block.tool_id):
            path = f"{block.path}.{block.name}.toolUseId"
            yield (
                path,
                (
                    f"Value '{block.tool_id}' at '{path}' failed to satisfy constraint: Member "
                    "must satisfy regular expression pattern: [a-zA-Z0-9_-]+"
                ),
            )


def _check_errors(request: BedrockRequest) -> Iterator[Found]:
    for block in _results(request):
        if block.value.get("status") == "error" and not block.value.get("content"):
            path = f"{block.path}.toolResult"
            yield path, f"The content field at {path} cannot be empty when status value is error."


def _check_json(request: BedrockRequest) -> Iterator[Found]:
    for block in _results(request):
        content = block.value.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping) and "json" in part and not isinstance(part["json"], dict):
                path = f"{block.path}.toolResult.content.{place}.json"
                yield (
                    path,
                    (
                        f"The format of the value at {path} is invalid. Provide a json object for "
                        "the field and try again."
                    ),
                )


def _results(request: BedrockRequest) -> Iterator[BedrockBlock]:
    for _, block in request.blocks():
        if block.name == "toolResult" and isinstance(block.value, Mapping):
            yield block


RULES: Final = tuple(
    Rule(f"bedrock/{name}", "bedrock", says, source, check)
    for name, says, source, check in (
        (
            "calls-answered",
            "Every toolUse has its toolResult in the next message, all of them in that one.",
            "error: Expected toolResult blocks … for the following Ids",
            _check_answered,
        ),
        (
            "results-have-calls",
            "A toolResult answers a toolUse of the message before it.",
            "error: The number of toolResult blocks exceeds the number of toolUse blocks",
            _check_have_calls,
        ),
        (
            "call-ids-unique",
            "No two calls of a message have one id.",
            "error: The toolUse blocks contain duplicate Ids",
            _check_unique_calls,
        ),
        (
            "one-result-a-call",
            "A call has one result.",
            "error: The toolResult blocks contain duplicate Ids",
            _check_one_result,
        ),
        (
            "call-id-form",
            "An id of a call is 1 to 64 letters, digits, `_` and `-`.",
            "Converse: ToolUseBlock, toolUseId",
            _check_id_form,
        ),
        (
            "errors-say-something",
            "A result with the status `error` has content.",
            "error: cannot be empty when status value is error",
            _check_errors,
        ),
        (
            "json-is-object",
            "The JSON of a result is an object.",
            "error: Provide a json object for the field",
            _check_json,
        ),
    )
)
