"""Failures of a run, for which the SDK has no hook.

- A tool that raised, and of which the SDK makes a text for the model: the ``tool_error_formatter``
  of a ``RunConfig`` is handed its exception.
- All else ends the run. Nothing that a run is given sees its exception, so the SDK's default
  runner is replaced by one that reports it. It finds the hooks to tell by that formatter, which
  runs inside a tool (``agent.as_tool``) inherit, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Protocol, cast

from agents import (
    InputGuardrailTripwireTriggered,
    RunResult,
    RunResultStreaming,
    StreamEvent,
    ToolErrorFormatterArgs,
    UserError,
)
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.run_config import ToolErrorFormatter

from eventctx.adapters.kit.host_run import call_failed, is_cancellation, tool_failed, turn_failed
from eventctx.session.host_turns import HostReporter


class FailureHooks(Protocol):
    """Hooks of a run that take its failures; ``streams`` is set to whether it is streamed."""

    streams: bool

    def tool_raised(self, failed: ToolErrorFormatterArgs[Any]) -> None:
        """The SDK makes a text for the model of what a tool raised."""

    async def run_failed(self, error: BaseException) -> None:
        """The run ended with this exception."""

    def nested_run_failed(self, asked: object, error: BaseException) -> None:
        """A run inside one of its tools, with this input, ended with this exception."""


class ReportingFormatter:
    """The ``tool_error_formatter`` of a run: tells the run's ``hooks`` of it, and calls ``own``."""

    def __init__(self, hooks: FailureHooks, own: ToolErrorFormatter | None) -> None:
        self.hooks = hooks
        self._own = own

    async def __call__(self, failed: ToolErrorFormatterArgs[Any]) -> str | None:
        """The text for the model; None for the SDK's own."""
        self.hooks.tool_raised(failed)
        text = None if self._own is None else self._own(failed)
        return await text if inspect.isawaitable(text) else text


class ReportingRunner(AgentRunner):
    """The SDK's runner, which tells a run's hooks how it failed."""

    async def run(
        self,
        starting_agent: Any,
        input: Any,  # noqa: A002 - the SDK's name
        **kwargs: Any,
    ) -> RunResult:
        """As the SDK's; ``run_sync`` calls it, too."""
        _tell_hooks(kwargs, streams=False)
        try:
            return await super().run(starting_agent, input, **kwargs)
        except BaseException as error:
            await _report(input, kwargs, error)
            raise

    def run_streamed(
        self,
        starting_agent: Any,
        input: Any,  # noqa: A002 - the SDK's name
        **kwargs: Any,
    ) -> RunResultStreaming:
        """As the SDK's; a failure is reported before the reader of the events gets it."""
        _tell_hooks(kwargs, streams=True)
        result = super().run_streamed(starting_agent, input, **kwargs)
        events = result.stream_events

        async def stream_events() -> AsyncIterator[StreamEvent]:
            try:
                async with aclosing(cast("Any", events())) as stream:
                    async for event in stream:
                        yield event
            except GeneratorExit:
                raise  # the reader has seen enough; the run goes on
            except BaseException as error:
                await _report(input, kwargs, error)
                raise

        result.stream_events = stream_events  # type: ignore[method-assign]
        return result


def install_runner() -> None:
    """Make ours the default runner of this process, in the place of the SDK's own.

    A runner that the program has set stays: failures of its runs are not reported.
    """
    if type(get_default_agent_runner()) is AgentRunner:
        set_default_agent_runner(ReportingRunner())


def _tell_hooks(kwargs: dict[str, Any], *, streams: bool) -> None:
    formatter = getattr(kwargs.get("run_config"), "tool_error_formatter", None)
    if isinstance(formatter, ReportingFormatter) and kwargs.get("hooks") is formatter.hooks:
        formatter.hooks.streams = streams


async def _report(asked: object, kwargs: dict[str, Any], error: BaseException) -> None:
    formatter = getattr(kwargs.get("run_config"), "tool_error_formatter", None)
    if not isinstance(formatter, ReportingFormatter):
        return
    if kwargs.get("hooks") is formatter.hooks:
        await formatter.hooks.run_failed(error)
    else:
        formatter.hooks.nested_run_failed(asked, error)


async def fail_run(turns: HostReporter, tools: dict[str, str], error: BaseException) -> None:
    """Record that a run failed, with the model call or the tool that it failed in.

    ``tools`` are the names of the open calls, by id. Raises what the store raises.
    """
    if turns.awaits_answer and isinstance(error, InputGuardrailTripwireTriggered):
        # The guardrail ran next to the call, which the SDK gave up.
        await turns.model_failed(type(error).__name__, str(error), cancelled=True)
    elif turns.awaits_answer:
        await call_failed(turns, error)
    failed = _failed_tools(tools, error)
    cause = error.__cause__ if isinstance(error, UserError) and failed else None
    for call_id in tools:
        raised = cause or error if call_id in failed else asyncio.CancelledError()
        await tool_failed(turns, call_id, raised)
    await turn_failed(turns, error)


def _failed_tools(tools: dict[str, str], error: BaseException) -> list[str]:
    """The open calls that raised the error; the SDK cancels those that run next to them."""
    if is_cancellation(error):
        return []
    named = getattr(error, "tool_name", None)
    found = [
        call_id
        for call_id, name in tools.items()
        if name == named or str(error).startswith(f"Error running tool {name}:")
    ]
    return found or (list(tools) if len(tools) == 1 else [])
