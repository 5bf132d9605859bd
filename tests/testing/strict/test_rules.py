"""Every published rule of an API, the SDKs' fields, and what the rules make of conversations."""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
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
from eventctx.testing.strict_provider.claude_request import ClaudeModel, read_model
from eventctx.testing.strict_provider.rule import Api
from eventctx.testing.strict_provider.seals import digest
from tests.how_much import some
from tests.messages.response_item_types import members
from tests.testing.strict.claude_cases import (
    ASKED,
    CLAUDE,
    MANUAL,
    PRESERVED,
    answer,
    call,
    found,
    request,
    result,
    sealed,
    search,
    talk,
    text,
    thinking,
    user,
)
from tests.testing.strict.cloud_cases import BEDROCK, GEMINI
from tests.testing.strict.openai_cases import (
    CHAT,
    RESPONSES,
    function_call,
    made,
    output,
    reasoning,
    responses,
    said,
)

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


# -- whole conversations: recorded ones, and ones with every odd turn ----------------------------


Body = dict[str, Any]

ADAPTIVE: Body = {"model": PRESERVED, "thinking": {"type": "adaptive"}}


def broken(body: Body, api: Api = "anthropic") -> list[str]:
    return [one.rule.partition("/")[2] for one in violations(api, body)]


def recorded_bodies(folder: Path) -> Iterator[tuple[Api, Body]]:
    """Requests that real APIs answered, with their API."""
    for path in sorted((folder / "provider").glob("*.yaml")):
        for one in yaml.safe_load(path.read_text("utf-8"))["interactions"]:
            assert one["response"]["status"]["code"] == 200
            address = one["request"]["uri"]
            api: Api = "openai-chat"
            if "anthropic.com" in address:
                api = "anthropic"
            elif "/responses" in address:
                api = "openai-responses"
            yield api, one["request"]["parsed_body"]
    for path in sorted((folder / "amplifier").rglob("events.jsonl")):
        for line in path.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event.get("event") == "llm:request":
                yield "anthropic", event["data"]["raw"]
    for path in sorted((folder / "codex").glob("rollout-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        sent = [line["payload"] for line in lines if line["type"] == "response_item"]
        # The items that a session sent, one request after the other.
        yield "openai-responses", {"input": sent}


def test_requests_that_real_apis_answered_break_no_rule(recorded_sessions):
    bodies = list(recorded_bodies(recorded_sessions))
    assert {api for api, _ in bodies} == {"anthropic", "openai-chat", "openai-responses"}
    assert len(bodies) > 30
    for api, body in bodies:
        assert violations(api, body) == ()


def test_neighbours_of_one_role_are_one_message_and_a_server_tools_pair_may_span_an_answer():
    split = request(ASKED, answer(text("I read.")), answer(call(1), call(2)))
    split["messages"] += [user(result(1)), user(result(2)), user(text("Go on."))]
    assert broken(split) == []
    assert broken(request(ASKED, answer(thinking()), answer(text("x")), ASKED)) == []
    paused = request(ASKED, answer(text("x"), search()), answer(found(), text("y")), ASKED)
    assert broken(paused) == []
    torn = request(ASKED, answer(search()), ASKED, answer(found(), text("y")), ASKED)
    assert broken(torn) == ["server-calls-answered", "server-results-have-calls"]


def test_code_that_calls_a_tool_of_the_client_waits_for_its_result():
    code = {**search(), "name": "code_execution"}
    done = found(kind="code_execution_tool_result")
    called = call(caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"})
    waiting = request(ASKED, answer(code, called), user(result()))
    assert broken(waiting) == []
    interrupted = request(ASKED, answer(code, called), user(result(), text("Stop.")))
    assert broken(interrupted) == ["server-calls-answered"]
    assert broken(request(*waiting["messages"], answer(done, text("x")), ASKED)) == []


def test_a_call_of_an_mcp_server_is_answered_by_its_own_result():
    called = {"type": "mcp_tool_use", "id": "m1", "name": "a", "server_name": "s", "input": {}}
    answered = {"type": "mcp_tool_result", "tool_use_id": "m1", "content": []}
    assert broken(talk(called, answered, text("x"))) == []
    assert broken(talk(called, text("x"))) == ["server-calls-answered"]
    # An answer that paused may end a request of a model without prefill.
    assert broken(request(ASKED, answer(text("x"), search()), model="claude-opus-5")) == []


@pytest.mark.parametrize("first", [thinking(), {"type": "redacted_thinking", "data": "x"}])
def test_the_answers_of_a_manual_loop_begin_with_thinking_once(first):
    asks = {"model": MANUAL, "thinking": {"type": "enabled", "budget_tokens": 2_000}}
    loop = [answer(first, call(1)), user(result(1)), answer(text("y"), call(2)), user(result(2))]
    assert broken(request(ASKED, *loop, **asks)) == []
    earlier = [ASKED, answer(text("Without."))]
    assert broken(request(*earlier, ASKED, *loop, **asks)) == []
    loop[0] = answer(call(1))
    assert broken(request(ASKED, *loop, **asks)) == ["loop-begins-with-thinking"]
    other = {**asks, "model": "claude-opus-4-8"}
    assert broken(request(ASKED, *loop, **other)) == ["thinking-by-model"]
    assert broken(request(ASKED, *loop, model=MANUAL)) == []


def rounds(change: Callable[[Body], object]) -> Body:
    """Three rounds of tools, each with thinking that was made for what is before it; edited."""
    body = request(dict(ASKED), **copy.deepcopy(ADAPTIVE), system="Be brief.")
    after = ""
    for number in range(3):
        thought = sealed(body, said=f"step {number}", after=after)
        after = digest(thought["signature"])
        body["messages"] += [answer(thought, call(number)), user(result(number))]
    change(body)
    return body


MARKED = {**text("Read x."), "cache_control": {"type": "ephemeral"}}
DROPS = {**ADAPTIVE["thinking"], "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
CHANGES: dict[str, tuple[Callable[[Body], object], int]] = {
    "nothing": (bool, 0),
    "system": (lambda body: body.update(system="Be kind."), 3),
    "tools": (lambda body: body.update(tools=[{"name": "read", "input_schema": {}}]), 3),
    "question": (lambda body: body["messages"][0].update(content="Read y."), 3),
    "a round": (lambda body: body["messages"].__delitem__(slice(1, 3)), 2),
    "a result": (lambda body: body["messages"][4]["content"][0].update(content="cut"), 1),
    "an answer": (lambda body: body["messages"][5]["content"].insert(0, text("new")), 1),
    "a thought between": (lambda body: body["messages"][3]["content"].pop(0), 1),
    "the first thought": (lambda body: body["messages"][1]["content"].pop(0), 0),
    "a text as blocks": (lambda body: body["messages"][0].update(content=[text("Read x.")]), 0),
    "a mark": (lambda body: body["messages"][0].update(content=[MARKED]), 0),
    "a result as blocks": (
        lambda body: body["messages"][2]["content"][0].update(content=[text("text")]),
        0,
    ),
    "system as blocks": (lambda body: body.update(system=[text("Be brief.")]), 0),
    "another question": (lambda body: body["messages"].append(user(text("And y?"))), 0),
    "dropped thinking": (lambda body: body.update(system="Be kind.", thinking=DROPS), 0),
    "another model": (lambda body: body.update(model="claude-fable-5-2", system="x"), 0),
}
"""What is edited in a conversation, and how many thoughts are bound to what was there."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_breaks_the_binding_of_the_thinking_after_it_and_nothing_else_does(name):
    change, count = CHANGES[name]
    assert broken(rounds(change)) == ["thinking-bound"] * count


@pytest.mark.parametrize(
    ("name", "family", "version"),
    [
        ("claude-3-7-sonnet-20250219", "sonnet", (3, 7)),
        ("claude-3-opus-20240229", "opus", (3, 0)),
        ("claude-opus-4-20250514", "opus", (4, 0)),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "sonnet", (4, 5)),
        ("claude-fable-5-2", "fable", (5, 2)),
        ("claude-opus-4.7", "opus", (4, 7)),
        ("gpt-5.4", "", ()),
        (None, "", ()),
    ],
)
def test_a_model_s_name_says_its_family_and_version(name, family, version):
    assert read_model(name) == ClaudeModel(family, version)


def test_hosted_tools_need_no_output_and_every_tool_of_the_client_does():
    def in_responses(*items: Body) -> list[str]:
        return broken(responses(*items), "openai-responses")

    hosted = [
        made("web_search_call", id="ws_1", status="completed", action={"type": "search"}),
        made("code_interpreter_call", id="ci_1", container_id="c", code="1", outputs=[]),
        made("mcp_call", id="mcp_1", name="a", arguments="{}", server_label="s", output="x"),
        made("image_generation_call", id="ig_1", result="x", status="completed"),
        said(),
    ]
    assert in_responses(reasoning(), *hosted) == []
    acts: Body = {"action": {}}
    for kind, fields in (
        *(("computer_call", acts), ("shell_call", acts), ("local_shell_call", acts)),
        ("apply_patch_call", {"operation": {}}),
        ("custom_tool_call", {"name": "a", "input": "x"}),
    ):
        one = made(kind, call_id="c", **fields)
        given = {"status": "completed"} if kind == "apply_patch_call" else {"output": "x"}
        done = made(f"{kind}_output", call_id="c", **given)
        assert in_responses(one) == ["calls-answered"]
        assert in_responses(one, done) == []
        assert in_responses(output(), one, done) == ["outputs-have-calls"]
    # A compaction stands for what is before it.
    summary = made("compaction", id="cmp_1", encrypted_content="gAAA")
    assert in_responses(function_call("gone"), summary, said()) == []
