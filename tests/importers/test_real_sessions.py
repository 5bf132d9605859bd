"""Recorded sessions of other programs, checked against the counts that came with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.codec import decode_event, raw_of
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.projections.trace import semconv
from eventctx.projections.trace.spans import Span
from eventctx.queries.spans import spans
from eventctx.stores.memory import MemoryStore
from tests.importers.given import NOW
from tests.importers.taken import records

SPOTTER = "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl"
AGENT = SPOTTER.removesuffix(".jsonl") + "/subagents/agent-a881341.jsonl"
ENTIRE = "claude-code/entire-26dcd5518fea.jsonl"
CODEMIE = "claude-code/codemie-session-9eda1058.jsonl"
PI = "pi/large-session.jsonl"
AMPLIFIER = "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/transcript.jsonl"
AMPLIFIER_LOG = "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/context-intelligence/events.jsonl"

QUEUED = {
    SPOTTER: ["check again", "new beads for the epic were added. tackle them"],
    ENTIRE: ["did we create any new unit tests?"],
}
"""What a person said while the model was at work, and no ``user`` line has."""

# How our count of messages differs from the manifest's, and the number of turns; and why.
COUNTS = {
    # Two were queued; the summary is an insertion, not a message. Task notifications and the
    # interruption are the harness's.
    SPOTTER: (+1, 2),
    ENTIRE: (+1, 18),  # one was queued; one turn is a prompt command with its arguments
    CODEMIE: (0, 3),
    AGENT: (0, 1),
    AGENT.replace("agent-a881341", "agent-acompact-fffbd0"): (0, 1),
    # session_meta.base_instructions is the system message
    "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl": (+1, 2),
    "swe-agent/marshmallow-1867__function_calling__install-1.traj": (0, 1),
    # The row in role "exit" is no message.
    "mini-swe-agent/deepseek-chat__marshmallow-code__marshmallow-1343.traj.json": (-1, 1),
    # Observations and the submission are in role user, too.
    "mini-swe-agent/gemini-3-pro__django__django-16560.traj.json": (0, 1),
    PI: (-14, 88),  # answers that were broken off before their first words
    "openhands/cli447_case_a": (0, 1),  # three more turns are a critic's, in the person's role
    # Two calls of one answer are one message; the task is not in the file.
    "openhands/openagentsafety-traj_safety-metrics.json": (-1, 0),
    "openhands/llm-log-fncall-sonnet4.json": (0, 1),
    AMPLIFIER: (0, 1),
    AMPLIFIER_LOG: (+1, 1),  # the system prompt of the requests
}


class Imported(NamedTuple):
    """A recorded session: its store, what the import said, its records and its manifest's entry."""

    store: MemoryStore
    summaries: Sequence[ImportSummary]
    records: list[Record]
    entry: dict[str, Any]

    def events(self, kind: str) -> list[Any]:
        return [decode_event(r) for r in self.records if r.type == kind]

    def messages(self) -> list[Any]:
        added = [r for r in self.records if r.type == "context:message_added"]
        return [decode_body(r.bodies[0].data or b"") for r in added]

    def raw(self) -> list[Any]:
        """The parts of lines that were kept besides the messages."""
        kept = [raw_of(r) or b"" for r in self.records if r.type == "import:raw"]
        return [json.loads(part) for parts in kept for part in parts.split(b"\n")]


pytestmark = pytest.mark.xdist_group("real sessions")  # each is imported by one process
_taken: dict[str, Imported] = {}


def entry_of(manifest: Any, name: str) -> dict[str, Any]:
    """The manifest's counts; for a folder those of its files together."""
    parts = [e for e in manifest["files"] if e["file"] == name or e["file"].startswith(f"{name}/")]
    if len(parts) == 1:
        return dict(parts[0])
    counts = {
        key: sum(part.get(key, 0) for part in parts)
        for key, value in parts[0].items()
        if isinstance(value, int) and not key.startswith(("calls_without", "results_without"))
    }
    # Each file was counted by itself, so its call has no result and its result no call.
    return {**counts, "results_without_call": 0, "record_types": {}}


async def take(root: Path, name: str) -> Imported:
    """Import a session once for all tests."""
    if name not in _taken:
        entry = entry_of(json.loads((root / "MANIFEST.json").read_bytes()), name)
        # By itself; without the format's name, the log next to it would be read in its place.
        form = "amplifier" if name == AMPLIFIER else None
        options: dict[str, Any] = {"complete": True, "format": form}
        store = MemoryStore()
        done = await import_file(store, root / name, clock=lambda: NOW, **options)
        again = await import_file(store, root / name, clock=lambda: NOW, **options)
        assert sum(summary.added for summary in again) == 0
        _taken[name] = Imported(store, done, await records(store, done[0].session or ""), entry)
    return _taken[name]


def rows_of(root: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (root / name).read_bytes().splitlines()]


def each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", COUNTS, ids=[n.split("/")[-1][:24] for n in COUNTS])
async def test_counts_are_those_of_the_manifest_and_every_span_is_inside_its_turn(
    name: str, recorded_sessions: Path
) -> None:
    got = await take(recorded_sessions, name)
    entry, summary = got.entry, got.summaries[0]
    more, turns = COUNTS[name]
    assert (summary.messages, summary.turns) == (entry["messages"] + more, turns)
    assert summary.compactions == entry["compactions"]
    assert (summary.unknown, summary.warned, summary.waiting) == ({}, 0, ())
    usage = got.events("usage:reported")
    assert len(usage) == entry["calls_with_usage"]
    assert max((event.prompt for event in usage), default=0) == entry["max_prompt_tokens"]
    added = [r for r in got.records if r.type == "context:message_added"]
    facts = [decode_facts(r.bodies[0].facts) for r in added]
    # The manifest counts searches that the provider runs as answered calls; they are one item
    # each, without an id and without an output.
    searches = entry["record_types"].get("response_item/web_search_call", 0)
    assert sum(len(f.results) for f in facts) == entry["tool_results"] - searches
    assert sum(len(f.calls) for f in facts) == entry["tool_calls"] - searches
    ended = got.events("tool:post") + got.events("tool:error")
    assert len(ended) == entry["tool_results"] - entry["results_without_call"] - searches
    assert len(got.events("tool:error")) == entry["tool_errors"]
    for summary in got.summaries:
        check_spans([span async for span in spans(got.store, summary.session or "")])


def check_spans(found: list[Span]) -> None:
    turns = {
        span.attributes[semconv.TURN_ID]: span
        for span in found
        if span.attributes[semconv.OPERATION] == semconv.INVOKE_AGENT
    }
    for span in found:
        assert span.start < span.end
        turn = turns.get(span.attributes.get(semconv.TURN_ID, ""))
        if turn is not None:
            # A span without a length gets a nanosecond.
            assert turn.start <= span.start < span.end <= turn.end + 1


async def test_a_subagent_links_to_its_call_or_compaction(recorded_sessions: Path) -> None:
    store = (await take(recorded_sessions, SPOTTER)).store
    main = "258c7280-ae70-4798-800f-63464d01a85d"
    found = {
        info.stream: [one async for one in spans(store, info.stream)]
        async for info in store.streams()
    }
    named = {(one.trace_id, one.span_id): one.name for every in found.values() for one in every}
    links = {
        stream: [
            named[link.trace_id, link.span_id]
            for one in every
            for link in one.links
            if link.attributes.get("eventctx.link.session") == main
        ]
        for stream, every in found.items()
    }
    assert links[f"{main}.agent-a881341"] == ["execute_tool Task"]
    assert links[f"{main}.agent-acompact-fffbd0"] == ["compact imported"]
    assert links[main] == []


@pytest.mark.parametrize("name", [SPOTTER, ENTIRE, CODEMIE, AGENT])
async def test_raw_parts_and_messages_together_are_the_whole_file(
    name: str, recorded_sessions: Path
) -> None:
    got, rows = await take(recorded_sessions, name), rows_of(recorded_sessions, name)
    said = [row.get("type") in ("user", "assistant") for row in rows]
    told = [row for row, one in zip(rows, said, strict=True) if one]
    lines = [row["message"]["content"] for row in told if not row.get("isCompactSummary")]
    file = [json.dumps(block) for content in lines for block in each(content)]
    file += map(json.dumps, QUEUED.get(name, ()))
    ours = [json.dumps(block) for one in got.messages() for block in each(one["content"])]
    # Results between the lines of an answer are after it now.
    assert sorted(ours) == sorted(file)
    rests = [rest for rest in got.raw() if rest.get("type", "message") != "message"]
    without = [{**row, "message": None} for row in rows]
    assert rests == [a if one else b for a, b, one in zip(without, rows, said, strict=True)]


def pieces(value: Any) -> list[str]:
    """What a model is shown in pi's blocks and in Anthropic's: texts, thoughts, calls, results."""
    if isinstance(value, list):
        return [found for item in value for found in pieces(item)]
    if not isinstance(value, dict):
        return []
    if "text" in value or "thinking" in value:
        signature = value.get("thinkingSignature", value.get("signature"))
        return [json.dumps([value.get("text", value.get("thinking")), signature])]
    if value.get("type") in ("toolCall", "tool_use"):
        arguments = value.get("arguments", value.get("input"))
        return [json.dumps([value["id"], value["name"], arguments, value.get("partialJson")])]
    answered = value.get("toolCallId", value.get("tool_use_id"))
    return ([answered] if answered else []) + pieces(value.get("content"))


async def test_every_block_and_the_rest_of_a_pi_session_is_kept(recorded_sessions: Path) -> None:
    got, rows = await take(recorded_sessions, PI), rows_of(recorded_sessions, PI)
    assert pieces(got.messages()) == pieces([row.get("message") for row in rows])
    for row in rows:
        if row.get("message", {}).get("content"):
            del row["message"]["content"]
    assert got.raw() == rows


async def test_a_log_is_kept_without_what_its_requests_repeat(recorded_sessions: Path) -> None:
    got = await take(recorded_sessions, AMPLIFIER_LOG)
    parts, rows = got.raw(), rows_of(recorded_sessions, AMPLIFIER_LOG)
    assert len(parts) == len(rows)
    kept = sum(len(json.dumps(part)) for part in parts)
    assert kept < (recorded_sessions / AMPLIFIER_LOG).stat().st_size / 2
    sent: dict[int, dict[str, Any]] = {}
    for number, (part, row) in enumerate(zip(parts, rows, strict=True), 1):
        if row["event"] == "llm:request":
            part["data"]["raw"] = sent[number] = whole_again(part["data"]["raw"], sent)
        assert part == row


def whole_again(rest: dict[str, Any], sent: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """A request from what was kept of it and the one before it."""
    whole: dict[str, Any] = {}
    for key, value in rest.items():
        whole[key] = value
        if isinstance(value, dict) and "same_as_line" in value:
            before = sent[value["same_as_line"]][key]
            whole[key] = [*before[: value["first"]], *value["then"]] if "then" in value else before
    return whole
