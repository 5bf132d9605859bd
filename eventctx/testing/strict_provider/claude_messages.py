"""Rules of Anthropic's Messages API for the order of messages, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventctx.testing.strict_provider.claude_request import THINKING, ClaudeRequest
from eventctx.testing.strict_provider.rule import Found, Rule


def _check_some(request: ClaudeRequest) -> Iterator[Found]:
    if not request.rows:
        yield "messages", "messages: at least one message is required"


def _check_roles(request: ClaudeRequest) -> Iterator[Found]:
    for row in request.rows:
        if row.role not in ("user", "assistant", "system"):
            yield (
                f"messages.{row.number}.role",
                f'messages: Unexpected role "{row.role}". Allowed roles are "user" or "assistant".',
            )


def _check_system_model(request: ClaudeRequest) -> Iterator[Found]:
    for row in request.rows:
        if row.role == "system" and not request.model.takes_system_messages:
            yield f"messages.{row.number}.role", "role 'system' is not supported on this model"


def _check_system_place(request: ClaudeRequest) -> Iterator[Found]:
    before = ""
    for row in request.rows:
        path = f"messages.{row.number}"
        if row.role != "system":
            before = row.role
        elif not before:
            yield (
                path,
                f"{path}: use the top-level 'system' parameter for the initial system prompt",
            )
        elif before == "assistant":
            yield path, f"{path}: role 'system' must come directly after a 'user' message"


def _check_first(request: ClaudeRequest) -> Iterator[Found]:
    first = request.turns[0] if request.turns else None
    # An answer that is a compaction replaces messages from the first on.
    if first is not None and first.role != "user" and not first.of_type("compaction"):
        yield (
            f"messages.{first.number}",
            'messages: first message must use the "user" role',
        )


def _check_content(request: ClaudeRequest) -> Iterator[Found]:
    for row in request.rows:
        last = row is request.rows[-1] and row.role == "assistant"
        changes_settings = row.role == "system" and row.fields.get("output_config")
        if not row.content and not last and not changes_settings:
            yield (
                f"messages.{row.number}.content",
                (
                    f"messages.{row.number}: all messages must have non-empty content except for "
                    "the optional final assistant message"
                ),
            )


def _check_last_block(request: ClaudeRequest) -> Iterator[Found]:
    for turn in request.turns:
        if turn.role == "assistant" and turn.blocks and turn.blocks[-1].type in THINKING:
            last = turn.blocks[-1]
            yield (
                last.path,
                (
                    f"messages.{turn.number}: The final block in an assistant message cannot be "
                    f"`{last.type}`."
                ),
            )


def _check_prefill(request: ClaudeRequest) -> Iterator[Found]:
    last = request.turns[-1] if request.turns else None
    if last is None or last.role != "assistant" or request.model.takes_prefill:
        return
    if request.body.get("compaction"):
        return  # nothing is sampled after the summary
    # An answer that ended in pause_turn is sent back as it is.
    if not any(block.type == "server_tool_use" or block.is_server_result for block in last.blocks):
        yield (
            f"messages.{last.number}",
            (
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message."
            ),
        )


def _check_prefill_space(request: ClaudeRequest) -> Iterator[Found]:
    last = request.turns[-1] if request.turns else None
    if last is None or last.role != "assistant" or not last.blocks:
        return
    if request.body.get("compaction"):
        return
    text = last.blocks[-1].fields.get("text")
    if isinstance(text, str) and text.strip() and text != text.rstrip():
        yield (
            last.blocks[-1].path,
            "messages: final assistant content cannot end with trailing whitespace",
        )


RULES: Final = (
    Rule(
        "anthropic/some-message",
        "anthropic",
        "A request has a message.",
        "error: at least one message is required",
        _check_some,
    ),
    Rule(
        "anthropic/known-roles",
        "anthropic",
        "A message is a user's or the assistant's, or a system message within the conversation.",
        "error: Unexpected role",
        _check_roles,
    ),
    Rule(
        "anthropic/system-by-model",
        "anthropic",
        "A system message within the conversation needs a model that takes it: Opus 4.8, and "
        "later ones but Sonnet 5.",
        "Mid-conversation system messages; error: role 'system' is not supported on this model",
        _check_system_model,
    ),
    Rule(
        "anthropic/system-after-user",
        "anthropic",
        "A system message within the conversation is directly after a user's, never the first.",
        "Mid-conversation system messages; error: use the top-level 'system' parameter",
        _check_system_place,
    ),
    Rule(
        "anthropic/first-is-user",
        "anthropic",
        "The first message is a user's, or the answer with a compaction.",
        'error: first message must use the "user" role',
        _check_first,
    ),
    Rule(
        "anthropic/content-not-empty",
        "anthropic",
        "A message has content, but for an assistant's at the end.",
        "error: all messages must have non-empty content",
        _check_content,
    ),
    Rule(
        "anthropic/last-block-not-thinking",
        "anthropic",
        "The last block of an assistant message, merged with its neighbours, is not thinking.",
        "error: The final block in an assistant message cannot be `thinking`",
        _check_last_block,
    ),
    Rule(
        "anthropic/no-prefill",
        "anthropic",
        "From Claude 4.6 on, a request ends with a user's message, or with the answer of a "
        "server tool that paused, unless it asks for a compaction.",
        "What's new in Claude 4.6; error: does not support assistant message prefill",
        _check_prefill,
    ),
    Rule(
        "anthropic/prefill-without-space",
        "anthropic",
        "An assistant's text at the end of a request does not end in white space.",
        "error: final assistant content cannot end with trailing whitespace",
        _check_prefill_space,
    ),
)
