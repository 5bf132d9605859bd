"""Whatever a log holds, the view that is sent is one that its provider accepts (rule 8)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eventctx
from eventctx.testing.strict_provider import violations
from tests.how_much import some
from tests.view.sdk_messages import claude_rows

examples = settings(
    max_examples=some(60, 2_000), deadline=None, suppress_health_check=list(HealthCheck)
)
POLICIES = ("workset", "simple", "ladder", "truncate", "token-budget")

LEFT_TO_THE_CALLER = {
    "anthropic/no-prefill",  # a request that ends with an answer asks for more of it
    "anthropic/prefill-without-space",
}


def broken(rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []  # nothing was said yet but a result of no call
    request = {"messages": rows}
    return [one for one in violations("anthropic", request) if one.rule not in LEFT_TO_THE_CALLER]


@pytest.mark.parametrize("policy", POLICIES)
@examples
@given(rows=claude_rows(), budget=st.sampled_from([600, 3_000, 50_000]), data=st.data())
def test_a_view_of_any_blocks_is_accepted_under_every_policy(
    policy: str, rows: list[dict[str, Any]], budget: int, data: st.DataObject
) -> None:
    asked = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    resumed = data.draw(st.integers(0, len(rows) - 1))

    async def play() -> None:
        async with eventctx.open() as engine:
            options = {"policy": policy, "max_tokens": budget, "on_overflow": "send_floor"}
            ctx = await engine.session("s", **options)
            for number, row in enumerate(rows):
                receipt = await ctx.add_message(row)
                if number == resumed:
                    await engine.fork("s", receipt.position, "forked")
                    ctx = await engine.session("forked", **options)
                if number in asked or number == len(rows) - 1:
                    view = await ctx.get_messages_for_request()
                    found = broken(view)
                    assert not found, f"{found}\n{json.dumps(view, indent=1)}"

    asyncio.run(play())
