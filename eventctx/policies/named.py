"""Policies by name: the one table that settings, the command line and the documentation share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.policies.policy import Policy, is_policy

_CLASSES: Final = {
    "custom": "Custom",
    "importance": "Importance",
    "ladder": "Ladder",
    "pipeline": "Pipeline",
    "simple": "Simple",
    "summarize": "Summarize",
    "token-budget": "TokenBudgetPolicy",
    "truncate": "Truncate",
    "workset": "Workset",
}
_MODULES: Final = {"token-budget": "token_budget_policy"}
"""Where a policy's module is not called as the policy is."""


class _Policies(Mapping[str, type[Any]]):
    """The class of each policy. Its module is loaded when the class is asked for.

    A session uses one of nine policies, and their modules take 10 ms together.
    """

    def __getitem__(self, name: str) -> type[Any]:
        known = _CLASSES[name]
        module = import_module(f"eventctx.policies.{_MODULES.get(name, name)}")
        found: type[Any] = getattr(module, known)
        return found

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


POLICIES: Final[Mapping[str, type[Any]]] = _Policies()
"""Policies by name. A policy's settings are its fields, except ``name`` and ``version``."""

ALIASES: Final = {"smart": "importance", "summarise": "summarize", "token_budget": "token-budget"}
"""Other names of policies: the one that context-persistent uses, and other spellings."""

DEFAULT: Final = "workset"


def default_policy(given: Iterable[str]) -> str:
    """The policy where none is named: the ladder if one of its settings is among ``given``.

    It was the default before, and its settings are those of Amplifier's context-simple; whoever
    gives one means it.
    """
    names = set(given)
    # Without settings, the usual case, the ladder need not be loaded.
    return "ladder" if names and not names.isdisjoint(settings_of_policy("ladder")) else DEFAULT


def settings_of_policy(name: str) -> tuple[str, ...]:
    """The names of a policy's settings. Raises InvalidSetting for an unknown policy."""
    fields = msgspec.structs.fields(_class_of(name))
    return tuple(field.name for field in fields if field.name not in ("name", "version"))


def as_policy(given: object) -> object:
    """``given``, or the policy that a plain function is. Raises InvalidSetting for an async one."""
    if isinstance(given, str | type) or is_policy(given) or not callable(given):
        return given
    return _class_of("custom")(function=given)


def policy_named(name: str, settings: Mapping[str, Any] = {}) -> Policy:
    """A policy by its name and settings. Raises InvalidSetting."""
    chosen = _class_of(name)
    unknown = settings.keys() - set(settings_of_policy(name))
    if unknown:
        raise InvalidSetting(
            f"policy {name!r}: expected settings among {list(settings_of_policy(name))}, "
            f"found {sorted(unknown)}"
        )
    given = dict(settings)
    if ALIASES.get(name, name) == "pipeline" and isinstance(given.get("policies"), list | tuple):
        given["policies"] = tuple([_step(one) for one in given["policies"]])
    policy: Policy = chosen(**given)
    return policy


def _step(given: Any) -> Any:
    """A step of a pipeline: a name, or a pair of a name and settings, becomes a policy.

    Anything else is returned as it is; the pipeline checks it.
    """
    if isinstance(given, str):
        return policy_named(given)
    if isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return policy_named(given[0], given[1])
    return given


def _class_of(name: str) -> type[Any]:
    found = POLICIES.get(ALIASES.get(name, name)) if isinstance(name, str) else None
    if found is None:
        raise InvalidSetting(f"policy: expected one of {sorted(POLICIES)}, found {name!r}")
    return found
