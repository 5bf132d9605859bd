"""Compactions of other libraries' contexts, which tell of them in words of their own.

On the real kernel: the contexts emit on its registry, and the host's hooks listen there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from eventctx.testing import EventRecorder, MockContextManager, ScriptedAmplifierProvider
from tests.amplifier.hosts import session

PRE, POST = "context:pre_compact", "context:post_compact"
WHOLE = "context:compaction"
BEGAN, ENDED = "context:compaction_started", "context:compaction_finished"
ALL = (PRE, POST, WHOLE, "context:compact", BEGAN, ENDED, "provider:request", "prompt:submit")

FROM_SIMPLE = {
    "before_tokens": 900,
    "after_tokens": 400,
    "before_messages": 20,
    "after_messages": 8,
    "strategy_level": 3,
    "budget": 1_000,
}

Told = Sequence[tuple[str, Mapping[str, Any]]]


class Compacting(MockContextManager):
    """Emits events on the host's registry with every request, and may fail behind them."""

    def __init__(self, told: Told, error: Exception | None = None) -> None:
        super().__init__()
        self.hooks: Any = None
        self._told = told
        self._error = error

    async def get_messages_for_request(self, *args: Any, **named: Any) -> list[dict[str, Any]]:
        for event, data in self._told:
            await self.hooks.emit(event, dict(data))
        if self._error is not None:
            raise self._error
        return await super().get_messages_for_request(*args, **named)


async def heard(
    *told: tuple[str, Mapping[str, Any]],
    loop: str = "loop-eventctx-events",
    error: Exception | None = None,
) -> list[tuple[str, dict[str, Any]]]:
    """What the host's hooks hear in a turn of one request under such a context."""
    recorder, context = EventRecorder(), Compacting(told, error)

    async def mount(coordinator: Any, config: Any) -> None:
        context.hooks = coordinator.hooks
        await coordinator.mount("context", context)

    async with session(
        ScriptedAmplifierProvider("Done."),
        loop=loop,
        context="context-foreign",
        hooks=dict.fromkeys(ALL, recorder),
        modules={"context-foreign": mount},
    ) as host:
        if error is None:
            assert await host.execute("go") == "Done."
        else:
            with pytest.raises(type(error)):
                await host.execute("go")
    return list(recorder.events)


def specified(events: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    return [event for event, _ in events if event in (PRE, POST)]


def one(events: Sequence[tuple[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    ((_, data),) = [pair for pair in events if pair[0] == name]
    return data


@pytest.mark.parametrize("kind", ["basic", "streaming", "events"])
async def test_a_compaction_reaches_the_host_under_the_specified_names(kind: str) -> None:
    events = await heard((WHOLE, FROM_SIMPLE), loop=f"loop-eventctx-{kind}")
    assert specified(events) == [PRE, POST]
    before, after = one(events, PRE), one(events, POST)
    assert before["token_count"] == before["before_tokens"] == before["tokens_before"] == 900
    assert before["message_count"] == before["before_messages"] == before["messages_before"] == 20
    assert after["token_count"] == after["after_tokens"] == after["tokens_after"] == 400
    assert after["message_count"] == after["after_messages"] == after["messages_after"] == 8
    assert after["removed_tokens"] == after["tokens_removed"] == 500
    assert after["removed_messages"] == after["messages_removed"] == 12
    assert (after["strategy"], after["budget"], after["outcome"]) == ("level 3", 1_000, "applied")


async def test_a_compaction_is_a_span_of_its_own_in_the_turn_that_asked_for_it() -> None:
    events = await heard((WHOLE, FROM_SIMPLE), (WHOLE, {**FROM_SIMPLE, "after_tokens": 300}))
    turn = one(events, "prompt:submit")
    told = [data for event, data in events if event in (PRE, POST)]
    assert {data["session_id"] for data in told} == {"session-1"}
    assert {data["turn_id"] for data in told} == {turn["turn_id"]}
    assert {data["parent_span_id"] for data in told} == {turn["span_id"]}
    assert {data["iteration"] for data in told} == {1}
    first, same, second, again = [data["span_id"] for data in told]
    assert first == same != second == again


async def test_a_beginning_is_told_at_once_where_the_context_tells_of_it() -> None:
    began = {"semantic_input_tokens": 900, "revision": 3}
    ended = {
        "outcome": "fallback",
        "input_tokens_before": 910,
        "input_tokens_after": 400,
        "elapsed_ms": 12,
        "method": "semantic",
    }
    events = await heard((BEGAN, began), (ENDED, ended))
    names = [event for event, _ in events]
    assert names.index(PRE) < names.index(ENDED) < names.index(POST)
    before, after = one(events, PRE), one(events, POST)
    assert "told_after" not in before
    assert (before["token_count"], after["before_tokens"], after["after_tokens"]) == (900, 910, 400)
    assert (after["outcome"], after["duration_ms"], after["strategy"]) == (
        "fallback",
        12,
        "semantic",
    )
    assert before["span_id"] == after["span_id"]


async def test_a_compaction_whose_end_is_not_told_ends_with_the_turn() -> None:
    events = await heard((BEGAN, {}), error=RuntimeError("the summary failed"))
    assert specified(events) == [PRE, POST]
    assert one(events, POST)["outcome"] == "unknown"


async def test_a_context_that_emits_the_two_itself_is_left_to_it() -> None:
    own = {"message_count": 20, "token_count": 900}
    events = await heard((PRE, own), (WHOLE, FROM_SIMPLE), (POST, own))
    assert specified(events) == [PRE, POST]
    assert "turn_id" not in one(events, PRE)


async def test_nothing_is_told_where_nothing_was_compacted() -> None:
    same = {**FROM_SIMPLE, "after_tokens": 900, "after_messages": 20}
    assert specified(await heard((WHOLE, same))) == []
    assert specified(await heard()) == []


async def test_compactions_of_other_sessions_are_theirs() -> None:
    assert specified(await heard((WHOLE, {**FROM_SIMPLE, "session_id": "a child"}))) == []


async def test_a_beginning_that_is_told_late_says_so() -> None:
    assert one(await heard((WHOLE, FROM_SIMPLE)), PRE)["told_after"] is True


async def test_counts_that_nobody_told_are_left_out() -> None:
    after = one(await heard((BEGAN, {}), (ENDED, {"outcome": "completed"})), POST)
    assert not [name for name in after if "tokens" in name or "messages" in name]


async def test_a_compaction_under_two_names_is_told_once() -> None:
    assert specified(await heard((WHOLE, FROM_SIMPLE), ("context:compact", FROM_SIMPLE))) == [
        PRE,
        POST,
    ]
