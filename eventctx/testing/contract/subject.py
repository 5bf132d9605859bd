"""The module under test, mounted: each check mounts it anew in a folder of its own."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.testing.contract.conversations import Row, rows_of
from eventctx.testing.contract.coordinator import new_coordinator
from eventctx.testing.contract.target import Target
from eventctx.testing.contract.verdicts import Broken
from eventctx.testing.recorder import EventRecorder

PRE: Final = "context:pre_compact"
POST: Final = "context:post_compact"
KNOWN: Final = (PRE, POST, "context:compaction", "context:compact")
"""The contract's names, the one in Amplifier's catalogue of events, and the one of its guide."""

METHODS: Final = (
    ("add_message", 1),
    ("get_messages_for_request", 2),
    ("get_messages", 0),
    ("set_messages", 1),
    ("clear", 0),
)
"""The protocol's methods, each with its number of arguments (context contract 2.1.0)."""

_sessions = itertools.count(1)


class Subject(NamedTuple):
    """A module that was imported, its mount function, and the settings to mount it with."""

    target: Target
    module: Any
    mount: Callable[..., Any] | None
    config: Mapping[str, Any]


class MountedModule:
    """A mounted context. ``events`` recorded the events of its compactions.

    These are events with a known name, or with one that the module declares and that speaks of
    compaction: a host can listen to no other.
    """

    def __init__(self, context: Any, coordinator: Any, events: EventRecorder) -> None:
        self.context = context
        self.coordinator = coordinator
        self.events = events

    async def add(self, rows: list[Row]) -> None:
        """Add messages one by one."""
        for row in rows:
            await self.context.add_message(row)

    async def transcript(self) -> list[Row]:
        """The result of ``get_messages``. Raises Broken if it is no list of messages."""
        return rows_of(await self.context.get_messages(), "get_messages")

    async def request(self, budget: int | None = None, provider: Any = None) -> list[Row]:
        """The result of ``get_messages_for_request``. Raises Broken if it is no message list."""
        arguments = {"token_budget": budget, "provider": provider}
        given = {name: value for name, value in arguments.items() if value is not None}
        found = await self.context.get_messages_for_request(**given)
        return rows_of(found, "get_messages_for_request")


@contextlib.asynccontextmanager
async def mounted(subject: Subject, config: Mapping[str, Any] = {}) -> AsyncIterator[MountedModule]:
    """Mount the module in a session of its own, and clean up as a host does.

    ``config`` are settings besides the subject's. Raises Broken if mounting gives no context.
    """
    assert subject.mount is not None
    coordinator = new_coordinator(f"validation-{next(_sessions)}")
    events = EventRecorder()
    for name in KNOWN:
        coordinator.hooks.register(name, events, name=f"recorder {name}")
    returned = await subject.mount(coordinator, {**subject.config, **config})
    try:
        context = coordinator.get("context")
        if context is None:
            raise Broken(f"nothing at the mount point 'context'; mount() returned {returned!r}")
        for name in await declared_events(coordinator):
            if "compact" in name and name not in KNOWN:
                coordinator.hooks.register(name, events, name=f"recorder {name}")
        yield MountedModule(context, coordinator, events)
    finally:
        await clean_up(coordinator, returned)


async def declared_events(coordinator: Any) -> list[str]:
    """The names on the channel from which loggers collect them, in the modules' order."""
    return list(_flat(await coordinator.collect_contributions("observability.events")))


def _flat(found: object) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, Iterable):
        for one in found:
            yield from _flat(one)


async def clean_up(coordinator: Any, returned: object) -> None:
    """End a session as a host does: call the returned cleanup function and the registered ones."""
    if callable(returned) and not hasattr(returned, "add_message"):
        result = returned()
        if isinstance(result, Awaitable) or inspect.isawaitable(result):
            await result
    await coordinator.cleanup()


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[Path]:
    """Move this process into ``folder``: its working directory and the user's home.

    Yields the folder, which holds ``work`` and ``home``. A process can be in one sandbox at a
    time, because both are process-wide.
    """
    work, home = folder / "work", folder / "home"
    for one in (work, home):
        one.mkdir(parents=True)
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    os.environ.update(HOME=str(home), USERPROFILE=str(home))
    try:
        with contextlib.chdir(work):
            yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
