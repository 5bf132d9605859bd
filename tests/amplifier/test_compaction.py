"""Compactions on the real kernel: told to the host in every spelling, and true to the rules."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.messages.tokens import FAMILIES
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.given import events, records_of, spans, unended
from tests.amplifier.hosts import as_text, hook_result, session
from tests.how_much import some, tried

ROOT = Path(__file__).resolve().parents[2]
Heard = list[tuple[str, dict[str, Any]]]
NAMES = ("context:pre_compact", "context:post_compact", "context:compaction", "context:compact")


def hearing(heard: Heard) -> dict[str, Any]:
    def hear(event: str, data: dict[str, Any]) -> None:
        heard.append((event, data))

    return dict.fromkeys(NAMES, hear)


def talkative(turns: int) -> tuple[ScriptedAmplifierProvider, ScriptedTool]:
    script: list[Any] = []
    for number in range(turns):
        script += [Reply(calls=[("read", {"n": number})]), f"answer {number} " * 40]
    window = {"context_window": 9_000, "max_output_tokens": 1_000}
    tool = ScriptedTool("read", lambda given: f"line {given['n']} " * 300, amplifier=True)
    return ScriptedAmplifierProvider(*script, **window), tool


async def test_a_compaction_is_told_before_and_after_with_both_spellings_and_five_ids(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    heard: Heard = []
    provider, tool = talkative(12)
    async with session(provider, tool, hooks=hearing(heard), config={"store": str(path)}) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    records = await records_of(path)
    applied = [one for one in events(records, "context:post_compact") if one.outcome == "applied"]
    assert applied
    assert [name for name, _ in heard] == list(NAMES) * len(applied)
    for (_, before), (_, after), (_, logged), (_, older) in zip(*[iter(heard)] * 4, strict=True):
        record = next(
            one for one in spans(records, "context:post_compact") if one.span_id == after["span_id"]
        )
        for data in (before, after, logged, older):
            assert data["session_id"] == "session-1"
            assert data["turn_id"] == record.turn_id is not None
            assert data["span_id"] == record.span_id is not None
            assert data["parent_span_id"] == record.parent_span_id is not None
            assert data["iteration"] == record.iteration is not None
            assert len(as_text(data)) < 10_000
        assert before["message_count"] == before["before_messages"] == before["messages_before"]
        assert before["token_count"] == before["before_tokens"] == before["tokens_before"]
        assert after["token_count"] == after["after_tokens"] == after["tokens_after"]
        assert after["message_count"] == after["after_messages"] == after["messages_after"]
        assert after["tokens_before"] - after["tokens_after"] == logged["tokens_saved"] > 0
        assert logged["before_tokens"] == logged["tokens_before"] == before["token_count"]
        assert logged["messages_removed"] == after["removed_messages"]


async def test_the_reference_lists_the_fields_of_every_payload(tmp_path: Path) -> None:
    heard: Heard = []
    provider, tool = talkative(12)
    async with session(provider, tool, hooks=hearing(heard)) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    page = (ROOT / "docs" / "reference" / "amplifier.md").read_text(encoding="utf-8")
    emitted = page.partition("## What is emitted")[2].partition("## What does not hold")[0]
    ids = set(re.findall(r"`(\w+)`", emitted.partition("| event")[0]))
    counts = set(re.findall(r"`(\w+)`", emitted.partition("The counts are there")[2]))
    rows = re.findall(r"^\| (`context:.*?) \| .*? \| (.*) \|$", emitted, flags=re.MULTILINE)
    told = {name: set(data) - {"timestamp", "parent_id"} for name, data in heard}
    assert set(told) == set(NAMES)
    for names, fields in rows:
        listed = set(re.findall(r"`(\w+)`", fields)) | ids
        listed |= counts if "the counts below" in fields else set()
        for name in re.findall(r"`(context:\w+)`", names):
            assert told.pop(name) == listed, name
    assert told == {}


async def test_the_names_are_declared_for_the_hosts_logs() -> None:
    async with session(ScriptedAmplifierProvider()) as host:
        declared = await host.coordinator.collect_contributions("observability.events")
    assert [list(NAMES)] == declared or list(NAMES) == declared


async def test_a_denial_of_the_host_is_a_veto_that_the_budget_overrules(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider, tool = talkative(12)

    def deny(event: str, data: dict[str, Any]) -> Any:
        return hook_result(action="deny", reason="not now")

    async with session(
        provider, tool, hooks={"context:pre_compact": deny}, config={"store": str(path)}
    ) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    records = await records_of(path)
    begun = events(records, "context:pre_compact")
    assert {one.veto for one in begun} == {"not now"}
    outcomes = {one.trigger: one.outcome for one in events(records, "context:post_compact")}
    assert outcomes == {"threshold": "skipped", "budget": "applied"}


async def test_a_hook_of_the_host_that_raises_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider, tool = talkative(12)

    def fail(event: str, data: dict[str, Any]) -> Any:
        raise ValueError("a hook's bug")

    async with session(
        provider, tool, hooks=dict.fromkeys(NAMES, fail), config={"store": str(path)}
    ) as host:
        for number in range(12):
            await host.execute(f"question {number}")
    assert unended(await records_of(path)) == []


CONFIGS: list[dict[str, Any]] = [
    {},
    {"compact_threshold": 0.8, "auto_compact": True, "max_tokens": 300_000},
    {"auto_compact": False},
    {"policy": "simple", "keep_recent": 6},
    {"policy": "importance"},
    {"policy": "token-budget"},
    {"keep_turns": 4},
]


LONG = [CONFIGS[0], {"policy": "simple", "keep_recent": 6}]
"""The default, and one that counts messages: what only shows after many turns shows here."""


WINDOWS = (64_000, 200_000)
TRIED = [
    (config, some(60, 200) if config in LONG else some(24, 60), window)
    for place, config in enumerate(CONFIGS)
    for choice, window in enumerate(WINDOWS)
    if tried(place, 0, choice, choices=len(WINDOWS))
]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "turns", "window"), TRIED, ids=as_text)
async def test_many_turns_stay_in_the_window_with_every_setting(
    config: dict[str, Any], turns: int, window: int, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"
    draw = random.Random(5)  # noqa: S311 - a script, not a secret
    size = window // 12
    script: list[Any] = []
    for number in range(turns):
        calls = [("read", {"n": number, "of": one}) for one in range(draw.randint(1, 3))]
        thinking = "hm " * 20 if number % 3 == 0 else None
        script += [Reply(calls=calls, thinking=thinking), f"answer {number} " * 20]
    tool = ScriptedTool("read", lambda given: f"{given['n']} " * (size // 3), amplifier=True)
    provider = ScriptedAmplifierProvider(*script, context_window=window, max_output_tokens=8_000)
    async with session(
        provider, tool, config={"store": str(path), "durability": "normal", **config}
    ) as host:
        for number in range(turns):
            await host.execute(f"question {number} " * 10)
        stored = await host.coordinator.get("context").get_messages()
    budget = min(window - 8_000 - 1_000, config.get("max_tokens", window))
    async with eventctx.open(path) as engine:
        audit = await engine.audit("session-1")
        assert len(audit.requests) == 2 * turns
        assert all(row.tokens <= budget for row in audit.requests)
        applied = [row for row in audit.compactions if row.outcome == "applied"]
        assert 0 < len(applied) < turns // 2, "no compaction for every request"
    questions = [row["content"] for row in stored if row["role"] == "user"]
    assert questions == [f"question {number} " * 10 for number in range(turns)]
    results = [row for row in stored if row["role"] == "tool"]
    assert len(results) == sum(len(one.calls) for one in script if isinstance(one, Reply))
    # What is counted is also what was sent: the strict provider saw no orphan in any of it.
    last = provider.messages[-1]
    assert sum(len(as_text(row)) for row in last) / 5 < budget


async def test_a_giant_result_is_shortened_in_the_view_and_whole_in_the_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "contexts.db"
    giant = "".join(f"line {number}\n" for number in range(60_000))[:600_000]
    provider = ScriptedAmplifierProvider(
        Reply(calls=[("read", {"n": 1})]), "Long.", context_window=64_000, max_output_tokens=8_000
    )
    tool = ScriptedTool("read", giant, amplifier=True)
    async with session(provider, tool, config={"store": str(path)}) as host:
        await host.execute("Read it.")
        stored = await host.coordinator.get("context").get_messages()
    assert stored[2]["content"] == giant
    sent = provider.messages[1][2]["content"]
    assert len(sent) < 200_000
    assert sent.startswith("line 0\n")


async def test_what_must_stay_is_sent_also_where_it_exceeds_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider("Well.", context_window=12_000, max_output_tokens=1_000)
    async with session(provider, config={"store": str(path)}) as host:
        assert await host.execute("much " * 20_000) == "Well."
    (prepared,) = events(await records_of(path), "context:request_prepared")
    assert prepared.floor_sent
    assert prepared.estimator in {one.name for one in FAMILIES.values()}
