"""The kit that adapters for agent frameworks are made of: a host's list of messages as a session.

``docs/how-to/write-an-adapter.md`` makes one with it, ``docs/reference/adapter-kit.md`` lists it.
"""

from __future__ import annotations

from eventctx.adapters.kit.given_engine import GivenEngine, OpenSessions
from eventctx.adapters.kit.host_list import HostList, held_against, plain_identity
from eventctx.adapters.kit.host_run import (
    HostRun,
    RunStep,
    ToolEnd,
    call_failed,
    is_cancellation,
    tool_failed,
    turn_failed,
)
from eventctx.adapters.kit.host_session import HostSession
from eventctx.adapters.kit.loops import EngineLoop, context_in_loop, engine_in_loop, run_in, wait_in
from eventctx.adapters.kit.nested import (
    ToolAround,
    begin_turn,
    inside_tool,
    nested_session_id,
    tool_around,
    tool_entered,
    tool_left,
)
from eventctx.adapters.kit.recordable import recordable
from eventctx.log.turn_recorder import CallSettings, read_settings
from eventctx.log.usage import Usage
from eventctx.session.host_turns import HostReporter

__all__ = [
    "CallSettings",
    "EngineLoop",
    "GivenEngine",
    "HostList",
    "HostReporter",
    "HostRun",
    "HostSession",
    "OpenSessions",
    "RunStep",
    "ToolAround",
    "ToolEnd",
    "Usage",
    "begin_turn",
    "call_failed",
    "context_in_loop",
    "engine_in_loop",
    "held_against",
    "inside_tool",
    "is_cancellation",
    "nested_session_id",
    "plain_identity",
    "read_settings",
    "recordable",
    "run_in",
    "tool_around",
    "tool_entered",
    "tool_failed",
    "tool_left",
    "turn_failed",
    "wait_in",
]
