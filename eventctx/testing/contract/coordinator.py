"""The coordinator to mount a module in: Amplifier's own mock, or one with the same interface."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

from eventctx.testing.recorder import GO_ON, Continue

MOUNT_POINTS: Final = (
    "orchestrator", "providers", "tools", "context", "hooks", "module-source-resolver",
)  # fmt: skip
_SEVERAL: Final = ("providers", "tools")


class StandInHooks:
    """Amplifier's hook registry as far as a context module uses it."""

    def __init__(self) -> None:
        self._handlers: dict[str, list[tuple[int, str, Callable[..., Any]]]] = {}

    def register(
        self, event: str, handler: Callable[..., Any], priority: int = 0, name: str | None = None
    ) -> Callable[[], None]:
        """Call ``handler(event, data)`` at an event; handlers of lower priority come first."""
        entry = (priority, name or str(getattr(handler, "__name__", "handler")), handler)
        handlers = self._handlers.setdefault(event, [])
        handlers.append(entry)
        handlers.sort(key=lambda one: one[0])
        return lambda: handlers.remove(entry) if entry in handlers else None

    on = register

    async def emit(self, event: str, data: dict[str, Any]) -> Any:
        """Call the handlers of an event; errors of a handler are ignored, as in Amplifier."""
        for _, _, handler in list(self._handlers.get(event, ())):
            try:
                result = handler(event, dict(data))
                if inspect.isawaitable(result):
                    await result
            except Exception:  # noqa: S112 - Amplifier's registry goes on, too
                continue
        return GO_ON

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[Any]:
        """As ``emit``; nothing is collected."""
        await self.emit(event, data)
        return []

    def unregister(self, name: str) -> None:
        """Take out the handlers of this name."""
        for handlers in self._handlers.values():
            handlers[:] = [one for one in handlers if one[1] != name]

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        """Names of handlers by event."""
        return {
            name: [one[1] for one in handlers]
            for name, handlers in self._handlers.items()
            if event in (None, name)
        }


class StandInCoordinator:
    """Amplifier's module coordinator as far as a context module uses it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.parent_id: str | None = None
        self.config: dict[str, Any] = dict(_MOUNT_PLAN)
        self.hooks = StandInHooks()
        self.session_state: dict[str, Any] = {}
        self.session = SimpleNamespace(session_id=session_id, parent_id=None, config=self.config)
        self.mount_points: dict[str, Any] = {
            name: {} if name in _SEVERAL else None for name in MOUNT_POINTS
        }
        self.mount_points["hooks"] = self.hooks
        self._cleanups: list[Callable[[], Any]] = []
        self._contributors: dict[str, list[Callable[[], Any]]] = {}
        self._capabilities: dict[str, Any] = {}

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        """Mount a module. Raises ValueError for an unknown mount point."""
        if mount_point not in self.mount_points:
            raise ValueError(f"Unknown mount point: {mount_point}")
        if mount_point in _SEVERAL:
            self.mount_points[mount_point][name or getattr(module, "name", "")] = module
        else:
            self.mount_points[mount_point] = module

    async def unmount(self, mount_point: str, name: str | None = None) -> None:
        """Remove a module from its mount point."""
        if mount_point in _SEVERAL:
            self.mount_points[mount_point].pop(name, None)
        else:
            self.mount_points[mount_point] = None

    def get(self, mount_point: str, name: str | None = None) -> Any:
        """The module at a mount point; None where there is none."""
        found = self.mount_points.get(mount_point)
        return found.get(name) if isinstance(found, dict) and name is not None else found

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        """Register a function for ``cleanup``, which calls the last one first."""
        self._cleanups.append(cleanup_fn)

    async def cleanup(self) -> None:
        """End the session."""
        while self._cleanups:
            result = self._cleanups.pop()()
            if inspect.isawaitable(result):
                await result

    def register_contributor(self, channel: str, name: str, callback: Callable[[], Any]) -> None:
        """Register a function that ``collect_contributions`` calls for this channel."""
        self._contributors.setdefault(channel, []).append(callback)

    async def collect_contributions(self, channel: str) -> list[Any]:
        """The results of all contributors of a channel."""
        found = []
        for callback in self._contributors.get(channel, ()):
            result = callback()
            found.append(await result if inspect.isawaitable(result) else result)
        return found

    def register_capability(self, name: str, value: Any) -> None:
        """Offer something to other modules."""
        self._capabilities[name] = value

    def get_capability(self, name: str) -> Any:
        """The value that another module offers; None if no module offers one."""
        return self._capabilities.get(name)

    async def process_hook_result(self, result: Any, event: str, hook_name: str = "") -> Continue:
        """Continue; this coordinator injects nothing."""
        return GO_ON


_MOUNT_PLAN: Final = {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}


@functools.cache
def core_version() -> str | None:
    """The version of amplifier-core; None when it is not installed or cannot be loaded."""
    try:
        from importlib.metadata import version

        import_module("amplifier_core.testing")
        return version("amplifier-core")
    except ImportError:
        return None


def new_coordinator(session_id: str) -> Any:
    """Amplifier's ``MockCoordinator`` for a session, or the stand-in when it is not installed."""
    if core_version() is None:
        return StandInCoordinator(session_id)
    mock = import_module("amplifier_core.testing").MockCoordinator

    class SessionCoordinator(mock):  # type: ignore[misc, valid-type] # known only at run time
        """Amplifier's mock for a session of another name than ``test-session``."""

        def __new__(cls) -> Any:
            config = dict(_MOUNT_PLAN)
            session = SimpleNamespace(session_id=session_id, parent_id=None, config=config)
            return super(mock, cls).__new__(cls, session, _approve, _ignore)

    return SessionCoordinator()


async def _approve(*_: Any, **__: Any) -> dict[str, bool]:
    return {"approved": True}


async def _ignore(*_: Any, **__: Any) -> None:
    return None
