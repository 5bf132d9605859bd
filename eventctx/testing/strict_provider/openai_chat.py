"""OpenAI's Chat Completions API: a request, and the rules for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.rule import (
    Found,
    Rule,
    invalid_value,
    missing_parameter,
    too_long,
    unknown_parameter,
)

_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
_PARTS: Final = ("text", "image_url", "input_audio", "refusal", "audio", "file")
FIELDS: Final = frozenset(
    (
        *("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio"),
        *("function_call", "annotations"),
        # Of APIs that speak this dialect: their reasoning is sent back.
        *("reasoning_content", "reasoning", "reasoning_details"),
    )
)
_NAME: Final = re.compile(r"[^\s<|\\/>]+\Z")
_FUNCTION: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_LONGEST_ID: Final = 40


def _check_some(request: ChatRequest) -> Iterator[Found]:
    if not request.messages:
        yield "messages", f"Invalid 'messages': {_EMPTY}"


_EMPTY: Final = (
    "empty array. Expected an array with minimum length 1, but got an empty array instead."
)


def _check_roles(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.role not in _ROLES:
            yield invalid_value(f"{message.path}.role", message.role, _ROLES)


def _check_fields(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        for name in sorted(message.fields.keys() - FIELDS):
            yield unknown_parameter(f"{message.path}.{name}")


def _check_required(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.role == "tool" and not isinstance(message.fields.get("tool_call_id"), str):
            yield missing_parameter(f"{message.path}.tool_call_id")
        for place, call in enumerate(message.calls):
            path = f"{message.path}.tool_calls[{place}]"
            if "id" not in call:
                yield missing_parameter(f"{path}.id")


def _check_content(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        said = message.content is not None
        if message.role == "assistant":
            other = ("tool_calls", "refusal", "function_call", "audio")
            said = said or any(message.fields.get(name) is not None for name in other)
        elif message.role == "function":
            said = True
        if not said:
            yield (
                f"{message.path}.content",
                "Invalid value for 'content': expected a string, got null.",
            )


def _check_parts(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.content == []:
            yield f"{message.path}.content", f"Invalid '{message.path}.content': {_EMPTY}"


def _check_part_types(request: ChatRequest) -> Iterator[Found]:
    for message, path, part in _parts(request):
        kind = str(part.get("type"))
        if kind not in _PARTS:
            yield invalid_value(f"{path}.type", kind, _PARTS)
        elif message.role == "assistant" and kind not in ("text", "refusal", "audio"):
            yield invalid_value(f"{path}.type", kind, ("text", "refusal"))


def _check_images(request: ChatRequest) -> Iterator[Found]:
    for message, path, part in _parts(request):
        if part.get("type") == "image_url" and message.role not in ("user", "assistant"):
            yield (
                path,
                (
                    f"Invalid '{message.path}'. Image URLs are only allowed for messages with role "
                    f"'user', but this message with role '{message.role}' contains an image URL."
                ),
            )


def _check_calls_listed(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.fields.get("tool_calls") == []:
            yield f"{message.path}.tool_calls", f"Invalid '{message.path}.tool_calls': {_EMPTY}"


def _check_arguments(request: ChatRequest) -> Iterator[Found]:
    for _, path, function in _functions(request):
        given = function.get("arguments")
        if not isinstance(given, str):
            path = f"{path}.arguments"
            kind = "object" if isinstance(given, Mapping) else type(given).__name__
            yield path, f"Invalid type for '{path}': expected a string, but got {kind} instead."


def _check_answered(request: ChatRequest) -> Iterator[Found]:
    for message, results in request.rounds():
        answered = {result.answers for result in results}
        missing = [one for one in message.call_ids if one not in answered]
        if missing:
            yield (
                f"{message.path}.tool_calls",
                (
                    "An assistant message with 'tool_calls' must be followed by tool messages "
                    "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                    f"response messages: {', '.join(missing)}"
                ),
            )


def _check_have_calls(request: ChatRequest) -> Iterator[Found]:
    for message, results in request.rounds():
        called = set() if message.role == "tool" else set(message.call_ids)
        rows = [message, *results] if message.role == "tool" else results
        for result in rows:
            if result.answers not in called:
                yield (
                    f"{result.path}.role",
                    (
                        "Invalid parameter: messages with role 'tool' must be a response to a "
                        "preceeding message with 'tool_calls'."
                    ),
                )


def _check_one_result(request: ChatRequest) -> Iterator[Found]:
    for _, results in request.rounds():
        seen: set[str] = set()
        for result in results:
            if result.answers in seen:
                yield (
                    result.path,
                    (
                        f"Duplicate value for 'tool_call_id' of '{result.answers}' in "
                        f"message[{result.number}]"
                    ),
                )
            seen.add(result.answers)


def _check_unique(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        seen: set[str] = set()
        for place, one in enumerate(message.call_ids):
            if one in seen and "id" in message.calls[place]:
                path = f"{message.path}.tool_calls[{place}].id"
                yield path, f"Duplicate value for '{path}': '{one}'"
            seen.add(one)


def _check_id_length(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        paths: dict[str, Any] = {f"{message.path}.tool_call_id": message.fields.get("tool_call_id")}
        for place, one in enumerate(message.call_ids):
            paths[f"{message.path}.tool_calls[{place}].id"] = one
        for path, one in paths.items():
            yield from too_long(path, one, _LONGEST_ID)


def _check_names(request: ChatRequest) -> Iterator[Found]:
    for message in request.messages:
        name = message.fields.get("name")
        if isinstance(name, str) and not _NAME.match(name):
            yield _not_matching(f"{message.path}.name", r"^[^\s<|\\/>]+$")
    for _, path, function in _functions(request):
        if not _FUNCTION.match(str(function.get("name"))):
            yield _not_matching(f"{path}.name", "^[a-zA-Z0-9_-]+$")


def _not_matching(path: str, pattern: str) -> Found:
    return (
        path,
        (
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the "
            f"pattern '{pattern}'."
        ),
    )


def _parts(request: ChatRequest) -> Iterator[tuple[ChatMessage, str, Mapping[str, Any]]]:
    for message in request.messages:
        if isinstance(message.content, list):
            for place, part in enumerate(message.content):
                if isinstance(part, Mapping):
                    yield message, f"{message.path}.content[{place}]", part


def _functions(request: ChatRequest) -> Iterator[tuple[ChatMessage, str, Mapping[str, Any]]]:
    for message in request.messages:
        for place, call in enumerate(message.calls):
            function = call.get("function")
            if isinstance(function, Mapping):
                yield message, f"{message.path}.tool_calls[{place}].function", function


_API: Final = "openai-chat"
_SHORT: Final = "error: Expected an array with minimum length 1"

RULES: Final = tuple(
    Rule(f"{_API}/{name}", _API, says, source, check)
    for name, says, source, check in (
        ("some-message", "A request has a message.", _SHORT, _check_some),
        (
            "known-roles",
            "A message has a role that the API takes.",
            "error: Invalid value … Supported values are",
            _check_roles,
        ),
        (
            "no-extra-fields",
            "A message has no fields but those of the API.",
            "types of the SDK openai 3.57; error: Unknown parameter",
            _check_fields,
        ),
        (
            "required-fields",
            "A call has an id, and a tool message the id of its call.",
            "error: Missing required parameter",
            _check_required,
        ),
        (
            "content-not-null",
            "A message has content; an assistant's has content, calls or a refusal.",
            "error: Invalid value for 'content': expected a string, got null",
            _check_content,
        ),
        ("content-not-empty", "A list of content parts is not empty.", _SHORT, _check_parts),
        (
            "known-parts",
            "A content part has a type that its role takes.",
            "error: Invalid value … Supported values are",
            _check_part_types,
        ),
        (
            "images-from-user",
            "Images are a user's, never a tool's or the system's.",
            "error: Image URLs are only allowed for messages with role 'user'",
            _check_images,
        ),
        ("calls-listed", "`tool_calls` is no empty list.", _SHORT, _check_calls_listed),
        (
            "arguments-are-text",
            "The arguments of a call are JSON as a text, not an object.",
            "error: Invalid type … expected a string",
            _check_arguments,
        ),
        (
            "calls-answered",
            "Each call has its tool message among those directly after it.",
            "error: must be followed by tool messages responding to each 'tool_call_id'",
            _check_answered,
        ),
        (
            "results-have-calls",
            "A tool message answers a call of the assistant message directly before it.",
            "error: must be a response to a preceeding message with 'tool_calls'",
            _check_have_calls,
        ),
        (
            "one-result-a-call",
            "A call has one tool message.",
            "error: Duplicate value for 'tool_call_id'",
            _check_one_result,
        ),
        (
            "call-ids-unique",
            "No two calls of a message have one id.",
            "Function calling: ids of calls",
            _check_unique,
        ),
        (
            "call-id-length",
            f"An id of a call has at most {_LONGEST_ID} characters.",
            "error: string too long. Expected a string with maximum length 40",
            _check_id_length,
        ),
        (
            "name-form",
            (
                r"A function's name is 1 to 64 letters, digits, `_` and `-`; a message's has no "
                r"space and none of `<`, `>`, `/`, `\` and `|`."
            ),
            "error: string does not match pattern",
            _check_names,
        ),
    )
)


class ChatMessage(msgspec.Struct, frozen=True):
    """A message; ``calls`` are its tool calls that are objects."""

    number: int
    role: str
    fields: Mapping[str, Any]
    calls: tuple[Mapping[str, Any], ...]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"messages[{self.number}]"

    @property
    def content(self) -> Any:
        """A text, a list of parts, or None."""
        return self.fields.get("content")

    @property
    def call_ids(self) -> list[str]:
        """The ids of its calls, in order."""
        return [str(call.get("id")) for call in self.calls]

    @property
    def answers(self) -> str:
        """The id of the call that a tool message answers."""
        return str(self.fields.get("tool_call_id"))


class ChatRequest(msgspec.Struct, frozen=True):
    """A parsed request."""

    body: Mapping[str, Any]
    messages: tuple[ChatMessage, ...]

    def rounds(self) -> Iterator[tuple[ChatMessage, list[ChatMessage]]]:
        """Each message that is no tool's, with the tool messages directly after it."""
        place = 0
        while place < len(self.messages):
            message = self.messages[place]
            end = place + 1
            while end < len(self.messages) and self.messages[end].role == "tool":
                end += 1
            yield message, list(self.messages[place + 1 : end])
            place = end


def read_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Parse a request; what is no object is left out."""
    sent = body.get("messages")
    messages = []
    for number, row in enumerate(sent if isinstance(sent, list) else ()):
        if isinstance(row, Mapping):
            calls = row.get("tool_calls")
            listed = calls if isinstance(calls, list) else ()
            found = tuple(call for call in listed if isinstance(call, Mapping))
            messages.append(ChatMessage(number, str(row.get("role")), row, found))
    return ChatRequest(body, tuple(messages))
