"""What each event says about its span: name and attributes at the start, status at the end.

Pure functions of one event. Names come from ``semconv``; attributes that are None are left out,
zeros stay. No content is in them: no message text, no tool input or output.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from eventctx import events
from eventctx.projections import semconv as conv
from eventctx.projections.flat import Scalar, capped, dispositions, scalars
from eventctx.record import Record

Attribute = Scalar | tuple[str, ...]
Attributes = dict[str, Attribute]
Family = Literal["turn", "chat", "tool", "plan", "compact"]
Kind = Literal["internal", "client"]
SpanStatus = Literal["unset", "error"]

_TYPE_NAME: Final = re.compile(r"[A-Za-z_][\w.:-]{0,127}")


class Opening(NamedTuple):
    """How a span begins."""

    family: Family
    name: str
    attributes: Attributes
    kind: Kind = "internal"


class Closing(NamedTuple):
    """How a span ends. Success stays ``unset``: a status of OK would be final."""

    family: Family
    status: SpanStatus
    message: str | None
    attributes: Attributes


def identity(record: Record) -> Attributes:
    """The attributes that every span carries."""
    found: Attributes = {
        conv.CONVERSATION_ID: record.stream,
        conv.SESSION_ID: record.stream,
        conv.EVENT_SEQ: record.position,
    }
    if record.turn_id is not None:
        found[conv.TURN_ID] = record.turn_id
    if record.iteration is not None:
        found[conv.ITERATION] = record.iteration
    return found


def opening(event: object) -> Opening | None:
    """How the span that this event begins begins; None when it begins none."""
    match event:
        case events.PromptSubmit():
            said = _given({conv.AGENT_NAME: event.agent, conv.TURN_NUMBER: event.number})
            return _opening("turn", conv.INVOKE_AGENT, event.agent or "agent", said)
        case events.ProviderRequest():
            said = _given({conv.REQUEST_MODEL: event.model, conv.PROVIDER_NAME: event.provider})
            return _opening("chat", conv.CHAT, event.model, said, "client")
        case events.ToolPre():
            said = _given({conv.TOOL_NAME: event.name, conv.TOOL_CALL_ID: event.call_id})
            return _opening("tool", conv.EXECUTE_TOOL, event.name, said)
        case events.PlanStart():
            return _opening("plan", conv.PLAN, event.name, {})
        case events.PreCompact() | events.PostCompact():
            said = _given(
                {
                    conv.COMPACTION + "trigger": event.trigger,
                    conv.COMPACTION + "strategy": event.strategy,
                    conv.COMPACTION + "strategy_version": event.strategy_version,
                    conv.COMPACTION + "tokens.budget": event.budget,
                    conv.COMPACTION + "tokens.threshold": event.threshold,
                    conv.COMPACTION + "requested_by": event.requested_by,
                }
            )
            if isinstance(event, events.PreCompact):
                said[conv.COMPACTION + "tokens.before"] = event.tokens
                said[conv.COMPACTION + "messages.before"] = event.messages
            return _opening("compact", conv.COMPACT, event.strategy, said)
    return None


def closing(event: object, position: int) -> Closing | None:
    """How the span of this event, the record at ``position``, ends; None when it ends none."""
    match event:
        case events.PromptComplete():
            return _ended("turn", event.status, event.error)
        case events.PlanEnd():
            return _ended("plan", event.status, event.error)
        case events.ProviderResponse():
            said = _given({conv.RESPONSE_MODEL: event.model, conv.RESPONSE_ID: event.response_id})
            if event.finish_reason is not None:
                said[conv.FINISH_REASONS] = (event.finish_reason,)
            return _ended("chat", "ok", None, said)
        case events.ProviderError():
            said = {conv.ERROR_TYPE: event.error_type}
            return _ended("chat", event.status, event.message, said)
        case events.ToolPost():
            return _ended("tool", "ok", None)
        case events.ToolError():
            said = {conv.ERROR_TYPE: event.error_type}
            return _ended("tool", event.status, event.message, said)
        case events.PostCompact():
            return _compacted(event, position)
    return None


def usage(event: events.UsageReported) -> Attributes:
    """Token counts of a call; ``input_tokens`` includes what the provider read from its cache."""
    found: Attributes = {
        conv.INPUT_TOKENS: event.prompt,
        conv.OUTPUT_TOKENS: event.output,
        conv.CACHE_READ_TOKENS: event.cache_read,
        conv.CACHE_WRITE_TOKENS: event.cache_write,
        conv.REASONING_TOKENS: event.reasoning,
    }
    if not event.output_exact:
        found["eventctx.usage.output_exact"] = False
    return found


def prepared(record: Record, event: events.RequestPrepared) -> Attributes:
    """What a chat span says of the request that it sends."""
    found: Attributes = {
        f"{conv.REQUEST}{name}": value
        for name, value in scalars(event).items()
        if not name.endswith("_count")
    }
    found[conv.REQUEST + "seq"] = record.position
    return found


def in_force(plan: int | None) -> Attributes:
    """Say that a compacted view was sent, by the plan of the post_compact at position ``plan``."""
    if plan is None:
        return {}
    return {conv.CONVERSATION_COMPACTED: True, conv.COMPACTION_LAST_ID: plan}


def tick(record: Record, event: object) -> Attributes:
    """Attributes of a record that is shown as an event on a span."""
    found: Attributes = {conv.EVENT_SEQ: record.position}
    for name, value in scalars(event).items():  # type: ignore[arg-type]
        found[f"eventctx.{name}"] = value
    return found


def _opening(
    family: Family, operation: str, subject: str | None, said: Attributes, kind: Kind = "internal"
) -> Opening:
    name = f"{operation} {subject}" if subject else operation
    return Opening(family, name, {conv.OPERATION: operation, **said}, kind)


def _ended(
    family: Family, outcome: str, message: str | None, said: Attributes | None = None
) -> Closing:
    """A cancelled span is no failure: its status stays unset, and the outcome tells it apart."""
    attributes: Attributes = {conv.OUTCOME: outcome, **(said or {})}
    failed = outcome in ("error", "failed")
    if failed:
        attributes.setdefault(conv.ERROR_TYPE, _error_type(message))
    elif outcome == "cancelled":
        attributes.setdefault(conv.ERROR_TYPE, "cancelled")
    return Closing(
        family, "error" if failed else "unset", capped(message) if message else None, attributes
    )


def _compacted(event: events.PostCompact, position: int) -> Closing:
    before, after = event.tokens_before, event.tokens_after
    said: Attributes = {
        conv.COMPACTION_ID: position,
        "outcome": event.outcome,
        "tokens.before": before,
        "tokens.after": after,
        "tokens.reclaimed": before - after,
        "tokens.source": "estimate",
        "tokens.estimator": event.estimator,
        "tokens.factor": event.factor,
        "messages.before": event.messages_before,
        "messages.after": event.messages_after,
        "messages.removed": event.messages_before - event.messages_after,
    }
    if before:
        said["ratio"] = round(after / before, 4)
    said |= _given({"tokens.target": event.target, "fallback": event.fallback})
    if event.plan is not None:
        counts = dispositions(event.plan)
        said["preserved"] = counts["kept"]
        said |= {f"numbers.{name}": count for name, count in counts.items()}
        gone = [run for run in event.plan.runs if run.disposition != "kept"]
        if gone:
            said["source.first_number"], said["source.last_number"] = gone[0].first, gone[-1].last
    named = {
        name if name == conv.COMPACTION_ID else conv.COMPACTION + name: value
        for name, value in said.items()
    }
    if event.outcome == "applied":
        named[conv.CONVERSATION_COMPACTED] = True
    closed = _ended("compact", event.outcome, event.error, named)
    if event.outcome == "applied":
        closed.attributes[conv.OUTCOME] = "ok"
    return closed


def _error_type(message: str | None) -> str:
    """Return ``message`` where it is the name of a type, else the conventions' fallback."""
    if message is not None and _TYPE_NAME.fullmatch(message):
        return message
    return conv.ERROR_OTHER


def _given(values: dict[str, str | int | float | None]) -> Attributes:
    return {name: value for name, value in values.items() if value is not None}
