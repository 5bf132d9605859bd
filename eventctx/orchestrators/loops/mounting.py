"""The three orchestrators as modules that Amplifier's kernel can mount."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.loops.run import Orchestrator
from eventctx.orchestrators.protocol import Response


class MountedOrchestrator:
    """An orchestrator as the kernel calls it: ``execute`` returns the answer's text.

    ``last`` is the response of the latest turn.
    """

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self.last: Response | None = None

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: Any,
        coordinator: Any = None,
        **more: Any,
    ) -> str:
        """Run a turn to its end. Further arguments of a newer kernel have no effect."""
        self.last = await self._orchestrator.execute(
            prompt, context, providers, tools, hooks, coordinator=coordinator
        )
        return self.last.text


Mount = Callable[..., Awaitable[None]]
"""The ``mount(coordinator, config)`` of an Amplifier module."""


def mount_of(kind: type[Orchestrator]) -> Mount:
    """The function by which the kernel mounts an orchestrator of this kind."""

    async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
        """Mount it with the settings in ``config``. Raises InvalidSetting."""
        mounted = MountedOrchestrator(kind(**settings_of(config)))
        await coordinator.mount("orchestrator", mounted)

    return mount


def settings_of(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings in a mount plan's ``config``, which may use the names of Amplifier's loops.

    ``max_iterations: -1`` means no limit, ``default_provider`` means ``provider``. Raises
    InvalidSetting.
    """
    if config is not None and not isinstance(config, Mapping):
        raise InvalidSetting(f"config: expected a mapping of settings, found {config!r}")
    given = dict(config or {})
    if given.get("max_iterations") == -1:
        given["max_iterations"] = None
    if "default_provider" in given:
        given.setdefault("provider", given.pop("default_provider"))
    return given
