"""The session that a run of a graph is recorded in: its thread's, or one for a run inside a tool.

A graph that a tool runs has the thread of the agent that called the tool, and a conversation of its
own. LangGraph numbers the graphs that one task runs in their ``checkpoint_ns``.
"""

from __future__ import annotations

from typing import Any

from langgraph.config import get_config

from eventctx.adapters.kit.nested import ToolAround, nested_session_id, tool_around
from eventctx.errors import InvalidSetting


def session_of(default: str | None) -> str:
    """The session of the run that calls; ``default`` is that of one without a thread.

    Raises InvalidSetting where there is neither.
    """
    thread, around = _thread(default), tool_around()
    if around is None or around.name != thread:
        return thread
    inside = _path()[len(around.path) :]
    number = int(inside[0]) + 1 if inside and inside[0].isdecimal() else 1
    return nested_session_id(around.session, around.call_id, number)


def tool_of(session: str, call_id: str | None, default: str | None) -> ToolAround:
    """The tool call that the run of this session is about to make."""
    return ToolAround(session, call_id or "call", _thread(default), _path())


def agent_name() -> str | None:
    """The name that the agent was made with."""
    name = _config().get("metadata", {}).get("lc_agent_name")
    return name if isinstance(name, str) and name else None


def _thread(default: str | None) -> str:
    thread = _config().get("configurable", {}).get("thread_id", default)
    if thread is None:
        raise InvalidSetting(
            'expected a thread_id (config={"configurable": {"thread_id": …}}), found none: '
            "give one to each run, or session=… to EventctxMiddleware"
        )
    return str(thread)


def _path() -> tuple[str, ...]:
    """Where in its graphs a task is, outermost first."""
    name = _config().get("configurable", {}).get("checkpoint_ns")
    return tuple(str(name).split("|")) if name else ()


def _config() -> Any:
    try:
        return get_config()
    except RuntimeError:  # outside of a graph
        return {}
