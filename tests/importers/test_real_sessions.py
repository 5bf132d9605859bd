"""Recorded sessions of other programs, checked against the counts that came with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.codec import decode_event, raw_of
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.projections.trace import semconv
from eventctx.queries.spans import spans
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.importers.given import NOW

SPOTTER = "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl"
AGENT = SPOTTER.removesuffix(".jsonl") + "/subagents/agent-a881341.jsonl"
COMPACT = SPOTTER.removesuffix(".jsonl") + "/subagents/agent-acompact-fffbd0.jsonl"
ENTIRE = "claude-code/entire-26dcd5518fea.jsonl"
CODEMIE = "claude-code/codemie-session-9eda1058.jsonl"
CODEX = "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl"
SWE = "swe-agent/marshmallow-1867__function_calling__install-1.traj"
MINI_2 = "mini-swe-agent/deepseek-chat__marshmallow-code__marshmallow-1343.traj.json"
MINI_1 = "mini-swe-agent/gemini-3-pro__django__django-16560.traj.json"
PI = "pi/large-session.jsonl"
OPENHANDS = "openhands/cli447_case_a"
OPENHANDS_LIST = "openhands/openagentsafety-traj_safety-metrics.json"
OPENHANDS_LOG = "openhands/llm-log-fncall-sonnet4.json"
AMPLIFIER = "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/transcript.jsonl"
AMPLIFIER_LOG = "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/context-intelligence/events.jsonl"

QUEUED = {
    SPOTTER: ["check again", "new beads for the epic were added. tackle them"],
    ENTIRE: ["did we create any new unit tests?"],
}
"""What a person said while the model was at work, and no ``user`` line has."""

# How our count of messages differs from the manifest's, and why.
MESSAGES = {
    SPOTTER: +1,  # two were queued; the compaction summary is an insertion, not a message
    ENTIRE: +1,  # one was queued
    CODEMIE: 0,
    AGENT: 0,
    COMPACT: 0,
    CODEX: +1,  # session_meta.base_instructions is the system message
    SWE: 0,
    MINI_2: -1,  # the row in role "exit" is no message
    MINI_1: 0,
    PI: -14,  # answers that were broken off before their first words
    OPENHANDS: 0,
    OPENHANDS_LIST: -1,  # two calls of one answer are one message
    OPENHANDS_LOG: 0,
    AMPLIFIER: 0,
    AMPLIFIER_LOG: +1,  # the system prompt of the requests
}
TURNS = {
    SPOTTER: 2,  # task notifications and the interruption are the harness's
    ENTIRE: 18,  # one is a prompt command with its arguments
    CODEMIE: 3,
    AGENT: 1,
    COMPACT: 1,
    CODEX: 2,
    SWE: 1,
    MINI_2: 1,
    MINI_1: 1,  # observations and the submission are in role user too
    PI: 88,
    OPENHANDS: 1,  # three more are a critic's, in the role of the person
    OPENHANDS_LIST: 0,  # the task is not in the file
    OPENHANDS_LOG: 1,
    AMPLIFIER: 1,
    AMPLIFIER_LOG: 1,
}


class Imported:
    def __init__(self, summary: ImportSummary, found: list[Record], entry: dict[str, Any]) -> None:
        self.summary = summary
        self.records = found
        self.entry = entry

    def events(self, kind: str) -> list[Any]:
        return [decode_event(r) for r in self.records if r.type == kind]

    def messages(self) -> list[Any]:
        added = [r for r in self.records if r.type == "context:message_added"]
        return [decode_body(r.bodies[0].data or b"") for r in added]


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


async def take(root: Path, name: str, folder: Path, *, complete: bool = True) -> Imported:
    entry = entry_of(json.loads((root / "MANIFEST.json").read_bytes()), name)
    path = root / name
    if name == AMPLIFIER:
        # Without its log, which would be read in its place.
        path = folder / "alone" / path.name
        path.parent.mkdir()
        path.write_bytes((root / name).read_bytes())
    store = await SqliteStore.open(folder / "store.db", durability="normal")
    try:
        summaries = await import_file(store, path, complete=complete, clock=lambda: NOW)
        again = await import_file(store, path, complete=complete, clock=lambda: NOW)
        assert sum(summary.added for summary in again) == 0
        assert summaries[0].session is not None
        found = [record async for record in store.read(summaries[0].session)]
    finally:
        await store.close()
    return Imported(summaries[0], found, entry)


@pytest.mark.parametrize("name", MESSAGES, ids=[n.split("/")[-1][:24] for n in MESSAGES])
async def test_counts_are_those_of_the_manifest(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, name, tmp_path)
    entry = got.entry
    assert got.summary.messages == entry["messages"] + MESSAGES[name]
    assert got.summary.turns == TURNS[name]
    assert got.summary.compactions == entry["compactions"]
    assert got.summary.unknown == {}
    assert got.summary.warned == 0
    assert got.summary.waiting == ()
    usage = got.events("usage:reported")
    assert len(usage) == entry["calls_with_usage"]
    assert max((event.prompt for event in usage), default=0) == entry["max_prompt_tokens"]
    facts = [
        decode_facts(r.bodies[0].facts) for r in got.records if r.type == "context:message_added"
    ]
    # The manifest counts searches that the provider runs as answered calls; they are one item
    # each, without an id and without an output.
    searches = entry["record_types"].get("response_item/web_search_call", 0)
    assert sum(len(f.results) for f in facts) == entry["tool_results"] - searches
    assert sum(len(f.calls) for f in facts) == entry["tool_calls"] - searches
    ended = got.events("tool:post") + got.events("tool:error")
    assert len(ended) == entry["tool_results"] - entry["results_without_call"] - searches
    assert len(got.events("tool:error")) == entry["tool_errors"]


@pytest.mark.parametrize("name", MESSAGES, ids=[n.split("/")[-1][:24] for n in MESSAGES])
async def test_every_span_is_valid_and_inside_its_turn(name: str, recorded_sessions: Path) -> None:
    store = MemoryStore()
    for summary in await import_file(store, recorded_sessions / name, clock=lambda: NOW):
        assert summary.session is not None
        found = [span async for span in spans(store, summary.session)]
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


@pytest.mark.parametrize("name", [SPOTTER, ENTIRE, CODEMIE, AGENT])
async def test_every_block_of_every_line_is_in_the_transcript_or_the_summary(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, name, tmp_path)
    rows = [json.loads(line) for line in (recorded_sessions / name).read_bytes().splitlines()]
    file: list[str] = []
    for row in rows:
        if row.get("type") in ("user", "assistant") and not row.get("isCompactSummary"):
            content = row["message"]["content"]
            file += map(json.dumps, content if isinstance(content, list) else [content])
    file += map(json.dumps, QUEUED.get(name, ()))
    ours: list[str] = []
    for message in got.messages():
        content = message["content"]
        ours += map(json.dumps, content if isinstance(content, list) else [content])
    # Results between the lines of an answer are after it now.
    assert sorted(ours) == sorted(file)


@pytest.mark.parametrize("name", [SPOTTER, ENTIRE, CODEMIE])
async def test_raw_parts_and_messages_together_are_the_whole_file(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, name, tmp_path)
    parts: list[tuple[str, bytes]] = []
    for record in got.records:
        if record.type == "import:raw":
            parts += [("", part) for part in (raw_of(record) or b"").split(b"\n")]
    rests = [json.loads(part) for _, part in parts]
    rests = [rest for rest in rests if "type" in rest and rest.get("type") != "message"]
    lines = (recorded_sessions / name).read_bytes().splitlines()
    rows = [json.loads(line) for line in lines]
    blanked = [{**row, "message": None} if _spoken(row) else row for row in rows]
    assert rests == blanked


def _spoken(row: dict[str, Any]) -> bool:
    return row.get("type") in ("user", "assistant")


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


async def test_every_block_of_a_pi_session_is_in_the_transcript(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, PI, tmp_path)
    rows = [json.loads(line) for line in (recorded_sessions / PI).read_bytes().splitlines()]
    assert pieces(got.messages()) == pieces([row.get("message") for row in rows])


async def test_pi_lines_without_their_content_are_kept(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, PI, tmp_path)
    rows = [json.loads(line) for line in (recorded_sessions / PI).read_bytes().splitlines()]
    for row in rows:
        if row.get("message", {}).get("content"):
            del row["message"]["content"]
    raw = [raw_of(record) or b"" for record in got.records if record.type == "import:raw"]
    assert [json.loads(part) for parts in raw for part in parts.split(b"\n")] == rows


async def test_an_amplifier_log_is_kept_without_what_its_requests_repeat(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    got = await take(recorded_sessions, AMPLIFIER_LOG, tmp_path)
    raw = [raw_of(record) or b"" for record in got.records if record.type == "import:raw"]
    parts = [json.loads(part) for whole in raw for part in whole.split(b"\n")]
    lines = (recorded_sessions / AMPLIFIER_LOG).read_bytes().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(parts) == len(rows)
    sent: dict[int, dict[str, Any]] = {}
    for number, (part, row) in enumerate(zip(parts, rows, strict=True), 1):
        if row["event"] == "llm:request":
            part["data"]["raw"] = sent[number] = whole_again(part["data"]["raw"], sent)
        assert part == row
    assert sum(map(len, raw)) < len(b"".join(lines)) / 2


def whole_again(rest: dict[str, Any], sent: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """A request from what was kept of it and the one before it."""
    whole: dict[str, Any] = {}
    for key, value in rest.items():
        whole[key] = value
        if isinstance(value, dict) and "same_as_line" in value:
            before = sent[value["same_as_line"]][key]
            whole[key] = [*before[: value["first"]], *value["then"]] if "then" in value else before
    return whole
