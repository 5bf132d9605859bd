"""What a host's log says of its tools: how each call ended, whatever its loop tells of it.

Every test runs on the doubles of Amplifier's loops, and on the real ones where they are at hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.amplifier.conversations import (
    CONVERSATIONS,
    Conversation,
    find_real_module,
    held,
    side_by_side,
)
from tests.amplifier.given import events, records_of

LOOPS = ["basic", "streaming", "loop-basic", "loop-streaming", "loop-events"]

Ends = dict[str | None, tuple[str, str | None]]
RETURNED: tuple[str, str | None] = ("ok", None)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param.startswith("loop-"):
        find_real_module(request.param, monkeypatch)
    return str(request.param)


async def ends_in(path: Path) -> Ends:
    """Status and message of each call, by call id, as the log says after a conversation."""
    records = await records_of(path)
    ends: Ends = {one.call_id: RETURNED for one in events(records, "tool:post")}
    failed = events(records, "tool:error")
    return ends | {one.call_id: (one.status, one.message) for one in failed}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("a text as output", RETURNED, None),
        ("a dict as output", RETURNED, None),
        ("no output", RETURNED, None),
        ("failed with an error", ("error", "gone"), None),
        ("failed with both", ("error", "died"), None),
        ("raised", ("error", "went wrong"), None),
        ("failed", ("error", "the tool gave no reason"), None),
        ("denied", ("error", "Denied by hook: not allowed"), None),
        ("killed", ("cancelled", "the host did not say how it ended"), None),
        ("side by side, the second raises", RETURNED, ("error", "went wrong")),
        ("side by side, the second raises last", RETURNED, ("error", "went wrong")),
        ("side by side, both raise", ("error", "first"), ("error", "second")),
    ],
)
async def test_each_call_ended_as_its_tool_did(
    name: str, first: Any, second: Any, loop: str, path: Path
) -> None:
    if loop == "loop-events":
        if second:
            pytest.skip("loop-events runs one tool after the other")
        first = (first[0], first[1] and first[1].removeprefix("Denied by hook: "))
    await held(CONVERSATIONS[name], loop=loop, store=path)
    expected = {"call_1": first} | ({"call_2": second} if second else {})
    assert await ends_in(path) == expected


async def test_a_tool_that_is_not_there_has_failed(loop: str, path: Path) -> None:
    await held(CONVERSATIONS["an unknown tool"], loop=loop, store=path)
    ((status, message),) = (await ends_in(path)).values()
    assert status == "error" and "not found" in str(message)


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_of_identical_calls_the_one_has_failed_that_did(
    order: str, loop: str, path: Path
) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    turns = iter(order)

    def does(given: dict[str, Any]) -> Any:
        # Calls of equal arguments: the first to come returns, the second raises.
        if next(turns) == "a":
            return conversation.does({"path": "a"})
        raise ValueError("went wrong")

    conversation = side_by_side({"path": "a"}, {"path": "a"})
    seen = await held(Conversation(conversation.script, does), loop=loop, store=path)
    ends = {call: status for call, (status, _) in (await ends_in(path)).items()}
    results = {row["tool_call_id"]: row["content"] for row in seen.rows if row["role"] == "tool"}
    assert ends == {
        call: "error" if "went wrong" in text else "ok" for call, text in results.items()
    }
    assert sorted(ends.values()) == ["error", "ok"]


# -- the doubles against the real loops ------------------------------------------------------------


TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)")


@pytest.fixture(params=["basic", "streaming"])
def real_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
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
    name: str, real_loop: str
) -> None:
    double = await held(CONVERSATIONS[name], loop=real_loop)
    real = await held(CONVERSATIONS[name], loop=f"loop-{real_loop}")
    assert double.result == real.result
    assert [event for event, _ in double.events] == [event for event, _ in real.events]
    for mine, theirs in zip(double.events, real.events, strict=True):
        assert mine == theirs
    assert without_times(double.rows) == without_times(real.rows)
    assert without_times(double.requests) == without_times(real.requests)
