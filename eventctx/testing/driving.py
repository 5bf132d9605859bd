"""The contract's view of a host: an agent on a model that follows a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from eventctx.engine import Engine
from eventctx.testing.script import Reply

SESSION: Final = "s"
"""The id of the session of every agent."""


class ScriptedAgent(msgspec.Struct, frozen=True):
    """An agent to start.

    ``script``: what its model answers, request by request, or raises; calls are ``ToolRequest``.
    ``tools``: functions that answer a text, with annotations and a docstring. ``settings`` are
    those of the session. ``keep_last``: the host itself sends no more than so many messages of the
    conversation. ``retries``: so often the host repeats a call that failed, at once.
    """

    script: Sequence[Reply | Exception]
    tools: Sequence[Callable[..., Awaitable[str]]] = ()
    instructions: str = "Be brief."
    settings: Mapping[str, Any] = {}
    keep_last: int | None = None
    retries: int = 0
    session: str = SESSION


class AdapterDriver(Protocol):
    """One agent of a host, with the adapter under test.

    ``engine`` stays the contract's, and is open. ``folder`` is for what the host keeps by itself,
    such as a checkpoint: another driver with the same folder goes on with the same conversation,
    also in another process after this one was killed. An adapter that sends neighbours of one role
    as one message has a ``JoiningDriver``.
    """

    def __init__(self, engine: Engine, folder: Path, agent: ScriptedAgent) -> None: ...

    async def ask(self, text: str, *, stream: bool = False) -> str:
        """Run a turn, and return the agent's answer. Raises what the host raises."""
        ...

    def received(self) -> list[list[Any]]:
        """The messages that the model received with each call, the system prompt first."""
        ...

    def shown(self, row: dict[str, Any]) -> Any:
        """The rows that a model is shown of a message of a view, in the form of ``received``."""
        ...

    async def close(self) -> None:
        """End what the driver began."""
        ...


@runtime_checkable
class JoiningDriver(AdapterDriver, Protocol):
    """A driver of an adapter that sends neighbouring rows of a view as one message."""

    def shown_view(self, rows: Sequence[dict[str, Any]]) -> list[Any]:
        """The rows that a model is shown of a whole view, in the form of ``received``."""
        ...
