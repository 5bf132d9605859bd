"""Rules of Gemini's API (``generateContent``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.rule import Found, Rule

PLACEHOLDER: Final = "skip_thought_signature_validator"
"""The signature for calls that another model made."""

_DATA: Final = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse"),
    *("executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
)
_VERSION: Final = re.compile(r"gemini-(\d+)")


class GeminiContent(msgspec.Struct, frozen=True):
    """A content; its parts have the API's names of fields, whichever spelling was sent."""

    number: int
    role: str
    parts: tuple[Mapping[str, Any], ...]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"contents[{self.number}]"

    @property
    def calls(self) -> list[Mapping[str, Any]]:
        """The parts that call a function."""
        return [part for part in self.parts if "functionCall" in part]

    @property
    def responses(self) -> list[Mapping[str, Any]]:
        """The parts that answer a call."""
        return [part for part in self.parts if "functionResponse" in part]


class GeminiRequest(msgspec.Struct, frozen=True):
    """A parsed request; ``generation`` is the model's number, 0 where the body does not say it."""

    contents: tuple[GeminiContent, ...]
    generation: int

    def neighbours(self) -> Iterator[tuple[GeminiContent | None, GeminiContent]]:
        """Each content with the one before it."""
        for place, content in enumerate(self.contents):
            yield (self.contents[place - 1] if place else None), content


def read_gemini_request(body: Mapping[str, Any]) -> GeminiRequest:
    """Parse a request; ``model`` is the model's name, which the API takes from its address."""
    sent = body.get("contents")
    contents = tuple(
        GeminiContent(number, str(row.get("role", "user")), _parts(row))
        for number, row in enumerate(sent if isinstance(sent, list) else ())
        if isinstance(row, Mapping)
    )
    version = _VERSION.search(str(body.get("model", "")))
    return GeminiRequest(contents, int(version[1]) if version else 0)


def _parts(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    parts = row.get("parts")
    return tuple(
        {_camel(name): value for name, value in part.items()}
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, Mapping)
    )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _check_some(request: GeminiRequest) -> Iterator[Found]:
    if not request.contents:
        yield "contents", "* GenerateContentRequest.contents: contents is not specified"


def _check_roles(request: GeminiRequest) -> Iterator[Found]:
    for content in request.contents:
        if content.role not in ("user", "model", "function"):
            yield f"{content.path}.role", "Please use a valid role: user, model."


def _check_first(request: GeminiRequest) -> Iterator[Found]:
    first = request.contents[0] if request.contents else None
    if first is not None and first.role == "model" and not first.calls:
        yield first.path, "Please ensure that multiturn requests begin with a user turn."


def _check_parts(request: GeminiRequest) -> Iterator[Found]:
    for content in request.contents:
        if not content.parts:
            yield (
                f"{content.path}.parts",
                f"* GenerateContentRequest.{content.path}.parts: contents.parts must not be empty.",
            )


def _check_data(request: GeminiRequest) -> Iterator[Found]:
    for content in request.contents:
        for place, part in enumerate(content.parts):
            path = f"{content.path}.parts[{place}]"
            if not any(name in part for name in _DATA):
                yield (
                    path,
                    (
                        f"* GenerateContentRequest.{path}.data: required oneof field 'data' must "
                        "have one initialized field"
                    ),
                )
            # The end of a stream may be a signature with no text.
            elif part.get("text") == "" and "thoughtSignature" not in part:
                yield (
                    path,
                    (
                        "Unable to submit request because it has an empty text parameter. Add a "
                        "value to the parameter and try again."
                    ),
                )


def _check_calls_follow(request: GeminiRequest) -> Iterator[Found]:
    for before, content in request.neighbours():
        if content.calls and (before is None or before.role == "model"):
            yield (
                content.path,
                (
                    "Please ensure that function call turn comes immediately after a user turn or "
                    "after a function response turn."
                ),
            )


def _check_responses_follow(request: GeminiRequest) -> Iterator[Found]:
    for before, content in request.neighbours():
        if content.responses and (before is None or not before.calls):
            yield (
                content.path,
                (
                    "Please ensure that function response turn comes immediately after a function "
                    "call turn."
                ),
            )


def _check_as_many(request: GeminiRequest) -> Iterator[Found]:
    end = GeminiContent(len(request.contents), "user", ())
    for place, content in enumerate(request.contents):
        following = (*request.contents[place + 1 : place + 2], end)[0]
        if content.calls and len(content.calls) != len(following.responses):
            yield (
                following.path,
                (
                    "Please ensure that the number of function response parts is equal to the "
                    "number of function call parts of the function call turn."
                ),
            )


def _check_same(request: GeminiRequest) -> Iterator[Found]:
    for before, content in request.neighbours():
        if before is None or len(before.calls) != len(content.responses):
            continue
        called = sorted(_identity(part["functionCall"]) for part in before.calls)
        answered = sorted(_identity(part["functionResponse"]) for part in content.responses)
        if any(not _agree(*pair) for pair in zip(called, answered, strict=True)):
            yield (
                content.path,
                (
                    "Please ensure that function response parts have the names and ids of the "
                    "function call parts of the function call turn."
                ),
            )


def _identity(function: Any) -> tuple[str, str]:
    named = function if isinstance(function, Mapping) else {}
    return str(named.get("name")), str(named.get("id") or "")


def _agree(call: tuple[str, str], response: tuple[str, str]) -> bool:
    return call[0] == response[0] and ("" in (call[1], response[1]) or call[1] == response[1])


def _check_signed(request: GeminiRequest) -> Iterator[Found]:
    if request.generation < 3:
        return
    begin = 0
    for place, content in enumerate(request.contents):
        if content.role != "model" and not content.responses:
            begin = place
    for content in request.contents[begin:]:
        if content.calls and not content.calls[0].get("thoughtSignature"):
            name = _identity(content.calls[0]["functionCall"])[0]
            yield (
                content.path,
                (
                    "Function call is missing a thought_signature in functionCall parts. This is "
                    "required for tools to work correctly, and missing thought_signature may lead "
                    "to degraded model performance. Additional data, function call "
                    f"`default_api:{name}` , position {content.number + 1}."
                ),
            )


_FUNCTIONS: Final = "Function calling"

RULES: Final = tuple(
    Rule(f"gemini/{name}", "gemini", says, source, check)
    for name, says, source, check in (
        (
            "some-content",
            "A request has a content.",
            "error: contents is not specified",
            _check_some,
        ),
        (
            "known-roles",
            "A content is the user's or the model's.",
            "error: Please use a valid role: user, model",
            _check_roles,
        ),
        ("first-is-user", "The first content is the user's.", "Multi-turn content", _check_first),
        (
            "content-not-empty",
            "A content has parts.",
            "error: contents.parts must not be empty",
            _check_parts,
        ),
        (
            "part-not-empty",
            "A part has data, and its text is empty only with a thought signature.",
            "error: required oneof field 'data' must have one initialized field",
            _check_data,
        ),
        (
            "calls-follow-user",
            "A function call is directly after the user's content or after responses.",
            "error: function call turn comes immediately after a user turn",
            _check_calls_follow,
        ),
        (
            "responses-follow-calls",
            "Function responses are directly after the content with their calls.",
            "error: function response turn comes immediately after a function call turn",
            _check_responses_follow,
        ),
        (
            "as-many-responses",
            "A content with calls is followed by as many responses.",
            (
                "error: number of function response parts is equal to the number of function call "
                "parts"
            ),
            _check_as_many,
        ),
        (
            "same-functions",
            "Responses have the names of their calls, and the ids where both have ids.",
            _FUNCTIONS,
            _check_same,
        ),
        (
            "calls-signed",
            (
                "From Gemini 3 on, the first call of each step of the current turn has its thought "
                f"signature, or `{PLACEHOLDER}`."
            ),
            "Thought signatures; error: Function call is missing a thought_signature",
            _check_signed,
        ),
    )
)
