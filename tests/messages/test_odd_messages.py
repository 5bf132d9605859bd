"""Whatever JSON a host puts into a message, it is stored, counted, compacted and shown."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import call_names
from eventctx.messages.shorten import Limit, shorten
from tests.how_much import some
from tests.policies.given import one_session

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5) | st.floats(-1, 1)
ids = st.sampled_from(["a", "b", "c"])
odd = st.recursive(
    scalars | st.text(min_size=400, max_size=600),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def fields(words: str) -> dict[str, Any]:
    """Of so many names, anything for each."""
    return dict.fromkeys(words.split(), odd)


def named(words: str) -> dict[str, Any]:
    """Of so many names, an id or anything for each."""
    return dict.fromkeys(words.split(), ids | odd)


def one_of(words: str) -> Any:
    return st.sampled_from(words.split())


def some_of(*optional: dict[str, Any], **always: Any) -> Any:
    given = {name: value for one in optional for name, value in one.items()}
    return st.fixed_dictionaries(always, optional=given)


types = one_of(
    "text tool_use tool_call tool_result thinking redacted_thinking image image_url input_text "
    "mystery reasoning"
)
block = some_of(
    {"type": types | odd},
    named("id tool_use_id tool_call_id"),
    fields("text name input content output thinking signature data source image_url"),
)
function = {"function": odd | some_of(fields("name arguments"))}
call = some_of(named("id"), fields("type tool arguments"), function)
message = some_of(
    {"content": st.lists(block | odd, max_size=4) | odd},
    {"tool_calls": st.lists(call | odd, max_size=3) | odd, "function_call": call | odd},
    {"tool_call_ids": st.lists(ids | odd, max_size=3) | odd},
    named("tool_call_id"),
    fields("tool_name name type metadata reasoning_content summary"),
    role=one_of("user assistant tool function system developer model exit"),
)
chunk = some_of(fields("stdout stderr outcome"))
item = some_of(
    named("call_id id approval_request_id"),
    fields("name arguments input actions tools result encrypted_content"),
    {"action": odd | some_of(fields("commands command"))},
    {"operation": odd | some_of(fields("diff path"))},
    {"output": st.lists(block | odd | chunk, max_size=2) | odd},
    {"summary": st.lists(block | odd, max_size=2) | odd},
    type=one_of(
        "function_call function_call_output custom_tool_call custom_tool_call_output reasoning "
        "compaction compaction_trigger web_search_call mystery mystery_call mystery_call_output "
        "shell_call shell_call_output local_shell_call local_shell_call_output apply_patch_call "
        "apply_patch_call_output computer_call computer_call_output tool_search_call program "
        "tool_search_output mcp_approval_request mcp_approval_response mcp_call mcp_list_tools "
        "item_reference image_generation_call configuration_update"
    ),
)
anything = message | item
thorough = settings(
    max_examples=some(15, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@thorough
@given(row=anything)
def test_any_row_can_be_read_and_shortened(row: dict[str, Any]) -> None:
    facts = read_facts(row)
    assert all(isinstance(call_id, str) for call_id in (*facts.calls, *facts.results))
    call_names(row)
    copy = shorten(decode_body(encode_message(row)), 3, Limit(50, 50))
    again = read_facts(copy)
    assert (again.kind, again.calls, again.results) == (facts.kind, facts.calls, facts.results)


OPTIONS: dict[str, Any] = {"policy": "simple", "keep_recent": 2, "on_overflow": "send_floor"}


@settings(thorough, max_examples=some(8, 300))
@given(rows=st.lists(anything, min_size=1, max_size=8), budget=st.sampled_from([150, 600, 5_000]))
async def test_any_session_can_be_held_compacted_and_read_back(
    rows: list[dict[str, Any]], budget: int
) -> None:
    async with one_session(max_tokens=budget, **OPTIONS) as (engine, ctx):
        for row in rows:
            await ctx.add_message(row)
            await ctx.get_messages_for_request()
        assert await ctx.get_messages() == rows
        for one in (await engine.audit("s")).requests:
            assert (await engine.request_view("s", position=one.position)).verified
            assert one.tokens <= budget or one.floor_sent
