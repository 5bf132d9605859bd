"""Compactions on the real kernel: told to the host in every spelling, and true to the rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from eventctx.messages.tokens import FAMILIES
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool
from tests.amplifier.given import events, records_of, spans
from tests.amplifier.hosts import as_text, hook_result, session

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


async def test_what_must_stay_is_sent_also_where_it_exceeds_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider("Well.", context_window=12_000, max_output_tokens=1_000)
    async with session(provider, config={"store": str(path)}) as host:
        assert await host.execute("much " * 20_000) == "Well."
    (prepared,) = events(await records_of(path), "context:request_prepared")
    assert prepared.floor_sent
    assert prepared.estimator in {one.name for one in FAMILIES.values()}
