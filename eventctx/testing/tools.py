"""Doubles for tests of an orchestrator: a scripted tool, a context manager that keeps a list."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any

from eventctx.messages.facts_reader import read_facts
from eventctx.testing.providers import core


class Hang:
    """A step of a tool that waits until the test releases it.

    ``await hang.reached()`` returns when the tool is waiting, so no test needs to sleep;
    ``release(value)`` lets it return the value, or raise it if it is an error. ``cancelled`` is
    true where the wait was cancelled instead.
    """

    def __init__(self) -> None:
        self.cancelled = False
        self._reached = asyncio.Event()
        self._released = asyncio.Event()
        self._value: Any = None

    async def reached(self) -> None:
        """Wait until the tool has begun to wait."""
        await self._reached.wait()

    def release(self, value: Any = "released") -> None:
        """Let the tool return ``value``, or raise it if it is an error."""
        self._value = value
        self._released.set()

    async def wait(self) -> Any:
        """Wait for ``release`` and return its value."""
        self._reached.set()
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self._value


def big(megabytes: float = 50) -> str:
    """A text of so many million characters, in lines of 80: a giant result."""
    size = int(megabytes * 1_000_000)
    line = "0123456789" * 7 + "012345678\n"
    return (line * (size // len(line) + 1))[:size]


class ScriptedTool:
    """A tool for our orchestrators, and for Amplifier's with ``amplifier=True``.

    ``script`` has one step for each call, and the last one is repeated for all later calls: a
    value to return, an error to raise, a ``Hang``, or a function of the input, async or not.
    ``inputs`` are copies of the calls' inputs. With ``amplifier`` it returns an
    ``amplifier_core.ToolResult``, and an error becomes one with ``success=False``.
    """

    def __init__(
        self,
        name: str,
        *script: Any,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        amplifier: bool = False,
    ) -> None:
        self.name = name
        self.description = description or f"Scripted: {name}"
        self.input_schema = dict(input_schema or {"type": "object", "properties": {}})
        self.inputs: list[dict[str, Any]] = []
        self._script = script or ("done",)
        self._amplifier = amplifier

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the specification's name
        """The value of the call's step. Raises the step's error, except with ``amplifier``."""
        self.inputs.append(copy.deepcopy(input))
        step = self._script[min(len(self.inputs), len(self._script)) - 1]
        if not self._amplifier:
            return await self._play(step, input)
        try:
            output = await self._play(step, input)
        except Exception as error:
            problem = {"type": type(error).__name__, "message": str(error)}
            return core().ToolResult(success=False, error=problem)
        return core().ToolResult(success=True, output=output)

    async def _play(self, step: Any, given: dict[str, Any]) -> Any:
        if isinstance(step, Hang):
            step = await step.wait()
        elif callable(step) and not isinstance(step, type):
            step = step(given)
            if inspect.isawaitable(step):
                step = await step
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, type) and issubclass(step, BaseException):
            raise step()
        return step


class MockContextManager:
    """The five methods of the context contract, over a list that a test can read.

    ``messages`` are those that it holds; ``calls`` counts the calls by method name; ``requests``
    are copies of the lists that ``get_messages_for_request`` returned, in order, and ``budgets``
    the budgets of these calls. It never compacts. It takes and returns copies, so neither side can
    change the other's messages.
    """

    def __init__(self, messages: list[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = copy.deepcopy(messages or [])
        self.calls: Counter[str] = Counter()
        self.requests: list[list[dict[str, Any]]] = []
        self.budgets: list[int | None] = []

    async def add_message(self, message: dict[str, Any]) -> None:
        """Add a message. Raises InvalidMessage (a ValueError) for one without a role."""
        self.calls["add_message"] += 1
        read_facts(message)
        self.messages.append(copy.deepcopy(message))

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """All messages, whatever the budget."""
        self.calls["get_messages_for_request"] += 1
        self.budgets.append(token_budget)
        self.requests.append(copy.deepcopy(self.messages))
        return copy.deepcopy(self.messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        """All messages."""
        self.calls["get_messages"] += 1
        return copy.deepcopy(self.messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace all messages. Raises InvalidMessage and then changes nothing."""
        self.calls["set_messages"] += 1
        for message in messages:
            read_facts(message)
        self.messages = copy.deepcopy(messages)

    async def clear(self) -> None:
        """Forget all messages."""
        self.calls["clear"] += 1
        self.messages = []
