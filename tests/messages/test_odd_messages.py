"""Whatever JSON a host puts into a message, it is stored, counted, compacted and shown."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import call_names
from eventctx.messages.shorten import Limit, shorten
from eventctx.stores.memory import MemoryStore
from tests.how_much import some

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5) | st.floats(-1, 1)
ids = st.sampled_from(["a", "b", "c"])
types = st.sampled_from(
    (
        *("text", "tool_use", "tool_call", "tool_result", "thinking", "redacted_thinking"),
        *("image", "image_url", "input_text", "mystery", "reasoning"),
    )
)
odd = st.recursive(
    scalars | st.text(min_size=400, max_size=600),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
block = st.fixed_dictionaries(
    {},
    optional={
        "type": types | odd,
        "id": ids | odd,
        "tool_use_id": ids | odd,
        "tool_call_id": ids | odd,
        "text": odd,
        "name": odd,
        "input": odd,
        "content": odd,
        "output": odd,
        "thinking": odd,
        "signature": odd,
        "data": odd,
        "source": odd,
        "image_url": odd,
    },
)
call = st.fixed_dictionaries(
    {},
    optional={
        "id": ids | odd,
        "type": odd,
        "function": odd | st.fixed_dictionaries({}, optional={"name": odd, "arguments": odd}),
        "tool": odd,
        "arguments": odd,
    },
)
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(
            ["user", "assistant", "tool", "function", "system", "developer", "model", "exit"]
        )
    },
    optional={
        "content": st.lists(block | odd, max_size=4) | odd,
        "tool_calls": st.lists(call | odd, max_size=3) | odd,
        "tool_call_id": ids | odd,
        "tool_call_ids": st.lists(ids | odd, max_size=3) | odd,
        "tool_name": odd,
        "function_call": call | odd,
        "name": odd,
        "type": odd,
        "metadata": odd,
        "reasoning_content": odd,
        "summary": odd,
    },
)
chunk = st.fixed_dictionaries({}, optional={"stdout": odd, "stderr": odd, "outcome": odd})
item = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            (
                *("function_call", "function_call_output", "custom_tool_call", "reasoning"),
                *("custom_tool_call_output", "compaction", "web_search_call", "mystery"),
                *("shell_call", "shell_call_output", "apply_patch_call", "computer_call"),
                *("apply_patch_call_output", "computer_call_output", "local_shell_call"),
                *("local_shell_call_output", "tool_search_call", "tool_search_output"),
                *("mcp_approval_request", "mcp_approval_response", "mcp_call", "program"),
                *("item_reference", "mystery_call", "mystery_call_output", "mcp_list_tools"),
                *("image_generation_call", "configuration_update", "compaction_trigger"),
            )
        )
    },
    optional={
        "call_id": ids | odd,
        "id": ids | odd,
        "name": odd,
        "arguments": odd,
        "input": odd,
        "action": odd | st.fixed_dictionaries({}, optional={"commands": odd, "command": odd}),
        "actions": odd,
        "operation": odd | st.fixed_dictionaries({}, optional={"diff": odd, "path": odd}),
        "approval_request_id": ids | odd,
        "tools": odd,
        "result": odd,
        "output": st.lists(block | odd | chunk, max_size=2) | odd,
        "summary": st.lists(block | odd, max_size=2) | odd,
        "encrypted_content": odd,
    },
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


@settings(thorough, max_examples=some(8, 300))
@given(rows=st.lists(anything, min_size=1, max_size=8), budget=st.sampled_from([150, 600, 5_000]))
def test_any_session_can_be_held_compacted_and_read_back(
    rows: list[dict[str, Any]], budget: int
) -> None:
    async def play() -> None:
        engine = Engine(MemoryStore())
        ctx = await engine.session(
            "s", policy="simple", max_tokens=budget, keep_recent=2, on_overflow="send_floor"
        )
        for row in rows:
            await ctx.add_message(row)
            await ctx.get_messages_for_request()
        assert await ctx.get_messages() == rows
        for one in (await engine.audit("s")).requests:
            assert (await engine.request_view("s", position=one.position)).verified
            assert one.tokens <= budget or one.floor_sent

    asyncio.run(play())
