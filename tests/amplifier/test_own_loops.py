"""Our orchestrators and our context module together on the real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.testing import EventRecorder, Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.given import events, records_of, spans, types, unended
from tests.amplifier.hosts import hook_result, session

NAMES = [
    *("prompt:submit", "prompt:complete", "provider:request", "provider:response"),
    *("provider:error", "tool:pre", "tool:post", "tool:error", "plan:start", "plan:end"),
    *("context:pre_compact", "context:post_compact"),
]


async def test_a_turn_is_recorded_once_by_the_one_who_runs_it(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    heard = EventRecorder()
    provider = ScriptedAmplifierProvider(
        Reply(calls=[("read", {"path": "a"}), ("read", {"path": "b"})], thinking="hm"), "Done."
    )
    tool = ScriptedTool("read", "aa", "bb", amplifier=True)
    async with session(
        provider,
        tool,
        loop="loop-eventctx-events",
        hooks=dict.fromkeys(NAMES, heard),
        config={"store": str(path)},
    ) as host:
        assert await host.execute("Read both.") == "Done."
    records = await records_of(path)
    assert unended(records) == []
    recorded = [one for one in types(records) if one in NAMES]
    assert sorted(recorded) == sorted(name for name, _ in heard.events)
    assert recorded.count("prompt:submit") == 1
    spans_of = {(one.type, one.span_id) for one in records}
    for name, data in heard.events:
        assert (name, data["span_id"]) in spans_of
        assert data["turn_id"] == spans(records, "prompt:submit")[0].turn_id
        assert data["session_id"] == "session-1"
    signatures = [row["content"][0]["signature"] for row in provider.messages[1][1:2]]
    assert signatures == ["c2lnbmVk"]


@pytest.mark.parametrize("loop", ["loop-eventctx-basic", "loop-eventctx-streaming"])
async def test_the_single_call_loops_answer_and_are_recorded(loop: str, tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider("One.", "Two.")
    async with session(provider, loop=loop, config={"store": str(path)}) as host:
        assert await host.execute("First?") == "One."
        assert await host.execute("Second?") == "Two."
    records = await records_of(path)
    assert unended(records) == []
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2]
    assert len(spans(records, "provider:request")) == 2


async def test_compactions_reach_the_hosts_hooks_once(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    heard = EventRecorder()
    script: list[Any] = []
    for number in range(12):
        script += [Reply(calls=[("read", {"n": number})]), f"answer {number} " * 40]
    provider = ScriptedAmplifierProvider(*script, context_window=9_000, max_output_tokens=1_000)
    tool = ScriptedTool("read", lambda given: f"line {given['n']} " * 300, amplifier=True)
    async with session(
        provider,
        tool,
        loop="loop-eventctx-events",
        hooks=dict.fromkeys(NAMES, heard),
        config={"store": str(path)},
    ) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    records = await records_of(path)
    ended = spans(records, "context:post_compact")
    told = [data for name, data in heard.events if name == "context:post_compact"]
    assert ended
    assert [data["span_id"] for data in told] == [one.span_id for one in ended]
    assert unended(records) == []


async def test_an_injection_for_one_request_is_recorded_with_it(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"

    def remind(event: str, data: dict[str, Any]) -> Any:
        return hook_result(
            action="inject_context",
            context_injection="Mind the tabs.",
            context_injection_role="user",
            ephemeral=True,
        )

    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {})]), "Done.")
    tool = ScriptedTool("read", amplifier=True)
    async with session(
        provider,
        tool,
        loop="loop-eventctx-events",
        hooks={"provider:request": remind},
        config={"store": str(path)},
    ) as host:
        await host.execute("Read.")
        stored = await host.coordinator.get("context").get_messages()
    assert "Mind the tabs." not in str(stored)
    assert all("Mind the tabs." in str(rows[-1]) for rows in provider.messages)
    records = await records_of(path)
    told = events(records, "context:request_sent")
    assert [one.prepared for one in told] == [
        one.position for one in spans(records, "context:request_prepared")
    ]
    assert sum(len(one.bodies) for one in spans(records, "context:request_sent")) == 1


async def test_a_plan_is_a_span_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider("First a, then b.", "Done.")
    async with session(
        provider,
        loop="loop-eventctx-events",
        loop_config={"planning": True},
        config={"store": str(path)},
    ) as host:
        assert await host.execute("Do it.") == "Done."
    records = await records_of(path)
    (plan,) = spans(records, "plan:start")
    (turn,) = spans(records, "prompt:submit")
    first, second = spans(records, "provider:request")
    assert plan.parent_span_id == turn.span_id
    assert first.parent_span_id == plan.span_id
    assert second.parent_span_id == turn.span_id
    assert unended(records) == []


async def test_a_turn_that_fails_is_recorded_and_the_next_one_works(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider(ValueError("bad request"), "Well.")
    async with session(provider, loop="loop-eventctx-events", config={"store": str(path)}) as host:
        with pytest.raises(RuntimeError, match="bad request"):
            await host.execute("Hello")
        assert await host.execute("Hello") == "Well."
    records = await records_of(path)
    assert unended(records) == []
    assert [one.status for one in events(records, "prompt:complete")] == ["error", "ok"]
    async with eventctx.open(path) as engine:
        assert len((await engine.audit("session-1")).requests) == 2
