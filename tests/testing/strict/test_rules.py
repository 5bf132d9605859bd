"""Every published rule of an API: what breaks it is refused, and nothing else; the SDKs' fields."""

from __future__ import annotations

import copy
import typing
from typing import Any

import pytest
from anthropic.types.beta.beta_content_block_param import BetaContentBlockParam
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.responses import ResponseOutputItem
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from eventctx.errors import InvalidSetting
from eventctx.testing.strict_provider import (
    RULES,
    claude_blocks,
    openai_chat,
    response_items,
    violations,
)
from tests.how_much import some
from tests.messages.response_item_types import members
from tests.testing.strict.claude_cases import CLAUDE
from tests.testing.strict.cloud_cases import BEDROCK, GEMINI
from tests.testing.strict.openai_cases import CHAT, RESPONSES

TABLES = {
    "anthropic": CLAUDE,
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
}
CASES = {f"{api}/{name}": case for api, cases in TABLES.items() for name, case in cases.items()}


def test_every_rule_has_its_two_requests_and_one_name() -> None:
    assert sorted(rule.name for rule in RULES) == sorted(CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_alone_refuses_what_breaks_it_and_accepts_its_neighbour(rule):
    accepted, refused, words = CASES[rule.name]
    assert violations(rule.api, accepted) == ()
    broken = violations(rule.api, refused)
    assert {one.rule for one in broken} == {rule.name}
    assert words in broken[0].message
    assert violations(rule.api, refused, without={rule.name}) == ()


@pytest.mark.parametrize("api", TABLES)
def test_a_body_without_a_form_is_refused_and_breaks_no_check_and_so_is_an_unknown_api(api):
    for body in ({}, {"messages": None}, {"messages": ["x", {"role": "user"}]}, {"input": [1, {}]}):
        assert violations(api, body)
    with pytest.raises(InvalidSetting, match=r"api: expected one of .*'gemini'.*, found 'grok'"):
        violations("grok", {})  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
SMALL = sorted(name for name in CASES if not name.endswith(("/request-size", "/image-bytes")))


@settings(max_examples=some(100, 400), deadline=None)
@given(st.sampled_from(SMALL), JSON, st.data())
def test_no_value_at_any_place_of_a_request_breaks_a_check(name, value, data):
    api, body = name.partition("/")[0], copy.deepcopy(CASES[name][0])
    at: Any = body
    while True:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 3)) == 0:
            break
        at = inner
    at[key] = value
    for one in violations(api, body):
        assert one.message


# -- the tables of fields are those of the SDKs' types: what can be sent, and what was received ---


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


def test_every_block_of_claude_takes_the_fields_of_its_type():
    for kind in BLOCKS:
        form = claude_blocks.FORMS[type_of(kind)]
        assert form.required | form.optional | {"type"} == fields_of(kind), kind
    assert {type_of(kind) for kind in BLOCKS} == set(claude_blocks.FORMS)


def test_an_item_or_a_message_of_openai_may_have_what_can_be_sent_and_what_was_answered():
    # created_by alone is the server's: clients take it out before they send an item back.
    for kind in (*members(ResponseInputItemParam), *members(ResponseOutputItem)):
        fields = fields_of(kind) - {"type", "created_by"}
        assert fields <= response_items.FIELDS[type_of(kind)], kind
    for kind in (*members(ChatCompletionMessageParam), ChatCompletionMessage):
        assert fields_of(kind) <= openai_chat.FIELDS, kind
