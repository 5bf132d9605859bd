"""Recorded sessions: import, verify, audit, export, and import again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventctx.engine import Engine
from eventctx.importers.load import import_file
from eventctx.queries.transfer import import_drafts, read_drafts
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.sessions import exported, with_frames
from tests.transcripts import refusal

SESSIONS = (
    "claude-code/spotter-258c7280/258c7280-ae70-4798-800f-63464d01a85d.jsonl",
    "claude-code/entire-26dcd5518fea.jsonl",
    "claude-code/codemie-session-9eda1058.jsonl",
    "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl",
    "swe-agent/marshmallow-1867__function_calling__install-1.traj",
    "mini-swe-agent/deepseek-chat__marshmallow-code__marshmallow-1343.traj.json",
    "mini-swe-agent/gemini-3-pro__django__django-16560.traj.json",
    "pi/large-session.jsonl",
    "openhands/cli447_case_a",
    "openhands/openagentsafety-traj_safety-metrics.json",
    "openhands/llm-log-fncall-sonnet4.json",
    "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/transcript.jsonl",
    "amplifier/c37652eb-ec4c-4cb5-9d3e-f0b1445ac643/context-intelligence/events.jsonl",
)


async def imported(path: Path) -> tuple[Engine, list[str]]:
    engine = Engine(MemoryStore())
    with_frames(engine.store, 100)
    # By itself; without the format's name, the log next to it would be read in its place.
    own = "amplifier" if path.name == "transcript.jsonl" else None
    summaries = await import_file(engine.store, path, complete=True, format=own)
    return engine, [summary.session for summary in summaries if summary.session]


@pytest.mark.parametrize("name", SESSIONS)
async def test_an_import_is_true_against_the_file_verifies_and_exports_and_imports_back_equal(
    name: str, recorded_sessions: Path
) -> None:
    engine, sessions = await imported(recorded_sessions / name)
    for session in sessions:
        assert (await engine.verify(session)).ok
        lines = await exported(engine, session)
        other = Engine(MemoryStore())
        await import_drafts(other.store, session, read_drafts(lines[1:]))
        assert await exported(other, session) == lines
    manifest = json.loads((recorded_sessions / "MANIFEST.json").read_text())
    # A folder of events has an entry for each of its files.
    facts = [e for e in manifest["files"] if e["file"] == name or e["file"].startswith(f"{name}/")]
    audit = await engine.audit(sessions[0])
    reported = [row.reported for row in audit.requests if row.reported is not None]
    assert len(reported) == sum(entry["calls_with_usage"] for entry in facts)
    assert max(reported, default=0) == max(entry["max_prompt_tokens"] for entry in facts)
    applied = [row for row in audit.compactions if row.outcome == "applied"]
    assert len(applied) == sum(entry["compactions"] for entry in facts)
    assert all(row.reconstructed for row in audit.requests)
    for row in audit.requests[:: max(1, len(audit.requests) // some(8, 25))]:
        view = await engine.request_view(sessions[0], position=row.position)
        assert view.consistent
        assert refusal(view.messages) is None
        assert sum(row.counts) == len(await engine.transcript(sessions[0], at=row.position))


async def test_behind_a_boundary_the_view_begins_with_the_summary(recorded_sessions: Path) -> None:
    engine, (session, *_) = await imported(recorded_sessions / SESSIONS[0])
    audit = await engine.audit(session)
    boundary = audit.compactions[0].position
    after = next(row for row in audit.requests if row.position > boundary)
    view = await engine.request_view(session, position=after.position)
    assert after.counts.summarised > 100
    assert view.messages[0]["role"] == "user"
    assert "This session is being continued" in json.dumps(view.messages[0])
    assert view.entries[0].kind == "insertion"
