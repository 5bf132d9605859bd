"""eventctx: an event-sourced context engine for LLM agents.

Every add, set and clear of an agent's context is an immutable event; the transcript, the views
that the model is sent, and the audit of every request are derived from the log.

    async with eventctx.open("sqlite:///contexts.db") as engine:
        ctx = await engine.session("my-session", max_tokens=200_000)

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eventctx.version import __version__

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.engine import open_engine as open  # noqa: A004
    from eventctx.errors import (
        CompactionError,
        ContextOverflow,
        DecodeError,
        EventctxError,
        ExportFailed,
        HookError,
        InvalidMessage,
        InvalidPlan,
        InvalidSessionId,
        InvalidSetting,
        LogCorrupted,
        MalformedTranscript,
        NotAStore,
        ProviderFailed,
        SourceChanged,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreTooNew,
        StoreUnavailable,
        StreamExists,
        StreamNotFound,
        ToolFailed,
        TranscriptError,
        TurnError,
        UnknownEventName,
        UnknownFormat,
        UpcastMissing,
        WrongExpectedVersion,
    )
    from eventctx.log.record import Record
    from eventctx.log.store import Receipt, StreamInfo
    from eventctx.messages.visibility import for_audience
    from eventctx.policies.advisers import ModelAnswer, ScoreRequest, SummaryRequest
    from eventctx.policies.interception import CompactionAsked, Verdict
    from eventctx.queries.audit import Audit
    from eventctx.queries.requests import Message, RequestView
    from eventctx.queries.verify import Problem, Verification
    from eventctx.search.recall import Recalled, RecallTool
    from eventctx.session.context import Context
    from eventctx.session.result import CompactionResult
    from eventctx.session.settings import Settings, UnknownSetting
    from eventctx.session.turns import Iteration, PlanPhase, ProviderCall, ToolCall, Turn

_HOMES = {
    "Audit": "queries.audit",
    "CompactionAsked": "policies.interception",
    "CompactionError": "errors",
    "CompactionResult": "session.result",
    "Context": "session.context",
    "ContextOverflow": "errors",
    "DecodeError": "errors",
    "Engine": "engine",
    "EventctxError": "errors",
    "ExportFailed": "errors",
    "HookError": "errors",
    "InvalidMessage": "errors",
    "InvalidPlan": "errors",
    "InvalidSessionId": "errors",
    "InvalidSetting": "errors",
    "Iteration": "session.turns",
    "LogCorrupted": "errors",
    "MalformedTranscript": "errors",
    "Message": "queries.requests",
    "ModelAnswer": "policies.advisers",
    "NotAStore": "errors",
    "PlanPhase": "session.turns",
    "Problem": "queries.verify",
    "ProviderCall": "session.turns",
    "ProviderFailed": "errors",
    "RecallTool": "search.recall",
    "Recalled": "search.recall",
    "Receipt": "log.store",
    "Record": "log.record",
    "RequestView": "queries.requests",
    "ScoreRequest": "policies.advisers",
    "Settings": "session.settings",
    "SourceChanged": "errors",
    "StoreError": "errors",
    "StoreFull": "errors",
    "StoreReadOnly": "errors",
    "StoreTooNew": "errors",
    "StoreUnavailable": "errors",
    "StreamExists": "errors",
    "StreamInfo": "log.store",
    "StreamNotFound": "errors",
    "SummaryRequest": "policies.advisers",
    "ToolCall": "session.turns",
    "ToolFailed": "errors",
    "TranscriptError": "errors",
    "Turn": "session.turns",
    "TurnError": "errors",
    "UnknownEventName": "errors",
    "UnknownFormat": "errors",
    "UnknownSetting": "session.settings",
    "UpcastMissing": "errors",
    "Verdict": "policies.interception",
    "Verification": "queries.verify",
    "WrongExpectedVersion": "errors",
    "for_audience": "messages.visibility",
}

__all__ = [
    "Audit",
    "CompactionAsked",
    "CompactionError",
    "CompactionResult",
    "Context",
    "ContextOverflow",
    "DecodeError",
    "Engine",
    "EventctxError",
    "ExportFailed",
    "HookError",
    "InvalidMessage",
    "InvalidPlan",
    "InvalidSessionId",
    "InvalidSetting",
    "Iteration",
    "LogCorrupted",
    "MalformedTranscript",
    "Message",
    "ModelAnswer",
    "NotAStore",
    "PlanPhase",
    "Problem",
    "ProviderCall",
    "ProviderFailed",
    "RecallTool",
    "Recalled",
    "Receipt",
    "Record",
    "RequestView",
    "ScoreRequest",
    "Settings",
    "SourceChanged",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnavailable",
    "StreamExists",
    "StreamInfo",
    "StreamNotFound",
    "SummaryRequest",
    "ToolCall",
    "ToolFailed",
    "TranscriptError",
    "Turn",
    "TurnError",
    "UnknownEventName",
    "UnknownFormat",
    "UnknownSetting",
    "UpcastMissing",
    "Verdict",
    "Verification",
    "WrongExpectedVersion",
    "__version__",
    "for_audience",
    "open",
]


def __getattr__(name: str) -> Any:
    if name == "open":
        value: Any = import_module("eventctx.engine").open_engine
    elif name in _HOMES:
        value = getattr(import_module(f"eventctx.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'eventctx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
