"""What a host tells on its registry, event by event, and what of it is recorded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eventctx.log.codec import decode_event
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of, types, unended
from tests.amplifier.hosts import session

Told = tuple[str, dict[str, Any]]
ASKED: list[Told] = [("prompt:submit", {}), ("provider:request", {"provider": "p"})]


async def recorded(tmp_path: Path, told: Sequence[Told]) -> list[Any]:
    path = tmp_path / "contexts.db"
    config = {"store": str(path)}
    async with session(ScriptedAmplifierProvider(), config=config) as host:
        for name, data in told:
            await host.coordinator.hooks.emit(name, data)
    records = await records_of(path)
    assert unended(records) == []
    return records


async def test_what_another_session_tells_on_the_registry_is_left_alone(tmp_path: Path) -> None:
    other = {"session_id": "another"}
    told = [*ASKED, ("prompt:submit", other), ("tool:pre", {**other, "tool_name": "read"})]
    records = await recorded(
        tmp_path, [*told, ("session:end", other), ("orchestrator:complete", {})]
    )
    assert types(records) == [
        "prompt:submit",
        "provider:request",
        "provider:response",
        "prompt:complete",
        "session:end",
    ]


@pytest.mark.parametrize("name", ["prompt:complete", "orchestrator:complete", "execution:end"])
@pytest.mark.parametrize(
    ("status", "ended"), [("cancelled", "cancelled"), ("error", "error"), ("incomplete", "ok")]
)
async def test_a_turn_ends_by_any_of_the_events_that_hosts_have_for_it(
    name: str, status: str, ended: str, tmp_path: Path
) -> None:
    records = await recorded(tmp_path, [("prompt:submit", {}), (name, {"status": status})])
    assert [one.status for one in events(records, "prompt:complete")] == [ended]


async def test_what_a_provider_says_of_its_answer_is_recorded_with_it(tmp_path: Path) -> None:
    answer = {
        "model": "m-1",
        "usage": {"input": 70, "output": 5, "cache_write": 30},
        "raw": {"id": "resp-1", "stop_reason": "end_turn"},
    }
    told = [*ASKED, ("llm:response", answer), ("orchestrator:complete", {})]
    records = await recorded(tmp_path, told)
    (used,) = events(records, "usage:reported")
    assert (used.prompt, used.output, used.cache_write, used.model) == (100, 5, 30, "m-1")
    (answered,) = events(records, "provider:response")
    assert (answered.response_id, answered.finish_reason) == ("resp-1", "end_turn")


async def test_a_call_that_was_cancelled_is_told_from_one_that_failed(tmp_path: Path) -> None:
    error = {"type": "CancelledError", "msg": ""}
    began = {"tool_name": "read", "tool_call_id": "c1"}
    told = [
        *ASKED,
        ("provider:error", {"error": error}),
        ("tool:pre", began),
        ("tool:error", {**began, "error": error}),
    ]
    records = await recorded(tmp_path, told)
    statuses = [
        one.status for kind in ("provider:error", "tool:error") for one in events(records, kind)
    ]
    assert statuses == ["cancelled", "cancelled"]


async def test_an_event_that_cannot_be_recorded_is_a_word_in_the_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"store": str(tmp_path)}
    async with session(ScriptedAmplifierProvider(), config=config) as host:
        with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
            await host.coordinator.hooks.emit("prompt:submit", {})
    assert "prompt:submit of session 'session-1' is not recorded" in caplog.text


# -- tools that a host does not tell apart -------------------------------------------------------

READ = {"tool_name": "read"}
BROKEN = {**READ, "error": {"type": "ValueError", "msg": "went wrong"}}
BEGAN: list[Told] = [
    *ASKED,
    ("tool:pre", {**READ, "tool_input": {"path": "a"}}),
    ("tool:pre", {**READ, "tool_input": {"path": "b"}}),
]


def calls_and_ends(records: list[Any]) -> list[tuple[str, str]]:
    """The calls in the order of their beginnings, each with its end and that end's message."""
    ends = {
        one.span_id: (one.type, getattr(decode_event(one), "message", ""))
        for one in records
        if one.type in ("tool:post", "tool:error")
    }
    return [ends[one.span_id] for one in records if one.type == "tool:pre"]


@pytest.mark.parametrize("first", ["tool:error", "tool:post"])
async def test_a_failure_without_arguments_is_of_the_call_that_did_not_return(
    first: str, tmp_path: Path
) -> None:
    ends: list[Told] = [
        ("tool:error", BROKEN),
        ("tool:post", {**READ, "tool_input": {"path": "a"}, "result": "text"}),
    ]
    told = [*BEGAN, *(ends if first == "tool:error" else reversed(ends))]
    records = await recorded(tmp_path, [*told, ("provider:request", {"provider": "p"})])
    assert calls_and_ends(records) == [("tool:post", ""), ("tool:error", "went wrong")]
    # It belongs to the iteration of its call, not to the one that made it known.
    (failed,) = [one for one in records if one.type == "tool:error"]
    assert failed.iteration == 1


@pytest.mark.parametrize("end", ["provider:request", "prompt:complete", "prompt:submit"])
async def test_where_the_host_never_says_which_call_failed_none_is_blamed(
    end: str, tmp_path: Path
) -> None:
    records = await recorded(tmp_path, [*BEGAN, ("tool:error", BROKEN), (end, {})])
    known = "the host did not say how it ended (of 2 calls of 'read', 1 failed: ValueError: "
    ends = events(records, "tool:error")
    assert [one.status for one in ends] == ["cancelled", "cancelled"]
    assert all(one.message.startswith(known) for one in ends)


async def test_the_tools_of_a_turn_do_not_belong_to_a_call_of_the_turn_before(
    tmp_path: Path,
) -> None:
    told = [
        *ASKED,
        ("prompt:complete", {}),
        ("prompt:submit", {}),
        ("tool:pre", {"tool_name": "t"}),
    ]
    records = await recorded(tmp_path, told)
    began = [one.span_id for one in records if one.type == "prompt:submit"]
    (tool,) = [one for one in records if one.type == "tool:pre"]
    assert tool.parent_span_id == began[1]


async def test_a_result_that_says_it_failed_is_a_failed_call_with_its_error(
    tmp_path: Path,
) -> None:
    error = {"type": "OSError", "message": "x" * 3_000}
    result = {"success": False, "output": "half", "error": error}
    call = {**READ, "tool_call_id": "c1"}
    told = [*ASKED, ("tool:pre", call), ("tool:post", {**call, "result": result})]
    (failed,) = events(await recorded(tmp_path, told), "tool:error")
    assert (failed.call_id, failed.status, failed.error_type) == ("c1", "error", "OSError")
    assert failed.message == "x" * 2_000
