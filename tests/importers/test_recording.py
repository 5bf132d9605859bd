"""What items become in the log: turns, iterations, spans, requests, compactions, raw parts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from eventctx.importers.formats.claude.conversation import RESENT
from eventctx.log.codec import decode_event
from eventctx.log.events import CATALOGUE
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.projections.view import request_view
from eventctx.queries.audit import audit_session
from tests.importers.given import (
    ClaudeCode,
    Codex,
    call,
    events,
    imported,
    records,
    text,
)


def tool_loop() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", call("t1"), call("t2", "Read"))
    log.result("t1", "a").result("t2", "b", is_error=True).answer("m2", text("done"))
    return log.user("again").answer("m3", text("sure")).system("turn_duration")


async def test_a_call_is_request_answer_response_usage_and_tools_in_order(tmp_path: Path) -> None:
    store, session = await imported(tmp_path, tool_loop().data())
    found = [r for r in await records(store, session) if r.type != "import:raw"]
    assert [r.type for r in found][1:16] == [
        "prompt:submit",
        "context:message_added",
        "context:request_prepared",
        "provider:request",
        "context:message_added",
        "provider:response",
        "usage:reported",
        "tool:pre",
        "tool:pre",
        "tool:post",
        "context:message_added",
        "tool:error",
        "context:message_added",
        "context:request_prepared",
        "provider:request",
    ]
    by_type: dict[str, list[Record]] = {}
    for record in found:
        by_type.setdefault(record.type, []).append(record)
    turn, request = by_type["prompt:submit"][0], by_type["provider:request"][0]
    pre = by_type["tool:pre"]
    assert request.parent_span_id == turn.span_id
    assert [r.parent_span_id for r in pre] == [request.span_id] * 2
    assert pre[0].span_id != pre[1].span_id
    assert by_type["tool:post"][0].span_id == pre[0].span_id
    assert by_type["tool:error"][0].span_id == pre[1].span_id
    prepared = by_type["context:request_prepared"][0]
    usage = decode_event(by_type["usage:reported"][0])
    assert usage.prepared == prepared.position == decode_event(request).prepared  # type: ignore[union-attr]
    assert all(len(r.span_id or "0" * 16) == 16 for r in found)
    assert {r.type for r in found} <= set(CATALOGUE)


async def test_a_turn_ends_before_the_next_and_the_last_one_stays_open(tmp_path: Path) -> None:
    store, session = await imported(tmp_path, tool_loop().data())
    assert len(await events(store, session, "prompt:complete")) == 1
    store, session = await imported(tmp_path, tool_loop().data(), complete=True)
    assert len(await events(store, session, "prompt:complete")) == 2


async def test_the_view_after_a_boundary_starts_with_the_summary(tmp_path: Path) -> None:
    log = tool_loop().system("compact_boundary", compactMetadata={"trigger": "manual"})
    log.user("In short: …", isCompactSummary=True).user("go on").answer("m4", text("ok"))
    store, session = await imported(tmp_path, log.data(), complete=True)
    state = request_view.initial()
    views = []
    for record in await records(store, session):
        if record.type == "context:request_prepared":
            views.append((state, decode_event(record)))
        state = request_view.evolve(state, record)
    view, prepared = views[-1]
    entries = view.layout.entries()
    assert [entry.kind for entry in entries] == ["insertion", "message"]
    assert prepared.digest == view.layout.measure()[0]  # type: ignore[union-attr]
    post = (await events(store, session, "context:post_compact"))[0]
    assert (post.outcome, post.trigger, post.strategy) == ("applied", "imported", "imported")
    assert post.requested_by == "claude-code:manual"
    assert [tuple(run)[:3] for run in map(_plain, post.plan.runs)] == [(0, 6, "summarised")]
    assert post.plan.insertions[0].stands_for == ((0, 6),)
    assert post.messages_after == 1
    body = next(r for r in await records(store, session) if r.type == "context:post_compact")
    assert decode_body(body.bodies[0].data or b"")["content"] == "In short: …"


def _plain(run: Any) -> tuple[int, int, str]:
    return run.first, run.last, run.disposition


async def test_a_system_prompt_outlives_a_replacement_history(tmp_path: Path) -> None:
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]}
    log = Codex().says("developer", "rules").says("user", "x").says("assistant", "y")
    log.line("compacted", message="", replacement_history=[user, user])
    store, session = await imported(tmp_path, log.says("assistant", "z").data())
    post = (await events(store, session, "context:post_compact"))[0]
    assert [_plain(run) for run in post.plan.runs] == [(0, 1, "kept"), (2, 3, "summarised")]
    assert [i.body for i in post.plan.insertions] == [0, 1]


async def test_large_files_are_cut_into_many_raw_records(tmp_path: Path) -> None:
    log = ClaudeCode().user("go")
    for _ in range(40):
        log.progress(output="x" * 10_000)
    store, session = await imported(tmp_path, log.data())
    found = await events(store, session, "import:raw")
    assert len(found) == 4
    ranges = [event.lines for event in found]
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges))


async def test_a_compaction_is_estimated_as_the_requests_around_it_and_keeps_the_files_size(
    tmp_path: Path,
) -> None:
    meta = {"trigger": "auto", "preTokens": 167_000}
    log = ClaudeCode().user("go").answer("m1", text("a")).user("on").answer("m2", text("b"))
    log.system("compact_boundary", compactMetadata=meta)
    log.user("In short: …", isCompactSummary=True).user("next").answer("m3", text("c"))
    store, session = await imported(tmp_path, log.data(), complete=True)
    (ended,) = await events(store, session, "context:post_compact")
    *_, before, after = await events(store, session, "context:request_prepared")
    assert ended.tokens_recorded == 167_000
    assert 500 < ended.reserve <= before.reserve
    # The first request after a compaction has what the program sends again with its summary.
    assert after.reserve == before.reserve + RESENT
    assert ended.reserve < ended.tokens_after < ended.tokens_before
    assert ended.tokens_before <= before.tokens
    assert ended.estimator == before.estimator == after.estimator
    assert ended.tokens_after <= after.tokens
    (row,) = (await audit_session(store, session)).compactions
    assert row.figures is not None
    assert (row.figures.before, row.figures.after, row.figures.recorded) == (543, 543, 167_000)
    assert not row.figures.estimated
