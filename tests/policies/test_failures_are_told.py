"""A policy that fails is told: in the log line, on the span, and in the audit, from one record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

import eventctx
from eventctx.cli.commands.audit import compaction_line
from eventctx.hooks.log import LogSink, level_of, lines
from eventctx.log.events import PostCompact
from eventctx.policies.policy import Proposal
from eventctx.projections.flat import read
from eventctx.queries.spans import spans


def breaks_a_rule(visible: Any, budget: Any, state: Any) -> Proposal:
    return Proposal({})


async def down(request: Any) -> Any:
    raise ConnectionError("the model is down")


async def too_slow(request: Any) -> Any:
    await asyncio.Event().wait()


CASES: list[tuple[dict[str, Any], str]] = [
    ({"policy": breaks_a_rule}, "InvalidPlan"),
    ({"policy": "summarize", "summarizer": down}, "ConnectionError"),
    ({"policy": "summarize", "summarizer": too_slow, "adviser_timeout": 0.1}, "TimeoutError"),
]


@pytest.mark.parametrize(("given", "kind"), CASES)
async def test_a_policy_that_fails_is_told_in_the_log_line_on_the_span_and_in_the_audit(
    given: dict[str, Any], kind: str
) -> None:
    logger = CapturingLogger()
    async with eventctx.open() as engine:
        engine.on("*", LogSink(structlog.wrap_logger(logger, processors=[])))
        context = await engine.session("s", max_tokens=3_000, **given)
        for number in range(20):
            await context.add_message({"role": "user", "content": f"{number} " + "word " * 50})
            await context.add_message({"role": "assistant", "content": "fine " * 60})
        await context.get_messages_for_request()
        records = [record async for record in engine.records("s")]
        audit = await engine.audit("s")
        found = [span async for span in spans(engine.store, "s")]

    (event,) = [one for one in map(read, records) if isinstance(one, PostCompact)]
    assert (event.outcome, event.fallback) == ("applied", "ladder")
    assert (event.error or "").startswith(f"{kind}: ")

    (line,) = [call for call in logger.calls if "fallback" in call.kwargs]
    assert line.method_name == "warning"
    assert line.kwargs["strategy"] == event.strategy
    assert line.kwargs["error"] == event.error
    (replayed,) = [one for one in lines(records) if "fallback" in one]
    assert replayed["error"] == event.error

    (row,) = audit.compactions
    assert (row.fallback, row.error) == ("ladder", event.error)
    shown = "".join(part if isinstance(part, str) else part[0] for part in compaction_line(row))
    assert f"ladder decided, as {event.strategy} failed: {event.error}" in shown

    (span,) = [one for one in found if one.name.startswith("compact ")]
    assert span.status == "unset"  # the compaction itself succeeded
    assert span.attributes["error.type"] == kind
    assert span.attributes["eventctx.compaction.fallback"] == "ladder"
    (ended,) = [one for one in span.events if one.name == "context:post_compact"]
    assert ended.attributes["eventctx.error"] == event.error


def test_the_line_of_a_compaction_is_a_warning_only_where_the_policy_failed() -> None:
    applied = {"event": "context:post_compact", "outcome": "applied"}
    assert level_of(applied) == "info"
    assert level_of({**applied, "fallback": "ladder"}) == "warning"
