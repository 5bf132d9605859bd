"""A request of Amazon Bedrock's Converse API, and the rules for messages and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.claude_request import read_model
from eventctx.testing.strict_provider.rule import Found, Rule

_OF_ASSISTANT: Final = ("toolUse", "reasoningContent")
_MODEL: Final = "The model returned the following errors"


def _check_first(request: BedrockRequest) -> Iterator[Found]:
    if not request.messages or request.messages[0].role != "user":
        yield (
            "messages",
            (
                "A conversation must start with a user message. Try again with a conversation "
                "that starts with a user message."
            ),
        )


def _check_roles(request: BedrockRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.role not in ("user", "assistant"):
            yield (
                f"{message.path}.role",
                (
                    f"Value '{message.role}' at '{message.path}.role' failed to satisfy "
                    "constraint: Member must satisfy enum value set: [user, assistant]"
                ),
            )


def _check_alternate(request: BedrockRequest) -> Iterator[Found]:
    for before, message in zip(request.messages, request.messages[1:], strict=False):
        if before.role == message.role:
            yield (
                message.path,
                (
                    "A conversation must alternate between user and assistant roles. Make sure "
                    "the conversation alternates between user and assistant roles and try again."
                ),
            )


def _check_content(request: BedrockRequest) -> Iterator[Found]:
    for message in request.messages:
        if not message.blocks:
            yield (
                message.path,
                (
                    f"The content field in the Message object at {message.path} is empty. Add a "
                    "ContentBlock object to the content field and try again."
                ),
            )


def _check_union(request: BedrockRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.members != 1:
            yield (
                block.path,
                f"The ContentBlock object at {block.path} must set one of its members.",
            )


def _check_text(request: BedrockRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.name == "text" and not str(block.value).strip():
            yield (
                block.path,
                (
                    f"The text field in the ContentBlock object at {block.path} is blank. Add "
                    "text to the text field, and try again."
                ),
            )


def _check_block_roles(request: BedrockRequest) -> Iterator[Found]:
    for message, block in request.blocks():
        wrong = "user" if block.name in _OF_ASSISTANT else "assistant"
        if block.name in (*_OF_ASSISTANT, "toolResult") and message.role == wrong:
            yield (
                block.path,
                f"{block.path}: {block.name} blocks are not allowed in {wrong} messages.",
            )


def _check_last_block(request: BedrockRequest) -> Iterator[Found]:
    for message in request.messages:
        if message.role == "assistant" and message.blocks:
            last = message.blocks[-1]
            if last.name == "reasoningContent":
                yield (
                    last.path,
                    (
                        f"{_MODEL}: {message.path}: The final "
                        "block in an assistant message cannot be `thinking`."
                    ),
                )


def _check_signed(request: BedrockRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.name != "reasoningContent" or not isinstance(block.value, Mapping):
            continue
        text = block.value.get("reasoningText")
        if isinstance(text, Mapping) and not text.get("signature"):
            yield (
                block.path,
                (f"{_MODEL}: {block.path}.thinking.signature: Field required"),
            )


def _check_prefill(request: BedrockRequest) -> Iterator[Found]:
    last = request.messages[-1] if request.messages else None
    model = read_model(request.body.get("modelId"))
    if last is not None and last.role == "assistant" and not model.takes_prefill:
        yield (
            last.path,
            (
                f"{_MODEL}: This model does not support assistant message prefill. The "
                "conversation must end with a user message."
            ),
        )


def _check_prefill_space(request: BedrockRequest) -> Iterator[Found]:
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or not last.blocks:
        return
    text = last.blocks[-1].value
    if isinstance(text, str) and text.strip() and text != text.rstrip():
        yield (
            last.blocks[-1].path,
            f"{_MODEL}: messages: final assistant content cannot end with trailing whitespace",
        )


RULES: Final = tuple(
    Rule(f"bedrock/{name}", "bedrock", says, source, check)
    for name, says, source, check in (
        (
            "first-is-user",
            "The first message is a user's.",
            "error: A conversation must start with a user message",
            _check_first,
        ),
        (
            "known-roles",
            "A message is a user's or the assistant's.",
            "Converse: Message",
            _check_roles,
        ),
        (
            "roles-alternate",
            "Roles alternate; neighbours of one role are not merged.",
            "error: A conversation must alternate between user and assistant roles",
            _check_alternate,
        ),
        (
            "content-not-empty",
            "A message has content.",
            "error: The content field in the Message object is empty",
            _check_content,
        ),
        (
            "one-member-a-block",
            "A content block is an object with one member.",
            "Converse: ContentBlock is a union",
            _check_union,
        ),
        (
            "text-not-blank",
            "A text block is not empty and not blank; a text in a result may be.",
            "error: The text field in the ContentBlock object is blank",
            _check_text,
        ),
        (
            "block-in-its-role",
            "Calls and reasoning are the assistant's, results are a user's.",
            "Converse: ContentBlock",
            _check_block_roles,
        ),
        (
            "last-block-not-reasoning",
            "The last block of an assistant message is not reasoning.",
            "error: The final block in an assistant message cannot be `thinking`",
            _check_last_block,
        ),
        (
            "reasoning-signed",
            "The text of reasoning has its signature.",
            "Converse: ReasoningTextBlock",
            _check_signed,
        ),
        (
            "no-prefill",
            "A Claude model from 4.6 on takes no assistant message at the end.",
            "error: does not support assistant message prefill",
            _check_prefill,
        ),
        (
            "prefill-without-space",
            "An assistant's text at the end of a request does not end in white space.",
            "error: final assistant content cannot end with trailing whitespace",
            _check_prefill_space,
        ),
    )
)


class BedrockBlock(msgspec.Struct, frozen=True):
    """A content block, which is an object with one member: its name and its value."""

    path: str
    name: str
    value: Any
    members: int

    @property
    def tool_id(self) -> str:
        """The id of a call, or of the call that a result answers."""
        return str(self.value.get("toolUseId")) if isinstance(self.value, Mapping) else ""


class BedrockMessage(msgspec.Struct, frozen=True):
    """A message as it was sent: Converse merges nothing."""

    number: int
    role: str
    blocks: tuple[BedrockBlock, ...]

    @property
    def path(self) -> str:
        """Its place in the request, as errors name it."""
        return f"messages.{self.number}"

    def ids(self, name: str) -> list[str]:
        """The ids in the blocks of this name, in order."""
        return [block.tool_id for block in self.blocks if block.name == name]


class BedrockRequest(msgspec.Struct, frozen=True):
    """A parsed request; the address has the model, and ``modelId`` repeats it for the rules."""

    body: Mapping[str, Any]
    messages: tuple[BedrockMessage, ...]

    def neighbours(self) -> Iterator[tuple[BedrockMessage, BedrockMessage]]:
        """Each assistant message with the one after it, which is empty at the end."""
        for place, message in enumerate(self.messages):
            if message.role == "assistant":
                end = BedrockMessage(message.number + 1, "user", ())
                yield message, (*self.messages[place + 1 : place + 2], end)[0]

    def blocks(self) -> Iterator[tuple[BedrockMessage, BedrockBlock]]:
        """Every block with its message."""
        for message in self.messages:
            for block in message.blocks:
                yield message, block


def read_bedrock_request(body: Mapping[str, Any]) -> BedrockRequest:
    """Parse a request; what is no object is left out."""
    sent = body.get("messages")
    messages = tuple(
        BedrockMessage(number, str(row.get("role")), _blocks(number, row.get("content")))
        for number, row in enumerate(sent if isinstance(sent, list) else ())
        if isinstance(row, Mapping)
    )
    return BedrockRequest(body, messages)


def _blocks(number: int, content: object) -> tuple[BedrockBlock, ...]:
    found = []
    for place, block in enumerate(content if isinstance(content, list) else ()):
        if isinstance(block, Mapping):
            name = next(iter(block), "")
            path = f"messages.{number}.content.{place}"
            found.append(BedrockBlock(path, name, block.get(name), len(block)))
    return tuple(found)
