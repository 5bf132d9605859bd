"""What a host's log says of its tools: how each call ended, whatever its loop tells of it.

Every test runs on the doubles of Amplifier's loops, and on the real ones where they are at hand.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.queries.spans import spans as traced
from eventctx.testing import Reply
from tests.amplifier.conversations import (
    CONVERSATIONS,
    Conversation,
    find_real_module,
    held,
    side_by_side,
)
from tests.amplifier.given import events, records_of, spans, unended

BASIC = ("basic", "loop-basic")
LOOPS = ["basic", "streaming", "loop-basic", "loop-streaming", "loop-events"]

Ends = dict[str | None, tuple[str, str | None]]


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param.startswith("loop-"):
        find_real_module(request.param, monkeypatch)
    return str(request.param)


async def ends_of(conversation: Conversation, loop: str, tmp_path: Path) -> Ends:
    """Status and message of each call, by call id, as the log says after the conversation."""
    path = tmp_path / "contexts.db"
    await held(conversation, loop=loop, config={"store": str(path)})
    records = await records_of(path)
    assert unended(records) == []
    ends: Ends = {one.call_id: ("ok", None) for one in events(records, "tool:post")}
    failed = events(records, "tool:error")
    return ends | {one.call_id: (one.status, one.message) for one in failed}


@pytest.mark.parametrize("name", ["a text as output", "a dict as output", "no output"])
async def test_a_tool_that_returned_has_returned(name: str, loop: str, tmp_path: Path) -> None:
    assert await ends_of(CONVERSATIONS[name], loop, tmp_path) == {"call_1": ("ok", None)}


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
    name: str, message: str, loop: str, tmp_path: Path
) -> None:
    assert await ends_of(CONVERSATIONS[name], loop, tmp_path) == {"call_1": ("error", message)}


@pytest.mark.parametrize(
    "name", ["failed with an output", "failed with an error of its own form", "returned a dict"]
)
async def test_a_failure_in_a_form_of_its_own_is_one(name: str, loop: str, tmp_path: Path) -> None:
    ends = await ends_of(CONVERSATIONS[name], loop, tmp_path)
    assert [status for status, _ in ends.values()] == ["error"]


async def test_the_trace_says_that_a_tool_failed(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    conversation = CONVERSATIONS["failed with an error"]
    await held(conversation, loop=loop, config={"store": str(path)})
    records = await records_of(path)
    (began,) = spans(records, "tool:pre")
    async with eventctx.open(path) as engine:
        found = {one.span_id: one async for one in traced(engine.store, "session-1")}
    assert found[str(began.span_id)].status == "error"


@pytest.mark.parametrize("name", ["failed with an error", "raised"])
async def test_lost_says_that_a_command_failed(name: str, loop: str, tmp_path: Path) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events stores the output of a failed tool and not that it failed")
    calling = Reply(calls=[("bash", {"command": "make all"})])
    conversation = Conversation((calling, "Done."), CONVERSATIONS[name].does, tool="bash")
    path = tmp_path / "contexts.db"
    config = {"store": str(path)}
    await held(conversation, loop=loop, config=config)
    async with eventctx.open(path) as engine:
        await (await engine.session("session-1")).clear()
        (item,) = [one for one in (await engine.lost("session-1")).items if one.command]
    assert item.command is not None
    assert item.command.failed


@pytest.mark.parametrize(
    "name", ["side by side, the second raises", "side by side, the second raises last"]
)
async def test_of_two_calls_the_one_has_failed_that_did(
    name: str, loop: str, tmp_path: Path
) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    ends = await ends_of(CONVERSATIONS[name], loop, tmp_path)
    assert ends == {"call_1": ("ok", None), "call_2": ("error", "went wrong")}


async def test_of_two_failures_each_call_has_its_own(loop: str, tmp_path: Path) -> None:
    if loop == "loop-events":
        pytest.skip("loop-events runs one tool after the other")
    ends = await ends_of(CONVERSATIONS["side by side, both raise"], loop, tmp_path)
    assert ends == {"call_1": ("error", "first"), "call_2": ("error", "second")}


@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_of_identical_calls_the_one_has_failed_that_did(
    order: str, loop: str, tmp_path: Path
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
    path = tmp_path / "contexts.db"
    seen = await held(changed, loop=loop, config={"store": str(path)})
    records = await records_of(path)
    failed = {one.call_id for one in events(records, "tool:error")}
    returned = {one.call_id for one in events(records, "tool:post")}
    results = {row["tool_call_id"]: row["content"] for row in seen.rows if row["role"] == "tool"}
    assert failed == {call for call, text in results.items() if "went wrong" in text}
    assert returned == set(results) - failed
    assert len(failed) == len(returned) == 1


async def test_a_tool_that_changes_its_arguments_has_ended_all_the_same(
    loop: str, tmp_path: Path
) -> None:
    conversation = CONVERSATIONS["a text as output"]

    def does(given: dict[str, Any]) -> Any:
        result = conversation.does(copy.deepcopy(given))
        given.clear()
        return result

    ends = await ends_of(Conversation(conversation.script, does), loop, tmp_path)
    assert ends == {"call_1": ("ok", None)}


async def test_a_call_that_a_hook_denied_has_failed(loop: str, tmp_path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["denied"], loop, tmp_path)
    denied = "not allowed" if loop == "loop-events" else "Denied by hook: not allowed"
    assert ends == {"call_1": ("error", denied)}


async def test_a_tool_that_is_not_there_has_failed(loop: str, tmp_path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["an unknown tool"], loop, tmp_path)
    ((status, message),) = ends.values()
    assert status == "error"
    assert "not found" in str(message)


async def test_a_call_that_was_broken_off_was_cancelled(loop: str, tmp_path: Path) -> None:
    ends = await ends_of(CONVERSATIONS["killed"], loop, tmp_path)
    assert ends == {"call_1": ("cancelled", "the host did not say how it ended")}


async def test_what_a_tool_returned_is_no_failure_of_the_loop_behind_it(
    loop: str, tmp_path: Path
) -> None:
    ends = await ends_of(CONVERSATIONS["returned None"], loop, tmp_path)
    assert ends == {"call_1": ("ok", None)}
