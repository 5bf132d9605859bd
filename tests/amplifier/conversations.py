"""Conversations that are held on Amplifier's own loops and on our doubles of them, and compared.

``held`` runs one on the real kernel and keeps everything that a listener and the context see: all
events with their payloads, in order, the stored rows, and what ``execute`` gave back. The doubles
(``hosts.py``) were written from what this prints for the real loops.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import ALL_EVENTS
from amplifier_core.models import ToolResult

from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.hosts import session

Hook = Callable[[str, dict[str, Any]], Any]
Drive = Callable[[AmplifierSession, "Gate"], Awaitable[Any]]

LISTENED: list[str] = [
    *(name for name in ALL_EVENTS if not name.startswith(("session:", "context:"))),
    *("execution:start", "execution:end", "orchestrator:steering_injected", "error:tool"),
]
VOLATILE = {"timestamp": "a time", "parallel_group_id": "a group"}


def find_real_module(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel find one of Amplifier's modules, or skip the test.

    They are in no package index. EVENTCTX_AMPLIFIER_MODULES is a folder with checkouts of them,
    each under its module's name.
    """
    folder = Path(os.environ.get("EVENTCTX_AMPLIFIER_MODULES", "/nowhere"), name)
    if not folder.is_dir():
        pytest.skip(f"no {name}; set EVENTCTX_AMPLIFIER_MODULES to the folder that holds it")
    monkeypatch.syspath_prepend(str(folder))


class Gate:
    """Tools that wait, in the order in which a conversation lets them go on."""

    def __init__(self) -> None:
        self._reached: dict[str, asyncio.Event] = {}
        self._open: dict[str, asyncio.Event] = {}

    async def wait(self, name: str) -> None:
        self._reached.setdefault(name, asyncio.Event()).set()
        await self._open.setdefault(name, asyncio.Event()).wait()

    async def reached(self, *names: str) -> None:
        for name in names:
            await self._reached.setdefault(name, asyncio.Event()).wait()

    def open(self, name: str) -> None:
        self._open.setdefault(name, asyncio.Event()).set()


class Tool:
    """A tool that does what its function does with the arguments; it may wait at the gate."""

    description = "A tool."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}

    def __init__(self, name: str, does: Callable[[dict[str, Any]], Any], gate: Gate) -> None:
        self.name = name
        self._does = does
        self._gate = gate

    async def execute(self, given: dict[str, Any]) -> Any:
        if "gate" in given:
            await self._gate.wait(given["gate"])
        return self._does(given)


@dataclass(frozen=True)
class Conversation:
    """What the model says, what the tools do, what hooks answer, and who drives it."""

    script: tuple[Any, ...]
    does: Callable[[dict[str, Any]], Any] = lambda given: ToolResult(output="fine")
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    loop_config: Mapping[str, Any] = field(default_factory=dict)
    drive: Drive = lambda host, gate: host.execute("Go.")
    tool: str = "read"


@dataclass(frozen=True)
class Held:
    events: list[tuple[str, dict[str, Any]]]
    rows: list[dict[str, Any]]
    result: str
    requests: list[list[dict[str, Any]]]


async def held(conversation: Conversation, **host: Any) -> Held:
    """Hold a conversation; ``host`` are arguments of ``hosts.session``, at least the loop."""
    seen: list[tuple[str, dict[str, Any]]] = []

    def listen(event: str, data: dict[str, Any]) -> Any:
        seen.append((event, {key: VOLATILE.get(key, value) for key, value in data.items()}))
        hook = conversation.hooks.get(event)
        return HookResult() if hook is None else hook(event, data)

    provider = ScriptedAmplifierProvider(*conversation.script, strict=False)
    gate = Gate()
    tool = Tool(conversation.tool, conversation.does, gate)
    async with session(
        provider,
        tool,
        hooks=dict.fromkeys(LISTENED, listen),
        loop_config=conversation.loop_config,
        **host,
    ) as running:
        try:
            result = repr(await conversation.drive(running, gate))
        except (Exception, asyncio.CancelledError) as error:
            result = f"raised {type(error).__name__}: {error}"
        rows = await running.coordinator.get("context").get_messages()
    return Held(_side_by_side(seen), rows, result, provider.messages)


def _side_by_side(seen: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """The events, with those of tools that run side by side in an order of their own.

    Which call of an answer is reported first depends on the kernel's threads, not on the loop.
    """
    ordered: list[tuple[str, dict[str, Any]]] = []
    tools: list[tuple[str, dict[str, Any]]] = []
    for event, data in [*seen, ("", {})]:
        if event.startswith("tool:"):
            tools.append((event, data))
            continue
        ordered += sorted(tools, key=lambda one: json.dumps(one[1], sort_keys=True))
        tools.clear()
        ordered.append((event, data))
    return ordered[:-1]


# -- what the tools do ---------------------------------------------------------------------------


def one_call(does: Callable[[dict[str, Any]], Any], **more: Any) -> Conversation:
    script = (Reply("Let me look.", calls=[("read", {"path": "a"})]), "Done.")
    return Conversation(script, does, **more)


def raising(error: Exception) -> Callable[[dict[str, Any]], Any]:
    def does(given: dict[str, Any]) -> Any:
        raise error

    return does


def as_told(given: dict[str, Any]) -> Any:
    """Fail as the argument says, else return it."""
    if "raise" in given:
        raise ValueError(given["raise"])
    if "fail" in given:
        return ToolResult(success=False, error={"message": given["fail"]})
    return ToolResult(output=f"text of {given.get('path')}")


def result(**fields: Any) -> Conversation:
    return one_call(lambda given: ToolResult(**fields))


def side_by_side(*calls: dict[str, Any], order: str = "") -> Conversation:
    """Calls of one tool in one answer, let go in an order: each one when the one before ended."""

    async def drive(host: AmplifierSession, gate: Gate) -> Any:
        ended: asyncio.Queue[str] = asyncio.Queue()
        for event in ("tool:post", "tool:error"):
            host.coordinator.hooks.register(
                event, lambda event, data: _put(ended, event), priority=99, name=f"gate:{event}"
            )
        running = asyncio.ensure_future(host.execute("Go."))
        await gate.reached(*order)
        for name in order:
            gate.open(name)
            await ended.get()
        return await running

    script = (Reply("Both.", calls=[("read", dict(call)) for call in calls]), "Done.")
    return Conversation(script, as_told, drive=drive)


async def _put(ended: asyncio.Queue[str], event: str) -> Any:
    ended.put_nowait(event)
    return HookResult()


# -- who interferes ------------------------------------------------------------------------------


def denying(event: str, data: dict[str, Any]) -> Any:
    return HookResult(action="deny", reason="not allowed")


def injecting(event: str, data: dict[str, Any], **fields: Any) -> Any:
    return HookResult(
        action="inject_context",
        context_injection="<system-reminder>Mind the tabs.</system-reminder>",
        suppress_output=True,
        **fields,
    )


def replacing(event: str, data: dict[str, Any]) -> Any:
    return HookResult(action="modify", data={**data, "result": {"replaced": True}})


async def cancelled_between(host: AmplifierSession, gate: Gate, immediate: bool = False) -> Any:
    running = asyncio.ensure_future(host.execute("Go."))
    await gate.reached("a")
    await host.coordinator.request_cancel(immediate)
    gate.open("a")
    return await running


async def killed(host: AmplifierSession, gate: Gate) -> Any:
    running = asyncio.ensure_future(host.execute("Go."))
    await gate.reached("a")
    # The kernel runs the orchestrator in a task of its own, which ``running`` does not cancel.
    (task,) = [one for one in asyncio.all_tasks() if _is_orchestrator(one)]
    task.cancel()
    return await running


def _is_orchestrator(task: asyncio.Task[Any]) -> bool:
    return getattr(task.get_coro(), "__name__", "") == "run_orchestrator"


WAITS = (Reply(calls=[("read", {"gate": "a"})]), "Done.", "And again.")
CALL = Reply(calls=[("read", {"path": "a"})])

CONVERSATIONS: dict[str, Conversation] = {
    "a text": Conversation(("Hello.",)),
    "thinking": Conversation((Reply("Hello.", thinking="hm"),)),
    "a text as output": result(output="text"),
    "a dict as output": result(output={"stdout": "x", "returncode": 0}),
    "no output": result(),
    "failed": result(success=False),
    "failed with an error": result(success=False, error={"message": "gone", "type": "OSError"}),
    "failed with both": result(success=False, output="half", error={"message": "died"}),
    "raised": one_call(raising(ValueError("went wrong"))),
    "returned None": one_call(lambda given: None),
    "an unknown tool": Conversation((Reply(calls=[("gone", {"path": "a"})]), "Done.")),
    "two rounds": Conversation((CALL, CALL, "Done."), as_told),
    "side by side, the second raises": side_by_side(
        {"path": "a", "gate": "a"}, {"raise": "went wrong", "gate": "b"}, order="ba"
    ),
    "side by side, the second raises last": side_by_side(
        {"path": "a", "gate": "a"}, {"raise": "went wrong", "gate": "b"}, order="ab"
    ),
    "side by side, both raise": side_by_side(
        {"raise": "first", "gate": "a"}, {"raise": "second", "gate": "b"}, order="ba"
    ),
    "denied": one_call(as_told, hooks={"tool:pre": denying}),
    "a result that a hook replaced": one_call(as_told, hooks={"tool:post": replacing}),
    "an injection behind a tool": one_call(as_told, hooks={"tool:post": injecting}),
    "an ephemeral injection into a request": one_call(
        as_told, hooks={"provider:request": partial(injecting, ephemeral=True)}
    ),
    "a prompt that is denied": Conversation(("Hi.",), hooks={"prompt:submit": denying}),
    "a provider that fails": Conversation((ConnectionError("unplugged"),)),
    "cancelled between requests": Conversation(WAITS, drive=cancelled_between),
    "killed": Conversation(WAITS, drive=killed),
}
