"""Dialects of span attributes: OpenTelemetry's GenAI conventions, and Arize's OpenInference.

The fold makes spans in the GenAI dialect. A translation to another one is a pure function of a
span's attributes, applied last: to a span that has its contents, and that is redacted. So a dialect
decides about names alone, and neither about what is sent nor about what is hidden.

OpenInference's names are those of the package openinference-semantic-conventions 0.1.42. It has one
attribute per field of a message (``llm.input_messages.0.message.role``), where GenAI has one JSON
text. Attributes that it has no name for keep theirs: all of ``eventctx.``, the sums of a turn (it
counts the tokens of model calls alone, and a receiver would add the sums to them), the id of a
response.

OpenTelemetry's SDK drops the first attributes of a span above its limit of 128. So messages come
first, the oldest before the others, and what is needed to read the span at all comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from eventctx.errors import InvalidSetting
from eventctx.messages.tool_definitions import in_openais_form
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attribute, Attributes
from eventctx.projections.trace.spans import OpenSpan, Span

S = TypeVar("S", Span, OpenSpan)

SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
INPUT_MIME: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME: Final = "output.mime_type"
MODEL: Final = "llm.model_name"
REQUEST_MODEL: Final = "llm.request.model_name"
RESPONSE_MODEL: Final = "llm.response.model_name"
PROVIDER: Final = "llm.provider"
FINISH_REASON: Final = "llm.finish_reason"
PROMPT_TOKENS: Final = "llm.token_count.prompt"
COMPLETION_TOKENS: Final = "llm.token_count.completion"
TOTAL_TOKENS: Final = "llm.token_count.total"
CACHE_READ_TOKENS: Final = "llm.token_count.prompt_details.cache_read"
CACHE_WRITE_TOKENS: Final = "llm.token_count.prompt_details.cache_write"
REASONING_TOKENS: Final = "llm.token_count.completion_details.reasoning"
INPUT_MESSAGES: Final = "llm.input_messages"
OUTPUT_MESSAGES: Final = "llm.output_messages"
TOOLS: Final = "llm.tools"
TOOL_SCHEMA: Final = "tool.json_schema"
AGENT_NAME: Final = "agent.name"
TOOL_NAME: Final = "tool.name"
TOOL_DESCRIPTION: Final = "tool.description"
TOOL_ID: Final = "tool.id"
ROLE: Final = "message.role"
CONTENT: Final = "message.content"
CONTENTS: Final = "message.contents"
CONTENT_TYPE: Final = "message_content.type"
CONTENT_TEXT: Final = "message_content.text"
RESULT_CALL_ID: Final = "message.tool_call_id"
TOOL_CALLS: Final = "message.tool_calls"
CALL_ID: Final = "tool_call.id"
CALL_NAME: Final = "tool_call.function.name"
CALL_ARGUMENTS: Final = "tool_call.function.arguments"

_TEXT: Final = "text/plain"
_JSON: Final = "application/json"

_KINDS: Final = {
    conv.INVOKE_AGENT: "AGENT",
    conv.CHAT: "LLM",
    conv.EXECUTE_TOOL: "TOOL",
    conv.PLAN: "CHAIN",
    conv.COMPACT: "CHAIN",
}

_RENAMED: Final = {
    conv.AGENT_NAME: AGENT_NAME,
    conv.TOOL_NAME: TOOL_NAME,
    conv.TOOL_DESCRIPTION: TOOL_DESCRIPTION,
    conv.TOOL_CALL_ID: TOOL_ID,
}

_OF_A_CALL: Final = {
    conv.REQUEST_MODEL: REQUEST_MODEL,
    conv.RESPONSE_MODEL: RESPONSE_MODEL,
    conv.INPUT_TOKENS: PROMPT_TOKENS,
    conv.OUTPUT_TOKENS: COMPLETION_TOKENS,
    conv.CACHE_READ_TOKENS: CACHE_READ_TOKENS,
    conv.CACHE_WRITE_TOKENS: CACHE_WRITE_TOKENS,
    conv.CACHE_CREATION_TOKENS: CACHE_WRITE_TOKENS,
    conv.REASONING_TOKENS: REASONING_TOKENS,
}

_PROVIDERS: Final = {
    "aws.bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistralai",
    "moonshot_ai": "moonshot",
    "x_ai": "xai",
}
"""GenAI's names of providers that OpenInference spells otherwise."""

_CONTENTS: Final = frozenset(
    (
        *(conv.INPUT_MESSAGES, conv.OUTPUT_MESSAGES, conv.SYSTEM_INSTRUCTIONS),
        *(conv.TOOL_ARGUMENTS, conv.TOOL_RESULT, conv.TOOL_DEFINITIONS),
    )
)


def to_openinference(attributes: Attributes) -> Attributes:
    """The attributes of a span with OpenInference's names; those given are not changed."""
    operation = attributes.get(conv.OPERATION)
    renamed = _RENAMED | _OF_A_CALL if operation == conv.CHAT else _RENAMED
    rest: Attributes = {}
    found: Attributes = {}
    for name, value in attributes.items():
        if name in renamed:
            found[renamed[name]] = value
        elif name not in _CONTENTS:
            rest[name] = value
    if operation == conv.CHAT:
        _add_call(found, rest)
    found |= _values(attributes, operation)
    found[SPAN_KIND] = _KINDS.get(str(operation), "CHAIN")
    messages = dict(_messages(attributes)) if operation == conv.CHAT else {}
    return messages | rest | found


GENAI: Final = "genai"
"""The name of the dialect that the fold speaks, and so the default everywhere."""

DIALECTS: Final[dict[str, Callable[[Attributes], Attributes] | None]] = {
    GENAI: None,
    "openinference": to_openinference,
}
"""Translations from GenAI's names by the name of the dialect; GenAI's own needs none."""


def check_dialect(name: object) -> str:
    """Return the name of a dialect. Raises InvalidSetting for any other value."""
    if not isinstance(name, str) or name not in DIALECTS:
        raise InvalidSetting(f"dialect: expected one of {', '.join(DIALECTS)}, found {name!r}")
    return name


def in_dialect(span: S, name: str) -> S:
    """The span with its attributes in the dialect of this name; it must be redacted already."""
    translate = DIALECTS[name]
    return span if translate is None else replace(span, attributes=translate(span.attributes))


# -- a model call --------------------------------------------------------------------------------


def _add_call(found: Attributes, rest: Attributes) -> None:
    """Add what is not the same under another name: model, provider, total, the finish reason."""
    model = found.get(RESPONSE_MODEL, found.get(REQUEST_MODEL))
    if model is not None:
        found[MODEL] = model
    provider = rest.pop(conv.PROVIDER_NAME, None)
    if isinstance(provider, str):
        found[PROVIDER] = _PROVIDERS.get(provider, provider)
    prompt, completion = found.get(PROMPT_TOKENS), found.get(COMPLETION_TOKENS)
    if isinstance(prompt, int) and isinstance(completion, int):
        found[TOTAL_TOKENS] = prompt + completion
    reasons = rest.pop(conv.FINISH_REASONS, None)
    if isinstance(reasons, tuple) and reasons:
        found[FINISH_REASON] = reasons[0]


def _messages(attributes: Attributes) -> Iterator[tuple[str, Attribute]]:
    """The attributes of a request's messages, system messages first, of the answer, of tools."""
    asked = _decode(attributes.get(conv.INPUT_MESSAGES))
    system = attributes.get(conv.SYSTEM_INSTRUCTIONS)
    if system is not None:
        # Above the limit of a content this text is cut, and no JSON any more.
        parts = _decode(system) or [{"type": "text", "content": system}]
        asked = [{"role": "system", "parts": parts}, *asked]
    for prefix, messages in (
        (INPUT_MESSAGES, asked),
        (OUTPUT_MESSAGES, _decode(attributes.get(conv.OUTPUT_MESSAGES))),
    ):
        single = (one for message in messages for one in _without_results(message))
        for number, message in enumerate(single):
            for name, value in _message(message):
                yield f"{prefix}.{number}.{name}", value
    for number, tool in enumerate(_decode(attributes.get(conv.TOOL_DEFINITIONS))):
        schema = msgspec.json.encode(in_openais_form(tool)).decode()
        yield f"{TOOLS}.{number}.{TOOL_SCHEMA}", schema


def _without_results(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The message in parts that have at most one tool result each, since a message has one id."""
    if not message["parts"]:
        yield message
    for are_results, parts in groupby(message["parts"], key=_is_result):
        if are_results:
            yield from ({"role": "tool", "parts": [part]} for part in parts)
        else:
            yield {"role": message["role"], "parts": list(parts)}


def _is_result(part: dict[str, Any]) -> bool:
    return bool(part["type"] == "tool_call_response")


def _message(message: dict[str, Any]) -> Iterator[tuple[str, Attribute]]:
    yield ROLE, message["role"]
    shown = [part for part in message["parts"] if part["type"] != "tool_call" and _words(part)]
    if len(shown) == 1 and shown[0]["type"] != "reasoning":
        yield CONTENT, _words(shown[0])
    else:
        for number, part in enumerate(shown):
            kind = "reasoning" if part["type"] == "reasoning" else "text"
            yield f"{CONTENTS}.{number}.{CONTENT_TYPE}", kind
            yield f"{CONTENTS}.{number}.{CONTENT_TEXT}", _words(part)
    for part in shown:
        if _is_result(part) and "id" in part:
            yield RESULT_CALL_ID, part["id"]
    calls = [part for part in message["parts"] if part["type"] == "tool_call"]
    for number, part in enumerate(calls):
        if "id" in part:
            yield f"{TOOL_CALLS}.{number}.{CALL_ID}", part["id"]
        yield f"{TOOL_CALLS}.{number}.{CALL_NAME}", part["name"]
        yield f"{TOOL_CALLS}.{number}.{CALL_ARGUMENTS}", part["arguments"]


# -- input and output ----------------------------------------------------------------------------


def _values(attributes: Attributes, operation: object) -> Attributes:
    """Input and output of any span: words of messages, what a compaction took out and put in, a
    tool's arguments and result. Of a request they are its newest message, not all that it repeats.
    """
    if operation == conv.EXECUTE_TOOL:
        given, got = attributes.get(conv.TOOL_ARGUMENTS), attributes.get(conv.TOOL_RESULT)
    else:
        given, got = attributes.get(conv.INPUT_MESSAGES), attributes.get(conv.OUTPUT_MESSAGES)
    if operation in (conv.INVOKE_AGENT, conv.CHAT):
        asked = _decode(given)
        given = _text_of(asked[-1:] if operation == conv.CHAT else asked)
        got = _text_of(_decode(got))
    found: Attributes = {}
    for value, name, mime in (
        (given, INPUT_VALUE, INPUT_MIME),
        (got, OUTPUT_VALUE, OUTPUT_MIME),
    ):
        if isinstance(value, str) and value:
            found[name] = value
            found[mime] = _JSON if _is_json(value) else _TEXT
    return found


def _text_of(messages: Iterable[dict[str, Any]]) -> str:
    parts = (part for message in messages for part in message["parts"])
    words = (_words(part) for part in parts if part["type"] != "reasoning")
    return "\n\n".join(filter(None, words))


def _words(part: dict[str, Any]) -> str:
    """A part as text; of an image its kind, and nothing of thinking that is sealed."""
    match part["type"]:
        case "tool_call":
            return f"{part['name']}({part['arguments']})"
        case "tool_call_response":
            return str(part["response"])
        case "blob":
            return f"[{part['modality']}]"
        case _:
            return str(part.get("content", ""))


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or array; a number or a word alone is shown as text."""
    return text[:1] in ("{", "[") and _decoded(text) is not None


def _decode(text: Attribute | None) -> list[dict[str, Any]]:
    found = _decoded(text) if isinstance(text, str) else None
    return found if isinstance(found, list) else []


def _decoded(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
