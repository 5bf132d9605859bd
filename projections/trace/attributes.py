"""The span of each event: name and attributes at its start, status and attributes at its end.

Pure functions of one event. Names come from ``semconv``; attributes that are None are left out,
zeros stay. They hold no content: no message text, no tool input or output.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from eventctx.log import events
from eventctx.log.codec import Unknown
from eventctx.log.naming import ranges_name
from eventctx.log.record import Record
from eventctx.projections.flat import Scalar, clip_field, scalars
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.compaction import at_end, at_start

Attribute = Scalar | tuple[str, ...]
Attributes = dict[str, Attribute]
Family = Literal["turn", "chat", "tool", "plan", "compact"]
Kind = Literal["internal", "client"]
SpanStatus = Literal["unset", "error"]

# Constants, since every model call has these and a joined name costs time.
_SEQ: Final = f"{conv.REQUEST}seq"
_TOKENS: Final = f"{conv.REQUEST}estimated_tokens"
_MESSAGES: Final = f"{conv.REQUEST}messages"
_LAST_MESSAGE: Final = f"{conv.REQUEST}last_message"
_TRANSFORMED: Final = f"{conv.OURS}response.transformed"
_UNBOUND: Final = f"{conv.REQUEST}unbound"
_RENDERER: Final = f"{conv.REQUEST}renderer"
_ESTIMATOR: Final = f"{conv.REQUEST}estimator"
_FACTOR: Final = f"{conv.REQUEST}factor"
_RESERVE: Final = f"{conv.REQUEST}reserve"
_BUDGET: Final = f"{conv.REQUEST}budget"
_MODEL: Final = f"{conv.REQUEST}model"
_TOOLS: Final = f"{conv.REQUEST}tools_digest"
_BREAKS: Final = f"{conv.REQUEST}breaks"
_INSERTIONS: Final = f"{conv.REQUEST}insertions_count"
_FLOOR: Final = f"{conv.REQUEST}floor_sent"
_RECONSTRUCTED: Final = f"{conv.REQUEST}reconstructed"
_WIRE: Final = f"{conv.REQUEST}wire"
_INJECTED: Final = f"{conv.REQUEST}wire_injected"
_ERROR: Final = f"{conv.OURS}error"

_ESTIMATES: Final = frozenset(
    (
        ("context:pre_compact", "tokens"),
        ("context:post_compact", "tokens_before"),
        ("context:post_compact", "tokens_after"),
        ("context:request_prepared", "tokens"),
    )
)
"""Fields recorded before a provider has counted anything."""

_FAILED: Final = ("error", "failed", "lost")


class SpanStart(NamedTuple):
    """The beginning of a span."""

    family: Family
    name: str
    attributes: Attributes
    kind: Kind = "internal"


class Closing(NamedTuple):
    """The end of a span. A success has status ``unset``, since a status of OK would be final."""

    family: Family
    status: SpanStatus
    message: str | None
    attributes: Attributes


def identity_attributes(record: Record) -> Attributes:
    """The attributes that every span has."""
    found: Attributes = {
        conv.CONVERSATION_ID: record.stream,
        conv.SESSION_ID: record.stream,
        conv.SEARCHED_ID: record.stream,
        conv.EVENT_SEQ: record.position,
    }
    if record.turn_id is not None:
        found[conv.TURN_ID] = record.turn_id
    if record.iteration is not None:
        found[conv.ITERATION] = record.iteration
    return found


def opening(event: object) -> SpanStart | None:
    """The beginning of this event's span; None if the event begins no span."""
    rule = _OPENINGS.get(type(event))
    return None if rule is None else rule(event)


def closing(event: object, record: Record) -> Closing | None:
    """The end of the span of this event of ``record``; None if the event ends no span."""
    rule = _CLOSINGS.get(type(event))
    return None if rule is None else rule(event, record)


def usage_attributes(event: events.UsageReported) -> Attributes:
    """Token counts of a call; ``input_tokens`` includes those read from the provider's cache.

    A count that was not recorded has no attribute: a prompt of 0, an output that is a placeholder.
    """
    found: Attributes = {
        conv.CACHE_READ_TOKENS: event.cache_read,
        conv.CACHE_WRITE_TOKENS: event.cache_write,
        conv.CACHE_CREATION_TOKENS: event.cache_write,
        conv.REASONING_TOKENS: event.reasoning,
    }
    if event.prompt:
        found[conv.INPUT_TOKENS] = event.prompt
    if event.output_exact:
        found[conv.OUTPUT_TOKENS] = event.output
    else:
        found[conv.OUTPUT_EXACT] = False
    return found


def request_attributes(record: Record, event: events.RequestPrepared) -> Attributes:
    """The attributes of a chat span about the request that it sends; flags only if they are set."""
    found: Attributes = {
        _SEQ: record.position,
        conv.REQUEST_DIGEST: event.digest,
        _TOKENS: event.tokens,
        _MESSAGES: event.messages,
        _LAST_MESSAGE: event.last_message,
        _RENDERER: event.renderer,
        _ESTIMATOR: event.estimator,
        _FACTOR: event.factor,
        _RESERVE: event.reserve,
    }
    for name, value in (
        (_BUDGET, event.budget),
        (conv.REQUEST_PLAN, event.plan),
        (_MODEL, event.model),
        (_TOOLS, event.tools_digest),
    ):
        if value is not None:
            found[name] = value
    if event.breaks:
        found[_BREAKS] = ",".join(
            [conv.PLAN if one == "compaction" else one for one in event.breaks]
        )
    if event.unbound:
        found[_UNBOUND] = ranges_name(event.unbound)
    if event.insertions:
        found[_INSERTIONS] = len(event.insertions)
    if event.demands_absent is not None:
        found[conv.INSTRUCTIONS_ABSENT] = event.demands_absent
    if event.floor_sent:
        found[_FLOOR] = True
    if event.wire is not None:
        found[_WIRE] = event.wire.digest
        found[_INJECTED] = event.wire.injected
    elif event.reconstructed:
        found[_RECONSTRUCTED] = True
    return found


def plan_attributes(plan: int | None) -> Attributes:
    """The attributes of a request with a compacted view; ``plan``: position of the post_compact."""
    if plan is None:
        return {}
    return {conv.CONVERSATION_COMPACTED: True, conv.REQUEST_PLAN: plan}


def provider_name(said: str) -> str:
    """A provider's name in the conventions' word, where a host has another one for it."""
    return conv.PROVIDERS.get(said.lower().replace("_", "-"), said)


def chat_name(model: object) -> str:
    """The name of a model call's span; ``model`` is the model's name, if it is known."""
    return f"{conv.CHAT} {model}" if model else conv.CHAT


def event_attributes(record: Record, event: events.Event | Unknown) -> Attributes:
    """The attributes of a record that is shown as an event on a span."""
    found: Attributes = {conv.EVENT_SEQ: record.position, **scalars(event, _of_event)}
    if isinstance(event, events.PostCompact) and event.outcome != "applied":
        found.pop(_ERROR, None)  # the status of its span says it, or the sentence
    return found


def _of_event(kind: str, field: str) -> str:
    return f"{conv.OURS}estimated_{field}" if (kind, field) in _ESTIMATES else conv.OURS + field


def _turn(event: events.PromptSubmit) -> SpanStart:
    known: Attributes = {conv.OPERATION: conv.INVOKE_AGENT, conv.TURN_PLANS: 0}
    if event.agent is not None:
        known[conv.AGENT_NAME] = event.agent
    if event.number is not None:
        known[conv.TURN_NUMBER] = event.number
    return SpanStart("turn", _span_name(conv.INVOKE_AGENT, event.agent), known)


def _chat(event: events.ProviderRequest) -> SpanStart:
    known: Attributes = {conv.OPERATION: conv.CHAT}
    if event.model is not None:
        known[conv.REQUEST_MODEL] = event.model
    if event.provider is not None:
        known[conv.PROVIDER_NAME] = provider_name(event.provider)
    if event.stream:
        known[conv.REQUEST_STREAM] = True
    if event.max_tokens is not None:
        known[conv.REQUEST_MAX_TOKENS] = event.max_tokens
    if event.server is not None:
        known[conv.SERVER_ADDRESS] = event.server
        if event.port is not None:
            known[conv.SERVER_PORT] = event.port
    return SpanStart("chat", chat_name(event.model), known, "client")


def _tool(event: events.ToolPre) -> SpanStart:
    known: Attributes = {
        conv.OPERATION: conv.EXECUTE_TOOL,
        conv.TOOL_NAME: event.name,
        conv.TOOL_TYPE: conv.FUNCTION,
    }
    if event.call_id is not None:
        known[conv.TOOL_CALL_ID] = event.call_id
    return SpanStart("tool", _span_name(conv.EXECUTE_TOOL, event.name), known)


def _plan(event: events.PlanStart) -> SpanStart:
    known: Attributes = {conv.OPERATION: conv.PLAN}
    if event.name is not None:
        known[conv.PLAN_NAME] = event.name
    return SpanStart("plan", conv.PLAN, known)


def _compaction(event: events.PreCompact | events.PostCompact) -> SpanStart:
    known: Attributes = {conv.OPERATION: conv.COMPACT, **at_start(event)}
    return SpanStart("compact", _span_name(conv.COMPACT, event.strategy), known)


def _end_of_answer(event: events.ProviderResponse, _record: Record) -> Closing:
    known: Attributes = {}
    if event.model is not None:
        known[conv.RESPONSE_MODEL] = event.model
    if event.provider is not None:
        known[conv.PROVIDER_NAME] = provider_name(event.provider)
    if event.response_id is not None:
        known[conv.RESPONSE_ID] = event.response_id
    if event.finish_reason is not None:
        known[conv.FINISH_REASONS] = (event.finish_reason,)
    if event.transformed:
        said = [f"{one.path}: {one.kind} ({one.reason})" for one in event.transformed]
        known[_TRANSFORMED] = tuple(said)
    return _end("chat", "ok", None, known)


def _span_name(operation: str, subject: str | None) -> str:
    return f"{operation} {subject}" if subject else operation


def _end(
    family: Family,
    outcome: str,
    message: str | None,
    known: Attributes | None = None,
    *,
    recorded: str | None = None,
) -> Closing:
    """The end of a span. Cancellation is no failure: the status is unset, the outcome names it.

    A lost span is one: its process ended unwanted, and its outcome is not known. The error's
    type is ``recorded``, or at the start of ``message``; the words are told once, without it.
    """
    attributes: Attributes = {conv.OUTCOME: outcome}
    if known:
        attributes.update(known)
    if outcome not in _FAILED and outcome != "cancelled":
        return Closing(family, "unset", clip_field(message) if message else None, attributes)
    failed = outcome in _FAILED
    error = error_of(recorded, message, conv.ERROR_OTHER if failed else "cancelled")
    attributes[conv.ERROR_TYPE] = error.type
    words = clip_field(error.words) if error.words else None
    return Closing(family, "error" if failed else "unset", words, attributes)


def _end_of_failure(family: Family, event: events.ProviderError | events.ToolError) -> Closing:
    # The conventions' word for a generation that ended without its own reason.
    known: Attributes = {conv.FINISH_REASONS: ("error",)} if family == "chat" else {}
    return _end(family, event.status, event.message, known, recorded=event.error_type)


def _end_of_compaction(event: events.PostCompact, record: Record) -> Closing:
    known = at_end(event, record)
    closed = _end("compact", event.outcome, event.error, known)
    if event.outcome == "applied":
        closed.attributes[conv.OUTCOME] = "ok"
    if event.fallback is not None:
        # The compaction succeeded, so the status is no error's; the policy's failure is told here.
        closed.attributes[conv.ERROR_TYPE] = error_of(None, event.error).type
    return closed


_OPENINGS: Final[dict[type[Any], Callable[[Any], SpanStart]]] = {
    events.PromptSubmit: _turn,
    events.ProviderRequest: _chat,
    events.ToolPre: _tool,
    events.PlanStart: _plan,
    events.PreCompact: _compaction,
    events.PostCompact: _compaction,
}

_CLOSINGS: Final[dict[type, Callable[[Any, Record], Closing]]] = {
    events.PromptComplete: lambda event, _: _end("turn", event.status, event.error),
    events.PlanEnd: lambda event, _: _end("plan", event.status, event.error),
    events.ProviderResponse: _end_of_answer,
    events.ProviderError: lambda event, _: _end_of_failure("chat", event),
    events.ToolPost: lambda event, _: _end("tool", "ok", None),
    events.ToolError: lambda event, _: _end_of_failure("tool", event),
    events.PostCompact: _end_of_compaction,
}

SPANS: Final = frozenset((*_OPENINGS, *_CLOSINGS))
"""The events that begin or end a span."""
OPENS: Final = frozenset(str(kind.__struct_config__.tag) for kind in _OPENINGS)
"""The types of record that begin a span; a post_compact does if no pre_compact did."""


MAX_CHARACTERS: Final = 128
"""Most characters of a type."""

_CODE: Final = re.compile(rf"[\w.:-]{{1,{MAX_CHARACTERS}}}")
_CLASS_FIRST: Final = re.compile(r"((?:\w+\.)*(?:_*[A-Z]\w*|\w*(?:error|exception))|[45]\d\d):\s")
_CLASS_ALONE: Final = re.compile(
    r"(?=\w*[a-z0-9][A-Z]|[\w.]*_|\w*Error|[\w.]*\.[A-Z])[A-Za-z_][\w.]*"
)
"""A word that no sentence has: ``LimitsExceeded``, ``exit_cost``, ``httpx.ReadTimeout``."""
_SAYS_NOTHING: Final = ("", "Error")
"""Recorded where the one who recorded the error knew no type."""


class NamedError(NamedTuple):
    """An error's type, and its words without it; None where the type is all that is known."""

    type: str
    words: str | None


def error_of(
    recorded: str | None, message: str | None, otherwise: str = conv.ERROR_OTHER
) -> NamedError:
    """The error of a record: the recorded type, else one that its text names, else ``otherwise``.

    Hosts may have recorded a message as the type. A text names a class or an HTTP status at its
    start, ``ValueError: no``, or is the name alone.
    """
    kind, text = recorded or "", message or ""
    if not _CODE.fullmatch(kind):
        kind, text = "", text or kind
    if kind in _SAYS_NOTHING:
        kind = _type_in(text)
    words = text.removeprefix(kind).removeprefix(":").lstrip() if _begins(text, kind) else text
    return NamedError(kind or otherwise, words or None)


def _type_in(text: str) -> str:
    if _CLASS_ALONE.fullmatch(text, endpos=MAX_CHARACTERS + 1) and len(text) <= MAX_CHARACTERS:
        return text
    found = _CLASS_FIRST.match(text, 0, MAX_CHARACTERS + 2)
    return "" if found is None else found[1]


def _begins(text: str, kind: str) -> bool:
    return bool(kind) and (text == kind or text.startswith(f"{kind}: "))
