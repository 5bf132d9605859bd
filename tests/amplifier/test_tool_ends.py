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
    Held,
    find_real_module,
    held,
    side_by_side,
)
from tests.amplifier.given import events, records_of, unended

LOOPS = ["basic", "streaming", "loop-basic", "loop-streaming", "loop-events"]

Ends = dict[str | None, tuple[str, str | None]]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param.startswith("loop-"):
        find_real_module(request.param, monkeypatch)
    return str(request.param)


async def ends_of(conversation: Conversation, loop: str, path: Path) -> Ends:
    """Status and message of each call, by call id, as the log says after the conversation."""
    await held(conversation, loop=loop, config={"store": str(path)})
    records = await records_of(path)
    assert unended(records) == []
    ends: Ends = {one.call_id: ("ok", None) for one in events(records, "tool:post")}
    failed = events(records, "tool:error")
    return ends | {one.call_id: (one.status, one.message) for one in failed}


@pytest.mark.parametrize("name", ["a text as output", "a dict as output", "no output"])
async def test_a_tool_that_returned_has_returned(name: str, loop: str, path: Path) -> None:
    assert await ends_of(CONVERSATIONS[name], loop, path) == {"call_1": ("ok", None)}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failed with an error", "gone"),
        ("failed with both", "died"),
        ("raised", "went wrong"),
        ("failed", "the tool gave no reason"),
    ],
)
async def test_a_tool_that_says_it_failed_has_failed(
    name: str, message: str, loop: str, path: Path
) -> None:
    assert await ends_of(CONVERSATIONS[name], loop, path) == {"call_1": ("error", message)}


@pytest.mark.parametrize(
    "name", ["side by side, the second raises", "side by side, the second raises last"]
)
async def test_of_two_calls_the_one_has_failed_that_did(name: str, loop: str, path: Path) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    ends = await ends_of(CONVERSATIONS[name], loop, path)
    assert ends == {"call_1": ("ok", None), "call_2": ("error", "went wrong")}


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
    changed = Conversation(conversation.script, does)
    seen = await held(changed, loop=loop, config={"store": str(path)})
    records = await records_of(path)
    failed = {one.call_id for one in events(records, "tool:error")}
    returned = {one.call_id for one in events(records, "tool:post")}
    results = {row["tool_call_id"]: row["content"] for row in seen.rows if row["role"] == "tool"}
    assert failed == {call for call, text in results.items() if "went wrong" in text}
    assert returned == set(results) - failed
    assert len(failed) == len(returned) == 1


async def test_a_call_that_a_hook_denied_has_failed(loop: str, path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["denied"], loop, path)
    denied = "not allowed" if loop == "loop-events" else "Denied by hook: not allowed"
    assert ends == {"call_1": ("error", denied)}


async def test_a_tool_that_is_not_there_has_failed(loop: str, path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["an unknown tool"], loop, path)
    ((status, message),) = ends.values()
    assert status == "error"
    assert "not found" in str(message)


async def test_a_call_that_was_broken_off_was_cancelled(loop: str, path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["killed"], loop, path)
    assert ends == {"call_1": ("cancelled", "the host did not say how it ended")}


# -- the doubles against the real loops ------------------------------------------------------------


TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:\+00:00|Z)")


@pytest.fixture(params=["basic", "streaming"])
def real_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a double whose real real_loop can be loaded."""
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
    double: Held = await held(CONVERSATIONS[name], real_loop=real_loop)
    real: Held = await held(CONVERSATIONS[name], real_loop=f"loop-{real_loop}")
    assert double.result == real.result
    assert [event for event, _ in double.events] == [event for event, _ in real.events]
    for mine, theirs in zip(double.events, real.events, strict=True):
        assert mine == theirs
    assert without_times(double.rows) == without_times(real.rows)
    assert without_times(double.requests) == without_times(real.requests)


async def test_of_two_failures_each_call_has_its_own(loop: str, path: Path) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    ends = await ends_of(CONVERSATIONS["side by side, both raise"], loop, path)
    assert ends == {"call_1": ("error", "first"), "call_2": ("error", "second")}
