"""The session that a run of a graph is recorded in: its thread's, or one for a run inside a tool.

A graph that a tool runs has the thread of the agent that called the tool, and a conversation of its
own. LangGraph numbers the graphs that one task runs in their ``checkpoint_ns``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from langgraph.config import get_config

from eventctx.adapters.kit.nested import nested_session_id
from eventctx.errors import InvalidSetting


class GraphPlace(NamedTuple):
    """The session of a run; ``parent`` and ``call_id`` are those of the tool that runs it."""

    session: str
    parent: str | None = None
    call_id: str | None = None


class _Tool(NamedTuple):
    """A recorded tool call under way: of which session and thread, and where in the graph."""

    session: str
    thread: str
    call_id: str
    path: list[str]


_tool: ContextVar[_Tool | None] = ContextVar("eventctx_langchain_tool", default=None)


def place_of(default: str | None) -> GraphPlace:
    """The place of the run that calls; ``default`` is the session of one without a thread.

    Raises InvalidSetting where there is neither.
    """
    thread, tool = _thread(default), _tool.get()
    if tool is None or tool.thread != thread:
        return GraphPlace(thread)
    inside = _path()[len(tool.path) :]
    number = int(inside[0]) + 1 if inside and inside[0].isdecimal() else 1
    session = nested_session_id(tool.session, tool.call_id, number)
    return GraphPlace(session, tool.session, tool.call_id)


@contextmanager
def inside_tool(place: GraphPlace, call_id: str | None, default: str | None) -> Iterator[None]:
    """A block in which a tool of the run at ``place`` runs, and graphs that it runs."""
    made = _Tool(place.session, _thread(default), call_id or "call", _path())
    token = _tool.set(made)
    try:
        yield
    finally:
        _tool.reset(token)


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


def _path() -> list[str]:
    """Where in its graphs a task is, outermost first."""
    name = _config().get("configurable", {}).get("checkpoint_ns")
    return str(name).split("|") if name else []


def _config() -> Any:
    try:
        return get_config()
    except RuntimeError:  # outside of a graph
        return {}
