"""Our doubles of Amplifier's loops against the real ones, conversation by conversation.

The real loops are in no package index. ``find_real_module`` says where they are looked for; without
them the comparisons skip.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.amplifier.conversations import CONVERSATIONS, Held, find_real_module, held

TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)")


@pytest.fixture(params=["basic", "streaming"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a double whose real loop can be loaded."""
    find_real_module(f"loop-{request.param}", monkeypatch)
    return str(request.param)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(one) for key, one in value.items()}
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return TIME.sub("a time", value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_double_emits_stores_and_sends_what_the_real_loop_does(
    name: str, loop: str
) -> None:
    double: Held = await held(CONVERSATIONS[name], loop=loop)
    real: Held = await held(CONVERSATIONS[name], loop=f"loop-{loop}")
    assert double.result == real.result
    assert [event for event, _ in double.events] == [event for event, _ in real.events]
    for mine, theirs in zip(double.events, real.events, strict=True):
        assert mine == theirs
    assert without_times(double.rows) == without_times(real.rows)
    assert without_times(double.requests) == without_times(real.requests)
