"""The three orchestrators as modules that Amplifier's kernel can mount."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.loops.run import Orchestrator
from eventctx.orchestrators.protocol import Response

TURN_ID: Final = "turn_id"
"""The key in a coordinator's ``session_state`` under which an app leaves the next turn's id."""


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
        turn_id: str | None = None,
        **more: Any,
    ) -> str:
        """Run a turn to its end. Further arguments of a newer kernel have no effect.

        Without ``turn_id`` the turn gets the id that the app left in the coordinator's
        ``session_state``, else a random one. Raises InvalidSetting for tools that it would not run,
        and as the orchestrator does.
        """
        left = turn_id_from(coordinator)
        self.last = await self._orchestrator.execute(
            prompt,
            context,
            providers,
            tools,
            hooks,
            turn_id=left if turn_id is None else turn_id,
            coordinator=coordinator,
        )
        return self.last.text


Mount = Callable[..., Awaitable[None]]
"""The ``mount(coordinator, config)`` of an Amplifier module."""


def mount_of(kind: type[Orchestrator]) -> Mount:
    """The function by which the kernel mounts an orchestrator of this kind."""

    async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
        """Mount it with the settings in ``config``. Raises InvalidSetting.

        The kernel mounts tools later, and only here does an error keep a session from starting.
        So the tools are those that the mount plan names; ``execute`` checks the mounted ones.
        """
        orchestrator = kind(**settings_of(config))
        orchestrator.check_tools(planned_tools(coordinator))
        await coordinator.mount("orchestrator", MountedOrchestrator(orchestrator))

    return mount


def planned_tools(coordinator: Any) -> list[str]:
    """The names of the tool modules in the coordinator's mount plan."""
    plan = getattr(coordinator, "config", None)
    tools = plan.get("tools") if isinstance(plan, Mapping) else None
    rows = tools if isinstance(tools, list | tuple) else ()
    return [str(row["module"]) for row in rows if isinstance(row, Mapping) and row.get("module")]


def turn_id_from(coordinator: Any) -> str | None:
    """Take the id of the next turn out of ``coordinator.session_state["turn_id"]``.

    The kernel's ``session.execute(prompt)`` has no argument for it. It is taken out, because an id
    names one turn.
    """
    state = getattr(coordinator, "session_state", None)
    return state.pop(TURN_ID, None) if isinstance(state, dict) else None


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
