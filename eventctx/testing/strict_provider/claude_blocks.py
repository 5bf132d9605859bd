"""The content blocks that Anthropic's Messages API takes: their fields, and the role that has them.

From the parameter types of the SDK (anthropic 2.14), the beta ones included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from eventctx.testing.strict_provider.claude_request import ClaudeBlock, ClaudeRequest, blocks_of
from eventctx.testing.strict_provider.rule import Found, Rule


class _Form(msgspec.Struct, frozen=True):
    """The fields of a block: required ones, optional ones, and those that may be null."""

    role: str
    required: frozenset[str]
    optional: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()


def _form(role: str, required: str, optional: str = "", nullable: str = "cache_control") -> _Form:
    may_be_null = frozenset(nullable.split())
    return _Form(
        role, frozenset(required.split()), frozenset(optional.split()) | may_be_null, may_be_null
    )


_SERVER_RESULT: Final = _form("assistant", "content tool_use_id")
_FETCHED: Final = _form("assistant", "content tool_use_id", "caller")

FORMS: Final[dict[str, _Form]] = {
    "text": _form("any", "text", nullable="cache_control citations"),
    "image": _form("user", "source", nullable="cache_control transformations"),
    "document": _form("user", "source", nullable="cache_control citations context title"),
    "search_result": _form("user", "content source title", "citations"),
    "thinking": _form("assistant", "thinking signature", nullable=""),
    "redacted_thinking": _form("assistant", "data", nullable=""),
    "tool_use": _form("assistant", "id input name", "caller", "cache_control toolset_name"),
    "tool_result": _form("user", "tool_use_id", "content is_error", "cache_control toolset_name"),
    "server_tool_use": _form("assistant", "id input name", "caller"),
    "web_search_tool_result": _FETCHED,
    "web_fetch_tool_result": _FETCHED,
    "advisor_tool_result": _SERVER_RESULT,
    "code_execution_tool_result": _SERVER_RESULT,
    "bash_code_execution_tool_result": _SERVER_RESULT,
    "text_editor_code_execution_tool_result": _SERVER_RESULT,
    "tool_search_tool_result": _SERVER_RESULT,
    "mcp_tool_use": _form("assistant", "id input name server_name"),
    "mcp_tool_result": _form("assistant", "tool_use_id", "content is_error"),
    "container_upload": _form("user", "file_id"),
    "compaction": _form(
        "any", "", nullable="cache_control content encrypted_content signature tool_changes"
    ),
    "tool_addition": _form("system", "tool"),
    "tool_removal": _form("system", "tool"),
    "mcp_tool_listing": _form("any", "mcp_server_name tools", nullable=""),
    "fallback": _form("assistant", "from to", nullable="trigger"),
}
_IN_RESULTS: Final = (
    *("text", "image", "search_result", "document"),
    *("tool_reference", "browser_state"),
)
_OF_MESSAGES: Final = frozenset(("role", "content"))
_OF_SYSTEM_MESSAGES: Final = _OF_MESSAGES | {"clear_at", "output_config"}


def _check_known(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.type not in FORMS:
            yield block.path, _unknown(block, FORMS)
    for result in _results(request):
        for block in blocks_of(result.fields.get("content"), f"{result.path}.content"):
            if block.type not in _IN_RESULTS:
                yield block.path, _unknown(block, _IN_RESULTS)


def _unknown(block: ClaudeBlock, known: Iterable[str]) -> str:
    tags = ", ".join(f"'{tag}'" for tag in known)
    return (
        f"{block.path}: Input tag '{block.type}' found using 'type' does not match any of the "
        f"expected tags: {tags}"
    )


def _check_fields(request: ClaudeRequest) -> Iterator[Found]:
    for row in request.rows:
        taken = _OF_SYSTEM_MESSAGES if row.role == "system" else _OF_MESSAGES
        for name in sorted(row.fields.keys() - taken):
            yield _extra(f"messages.{row.number}.{name}")
        for block in row.blocks:
            form = FORMS.get(block.type)
            if form is not None:
                extra = block.fields.keys() - form.required - form.optional - {"type"}
                yield from (_extra(f"{block.path}.{block.type}.{name}") for name in sorted(extra))


def _extra(path: str) -> Found:
    return path, f"{path}: Extra inputs are not permitted"


def _check_required(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        form = FORMS.get(block.type)
        for name in sorted(form.required - block.fields.keys()) if form else ():
            path = f"{block.path}.{block.type}.{name}"
            yield path, f"{path}: Field required"


def _check_nulls(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        form = FORMS.get(block.type)
        for name in sorted((form.required | form.optional) - form.nullable) if form else ():
            if name in block.fields and block.fields[name] is None:
                path = f"{block.path}.{block.type}.{name}"
                yield path, f"{path}: Input should be a valid {_VALID.get(name, 'string')}"


_VALID: Final = {"input": "dictionary", "caller": "dictionary", "is_error": "boolean"}


def _check_inputs(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        given = block.fields.get("input")
        if given is not None and not isinstance(given, dict):
            path = f"{block.path}.{block.type}.input"
            yield path, f"{path}: Input should be a valid dictionary"


def _check_roles(request: ClaudeRequest) -> Iterator[Found]:
    for row, block in request.blocks():
        form = FORMS.get(block.type)
        if form is not None and form.role not in ("any", row.role) and row.role != "system":
            yield (
                block.path,
                (
                    f"messages.{row.number}: `{block.type}` blocks can only be in `{form.role}` "
                    "messages"
                ),
            )


def _check_text(request: ClaudeRequest) -> Iterator[Found]:
    for row, block in request.blocks():
        if block.type == "text" and block.fields.get("text") == "":
            yield f"messages.{row.number}", "messages: text content blocks must be non-empty"
    for block in blocks_of(request.body.get("system"), "system"):
        if block.type == "text" and block.fields.get("text") == "":
            yield block.path, "system: text content blocks must be non-empty"


def _check_blank_text(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.type == "text" and _is_blank(block):
            yield block.path, "messages: text content blocks must contain non-whitespace text"


def _check_result_text(request: ClaudeRequest) -> Iterator[Found]:
    for result in _results(request):
        content = result.fields.get("content")
        if not isinstance(content, list):
            continue  # An empty text as the whole content is a result without output.
        for block in blocks_of(content, f"{result.path}.content"):
            if block.type == "text" and block.fields.get("text") == "":
                yield block.path, "messages: text content blocks must be non-empty"
            elif block.type == "text" and _is_blank(block):
                yield block.path, "messages: text content blocks must contain non-whitespace text"


def _results(request: ClaudeRequest) -> Iterator[ClaudeBlock]:
    return (block for _, block in request.blocks() if block.type == "tool_result")


def _is_blank(block: ClaudeBlock) -> bool:
    text = block.fields.get("text")
    return isinstance(text, str) and text != "" and not text.strip()


_TYPES: Final = "types of the SDK anthropic 2.14"

RULES: Final = (
    Rule(
        "anthropic/known-blocks",
        "anthropic",
        "A content block has a type that the API takes, and so has a block in a tool_result.",
        f"{_TYPES}: ContentBlockParam, ToolResultBlockParam",
        _check_known,
    ),
    Rule(
        "anthropic/no-extra-fields",
        "anthropic",
        "Messages and blocks have no fields but those of the API; what an SDK adds to an "
        "answer (`parsed_output`, `id`) is refused.",
        "error: Extra inputs are not permitted",
        _check_fields,
    ),
    Rule(
        "anthropic/required-fields",
        "anthropic",
        "A block has every field that its type needs.",
        "error: Field required",
        _check_required,
    ),
    Rule(
        "anthropic/no-null-fields",
        "anthropic",
        "A field is null only where its type allows it.",
        f"{_TYPES}: Optional fields",
        _check_nulls,
    ),
    Rule(
        "anthropic/inputs-are-objects",
        "anthropic",
        "The input of a call is a JSON object, not its text.",
        "error: tool_use.input: Input should be a valid dictionary",
        _check_inputs,
    ),
    Rule(
        "anthropic/block-in-its-role",
        "anthropic",
        "Results, images and documents are a user's; calls, thinking and server tools are the "
        "assistant's.",
        "error: `tool_result` blocks can only be in `user` messages",
        _check_roles,
    ),
    Rule(
        "anthropic/text-not-empty",
        "anthropic",
        "A text block is not empty, although the API itself answers empty ones.",
        "error: text content blocks must be non-empty",
        _check_text,
    ),
    Rule(
        "anthropic/text-not-blank",
        "anthropic",
        "A text block has more than white space.",
        "error: text content blocks must contain non-whitespace text",
        _check_blank_text,
    ),
    Rule(
        "anthropic/result-text-not-empty",
        "anthropic",
        "A text block in a tool_result is not empty and not blank.",
        "error: text content blocks must be non-empty",
        _check_result_text,
    ),
)
