"""The three orchestrators as modules that Amplifier's kernel can mount."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Response


class Executes(Protocol):
    """One of the three."""

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: Any,
        tools: Any = None,
        hooks: Any = None,
        *,
        turn_id: str | None = None,
        coordinator: Any = None,
    ) -> Response:
        """Run a turn to its end."""
        ...


class MountedOrchestrator:
    """An orchestrator as the kernel calls it: ``execute`` returns the answer's text.

    ``last`` is the response of the turn that ended last.
    """

    def __init__(self, orchestrator: Executes) -> None:
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
        """Run a turn to its end; what a newer kernel hands in besides is not used."""
        self.last = await self._orchestrator.execute(
            prompt, context, providers, tools, hooks, coordinator=coordinator
        )
        return self.last.text


def settings_of(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings in a mount plan's ``config``, also under the names that Amplifier's loops use.

    ``max_iterations: -1`` is no limit, ``default_provider`` is ``provider``. Raises
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
