"""Mutants that compact in silence, or that refuse settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.testing.modules.mutants.making import Make, Row, breaks


class Hooks:
    """The host's hooks, but not every event reaches them."""

    def __init__(self, hooks: Any, passes: Callable[[str], bool]) -> None:
        self.hooks = hooks
        self.passes = passes

    async def emit(self, event: str, data: Row) -> Any:
        return await self.hooks.emit(event, data) if self.passes(event) else None


def telling(passes: Callable[[], Callable[[str], bool]]) -> Make:
    def make(base: Any) -> Any:
        class Mutant(base):
            def __init__(self, hooks: Any, *rest: Any) -> None:
                super().__init__(Hooks(hooks, passes()), *rest)

        return Mutant

    return make


@breaks("told")
def tells_nothing(base: Any) -> Any:
    return telling(lambda: lambda event: False)(base)


@breaks("told")
def tells_the_beginning_alone(base: Any) -> Any:
    return telling(lambda: lambda event: event == "context:pre_compact")(base)


@breaks("told")
def tells_of_the_first_alone(base: Any) -> Any:
    def first() -> Callable[[str], bool]:
        seen: set[str] = set()
        return lambda event: not (event in seen or seen.add(event))

    return telling(first)(base)


REFUSALS: dict[str, tuple[str, Callable[[Row], object]]] = {
    "refuses_what_it_does_not_know": (
        "unknown_settings",
        lambda config: set(config) & {"a_setting_of_another_module"},
    ),
    "refuses_the_setting_of_a_bundle": ("known_settings", lambda config: "auto_compact" in config),
    "refuses_a_low_threshold": (
        "known_settings",
        lambda config: config.get("compact_threshold", 0.92) <= config.get("target_usage", 0.5),
    ),
    "refuses_a_high_threshold": (
        "known_settings",
        lambda config: config.get("compact_threshold", 0.92) > 1,
    ),
    "refuses_a_float": (
        "known_settings",
        lambda config: isinstance(config.get("max_tokens"), float),
    ),
    "refuses_a_setting_of_context_persistent": (
        "known_settings",
        lambda config: "memory_files" in config,
    ),
}
"""What a mount function refuses with a ValueError, and the check for it."""
