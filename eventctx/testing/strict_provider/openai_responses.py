"""Rules of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from eventctx.testing.strict_provider.response_items import (
    BY_PERSON,
    FIELDS,
    ID_BEGINS,
    OUTPUTS,
    REQUIRED,
    InputItem,
    ResponsesRequest,
    reasoning_of,
    runs,
)
from eventctx.testing.strict_provider.rule import (
    Found,
    Rule,
    invalid_value,
    missing_parameter,
    too_long,
    unknown_parameter,
)

_LONGEST_ID: Final = 64
_OF_PERSON: Final = ("input_text", "input_image", "input_file", "input_audio")
_OF_MODEL: Final = ("output_text", "refusal")


def _check_some(request: ResponsesRequest) -> Iterator[Found]:
    if not request.items and not request.goes_on and not request.body.get("prompt"):
        yield missing_parameter("input")


def _check_types(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        if item.type not in FIELDS:
            yield invalid_value(f"{item.path}.type", item.type, tuple(FIELDS))


def _check_roles(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        role = item.fields.get("role")
        if item.type == "message" and role not in (*BY_PERSON, "assistant"):
            yield invalid_value(f"{item.path}.role", str(role), ("assistant", *BY_PERSON))


def _check_fields(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        taken = FIELDS.get(item.type)
        for name in sorted(item.fields.keys() - taken - {"type"}) if taken else ():
            yield unknown_parameter(f"{item.path}.{name}")


def _check_required(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        for name in REQUIRED.get(item.type, ()):
            if name not in item.fields:
                yield missing_parameter(f"{item.path}.{name}")


def _check_texts(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        for name in ("call_id", "name", "arguments", "id"):
            found = item.fields.get(name, "")
            if not isinstance(found, str) and not (name == "arguments" and _searches(item)):
                path = f"{item.path}.{name}"
                kind = "null" if found is None else "object"
                yield path, f"Invalid type for '{path}': expected a string, but got {kind} instead."


def _searches(item: InputItem) -> bool:
    """The arguments of a search for tools are an object."""
    return item.type == "tool_search_call"


def _check_parts(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        content = item.fields.get("content")
        if item.type != "message" or not isinstance(content, list):
            continue
        known = _OF_MODEL if item.fields.get("role") == "assistant" else _OF_PERSON
        for place, part in enumerate(content):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            if kind not in known:
                yield invalid_value(f"{item.path}.content[{place}]", str(kind), known)


def _check_unique_ids(request: ResponsesRequest) -> Iterator[Found]:
    seen: set[str] = set()
    for item in request.items:
        if item.id is not None and item.type != "local_shell_call_output":
            if item.id in seen:
                yield (
                    item.path,
                    (
                        f"Duplicate item found with id {item.id}. Remove duplicate items from your "
                        "input and try again."
                    ),
                )
            seen.add(item.id)


def _check_id_form(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        begin = ID_BEGINS.get(item.type)
        by_person = item.fields.get("role") in BY_PERSON
        if begin and item.id is not None and not by_person and not item.id.startswith(begin):
            yield (
                f"{item.path}.id",
                (
                    f"Invalid '{item.path}.id': '{item.id}'. Expected an ID that begins with "
                    f"'{begin}'."
                ),
            )


def _check_id_length(request: ResponsesRequest) -> Iterator[Found]:
    for item in request.items:
        for name in ("id", "call_id"):
            yield from too_long(f"{item.path}.{name}", item.fields.get(name), _LONGEST_ID)


def _check_answered(request: ResponsesRequest) -> Iterator[Found]:
    for place, item in enumerate(request.seen):
        output = OUTPUTS.get(item.type)
        if output is None or item.fields.get("async") or _by_server(item):
            continue
        later = request.seen[place + 1 :]
        if not any(one.type == output and one.call_id == item.call_id for one in later):
            yield item.path, f"No tool output found for {_words(item.type)} {item.call_id}."


def _by_server(item: InputItem) -> bool:
    return item.type == "tool_search_call" and item.fields.get("execution") != "client"


def _check_have_calls(request: ResponsesRequest) -> Iterator[Found]:
    if request.goes_on:
        return
    calls = {output: call for call, output in OUTPUTS.items()}
    called: set[tuple[str, str]] = set()
    for item in request.seen:
        called.add((item.type, item.call_id))
        call = calls.get(item.type)
        if call is None or item.type == "tool_search_output":
            continue
        if (call, item.call_id) not in called:
            yield (
                item.path,
                f"No tool call found for {_words(item.type)} with call_id {item.call_id}.",
            )


def _check_one_output(request: ResponsesRequest) -> Iterator[Found]:
    open_outputs: dict[tuple[str, str], int] = {}
    for item in request.seen:
        if item.type in OUTPUTS:
            key = (OUTPUTS[item.type], item.call_id)
            open_outputs[key] = open_outputs.get(key, 0) + 1
        elif (item.type, item.call_id) in open_outputs:
            key = (item.type, item.call_id)
            open_outputs[key] -= 1
            if open_outputs[key] < 0:
                yield item.path, f"Duplicate tool output found for call_id {item.call_id}."


def _check_following(request: ResponsesRequest) -> Iterator[Found]:
    for reasoning, following in runs(request.seen):
        if following is None or not following.is_of_model:
            yield (
                reasoning.path,
                (
                    f"Item '{reasoning.id}' of type 'reasoning' was provided without its required "
                    "following item."
                ),
            )


def _check_preceding(request: ResponsesRequest) -> Iterator[Found]:
    reasoned: set[str | None] = set()
    for item in request.seen:
        if item.type == "reasoning":
            reasoned.add(item.id)
        required = reasoning_of(item)
        if required is not None and required not in reasoned and not request.goes_on:
            yield (
                item.path,
                (
                    f"Item '{item.id}' of type '{item.type}' was provided without its required "
                    f"'reasoning' item: '{required}'."
                ),
            )


def _check_persisted(request: ResponsesRequest) -> Iterator[Found]:
    if request.body.get("store") is not False:
        return
    for item in request.seen:
        lost = item.type == "reasoning" and not item.fields.get("encrypted_content")
        if item.id is not None and (lost or item.type == "item_reference"):
            yield (
                item.path,
                (
                    f"Item with id '{item.id}' not found. Items are not persisted when `store` is "
                    "set to false. Try again with `store` set to true, or remove this item from "
                    "your input."
                ),
            )


def _check_approvals(request: ResponsesRequest) -> Iterator[Found]:
    if request.goes_on:
        return
    asked: set[str] = set()
    for item in request.seen:
        if item.type == "mcp_approval_request":
            asked.add(str(item.id))
        elif item.type == "mcp_approval_response":
            answered = str(item.fields.get("approval_request_id"))
            if answered not in asked:
                yield item.path, f"No approval request found with id '{answered}'."


def _words(kind: str) -> str:
    return kind.replace("_", " ")


_API: Final = "openai-responses"
_SUPPORTED: Final = "error: Invalid value … Supported values are"

RULES: Final = tuple(
    Rule(f"{_API}/{name}", _API, says, source, check)
    for name, says, source, check in (
        (
            "some-item",
            "A request has an input, unless the server keeps the conversation.",
            "error: Missing required parameter: 'input'",
            _check_some,
        ),
        ("known-items", "An item has a type that the API takes.", _SUPPORTED, _check_types),
        ("known-roles", "A message has a role that the API takes.", _SUPPORTED, _check_roles),
        (
            "no-extra-fields",
            (
                "An item has no fields but those of the API; what an SDK adds to an answer "
                "(`parsed_arguments`), and `created_by`, is refused."
            ),
            "types of the SDK openai 3.57; error: Unknown parameter",
            _check_fields,
        ),
        (
            "required-fields",
            "An item has every field that its type needs.",
            "error: Missing required parameter",
            _check_required,
        ),
        (
            "fields-are-text",
            "Ids, names and the arguments of a function are texts, not null and not objects.",
            "error: Invalid type … expected a string",
            _check_texts,
        ),
        (
            "known-parts",
            "A person's content has input parts, the model's has output parts.",
            _SUPPORTED,
            _check_parts,
        ),
        (
            "item-ids-unique",
            "No two items have one id.",
            "error: Duplicate item found with id",
            _check_unique_ids,
        ),
        (
            "item-id-form",
            (
                "The id of an item that the API made begins with `msg`, `fc`, `rs` or `ctc`, "
                "whichever its type has."
            ),
            "error: Expected an ID that begins with",
            _check_id_form,
        ),
        (
            "id-length",
            f"An id has at most {_LONGEST_ID} characters.",
            "error: string too long. Expected a string with maximum length 64",
            _check_id_length,
        ),
        (
            "calls-answered",
            "A call of the client's tools has its output, with its call_id, after it.",
            "error: No tool output found for function call",
            _check_answered,
        ),
        (
            "outputs-have-calls",
            "An output answers a call before it, unless the server keeps the conversation.",
            "error: No tool call found for function call output",
            _check_have_calls,
        ),
        (
            "one-output-a-call",
            "A call has one output.",
            "Function calling: one output for each call_id",
            _check_one_output,
        ),
        (
            "reasoning-followed",
            "Reasoning is followed by what it was made for: a message or a call.",
            "error: was provided without its required following item",
            _check_following,
        ),
        (
            "reasoning-precedes",
            "An item that was made with reasoning comes with it, as long as it has its id.",
            "error: was provided without its required 'reasoning' item",
            _check_preceding,
        ),
        (
            "items-persisted",
            (
                "With `store: false`, reasoning has its encrypted content, and no item is referred "
                "to by its id."
            ),
            "error: Items are not persisted when `store` is set to false",
            _check_persisted,
        ),
        (
            "approvals-have-requests",
            "An approval of an MCP call answers its request.",
            "Connectors and MCP servers: approvals",
            _check_approvals,
        ),
    )
)
