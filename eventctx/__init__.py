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
    from eventctx.auditing import Audit
    from eventctx.context import Context
    from eventctx.engine import Engine
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
    from eventctx.opening import open_engine as open  # noqa: A004
    from eventctx.projections.visibility import for_audience
    from eventctx.reading import Message, RequestView
    from eventctx.recalling import Recalled, RecallTool
    from eventctx.record import Record
    from eventctx.result import CompactionResult
    from eventctx.settings import Settings, UnknownSetting
    from eventctx.store import Receipt, StreamInfo
    from eventctx.summarizer import ModelAnswer, ScoreRequest, SummaryRequest
    from eventctx.turns import Iteration, PlanPhase, ProviderCall, ToolCall, Turn
    from eventctx.verdict import CompactionAsked, Verdict
    from eventctx.verify import Problem, Verification

_HOMES = {
    "Audit": "auditing",
    "CompactionAsked": "verdict",
    "CompactionError": "errors",
    "CompactionResult": "result",
    "Context": "context",
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
    "Iteration": "turns",
    "LogCorrupted": "errors",
    "MalformedTranscript": "errors",
    "Message": "reading",
    "ModelAnswer": "summarizer",
    "NotAStore": "errors",
    "PlanPhase": "turns",
    "Problem": "verify",
    "ProviderCall": "turns",
    "ProviderFailed": "errors",
    "RecallTool": "recalling",
    "Recalled": "recalling",
    "Receipt": "store",
    "Record": "record",
    "RequestView": "reading",
    "ScoreRequest": "summarizer",
    "Settings": "settings",
    "SourceChanged": "errors",
    "StoreError": "errors",
    "StoreFull": "errors",
    "StoreReadOnly": "errors",
    "StoreTooNew": "errors",
    "StoreUnavailable": "errors",
    "StreamExists": "errors",
    "StreamInfo": "store",
    "StreamNotFound": "errors",
    "SummaryRequest": "summarizer",
    "ToolCall": "turns",
    "ToolFailed": "errors",
    "TranscriptError": "errors",
    "Turn": "turns",
    "TurnError": "errors",
    "UnknownEventName": "errors",
    "UnknownFormat": "errors",
    "UnknownSetting": "settings",
    "UpcastMissing": "errors",
    "Verdict": "verdict",
    "Verification": "verify",
    "WrongExpectedVersion": "errors",
    "for_audience": "projections.visibility",
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
        value: Any = import_module("eventctx.opening").open_engine
    elif name in _HOMES:
        value = getattr(import_module(f"eventctx.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'eventctx' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
