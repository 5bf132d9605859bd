"""The tables of fields are those of the SDKs' types: what an SDK can send, and what it received."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from anthropic.types.beta.beta_content_block_param import BetaContentBlockParam
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from eventctx.testing.strict_provider import claude_blocks, openai_chat, response_items
from tests.messages.response_item_types import members

BLOCKS = [kind for kind in members(BetaContentBlockParam) if not hasattr(kind, "model_fields")]


def fields_of(kind: Any) -> set[str]:
    """Names of a TypedDict's fields, or of a model's as they are sent."""
    if hasattr(kind, "model_fields"):
        return {field.alias or name for name, field in kind.model_fields.items()}
    return set(kind.__annotations__)


def type_of(kind: Any) -> str:
    """The value of ``type`` by which a union tells its members."""
    if hasattr(kind, "model_fields"):
        return str(typing.get_args(kind.model_fields["type"].annotation)[0])
    hint = str(kind.__annotations__["type"])
    return hint.partition("Literal[")[2].partition("]")[0].strip("\"'")


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.__name__)
def test_a_block_of_claude_takes_the_fields_of_its_type(kind):
    form = claude_blocks.FORMS[type_of(kind)]
    assert form.required | form.optional | {"type"} == fields_of(kind)


def test_every_block_that_is_taken_is_one_of_the_sdk():
    assert {type_of(kind) for kind in BLOCKS} == set(claude_blocks.FORMS)


def test_an_item_of_the_responses_api_may_have_what_can_be_sent_and_what_was_answered():
    # created_by alone is the server's: clients take it out before they send an item back.
    for kind in (*members(ResponseInputItemParam), *members(ResponseOutputItem)):
        assert fields_of(kind) - {"type", "created_by"} <= response_items.FIELDS[type_of(kind)], (
            kind
        )


def test_a_message_of_a_chat_may_have_what_can_be_sent_and_what_was_answered():
    for kind in (*members(ChatCompletionMessageParam), ChatCompletionMessage):
        assert fields_of(kind) <= openai_chat.FIELDS, kind
