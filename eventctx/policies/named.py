"""From a name and settings, or a function, to a policy; and back to what a record says of it.

``POLICIES`` is the one table that settings, the command line and the documentation share.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import msgspec

from eventctx.errors import CompactionError, InvalidSetting
from eventctx.log.turn_recorder import fit_for_log
from eventctx.policies.constraints import AtLeastOne, check
from eventctx.policies.policy import (
    AskMemory,
    AskScores,
    AskSummary,
    AskTexts,
    Budget,
    Policy,
    PolicyState,
    Proposal,
    Visible,
    is_policy,
)
from eventctx.text import clip

_CLASSES: Final = {
    "custom": "Custom",
    "importance": "Importance",
    "ladder": "Ladder",
    "native": "Native",
    "pipeline": "Pipeline",
    "simple": "Simple",
    "summarize": "Summarize",
    "token-budget": "TokenBudgetPolicy",
    "truncate": "Truncate",
    "workset": "Workset",
}
_MODULES: Final = {
    "custom": "named",
    **dict.fromkeys(("importance", "simple", "truncate"), "presets"),
    "token-budget": "token_budget",
}
"""Modules that are not called as their policy is."""


class _Policies(Mapping[str, type[Any]]):
    """The class of each policy. Its module is loaded when the class is asked for.

    A session uses one of ten policies, and their modules take 10 ms together.
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

PolicyName = Literal[
    "workset",
    "ladder",
    "summarize",
    "native",
    "pipeline",
    "custom",
    "importance",
    "simple",
    "token-budget",
    "truncate",
    "smart",
    "summarise",
    "token_budget",
]
"""The names of all policies, for type checkers; those of ``POLICIES`` and ``ALIASES``."""

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


# -- a policy as a compaction records it: enough to know it by, never a content ------------------

MAX_SETTING_CHARACTERS: Final = 200

Setting = int | float | bool | str | None


def recorded_settings(policy: Policy) -> dict[str, Setting]:
    """The settings of a policy by name; none for a policy that is no msgspec Struct.

    Names and numbers are recorded as they are, of anything that could hold a content its size.
    """
    if not isinstance(policy, msgspec.Struct):
        return {}
    return {
        name: _record_setting(value)
        for name, value in msgspec.structs.asdict(policy).items()
        if name not in ("name", "version")
    }


def _record_setting(value: object) -> Setting:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return fit_for_log(value, MAX_SETTING_CHARACTERS)
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"
    if isinstance(value, Sequence):
        names = [getattr(one, "name", None) for one in value]
        if names and all(isinstance(name, str) for name in names):
            return ",".join([str(name) for name in names])
        return f"{len(value)} items"
    return type(value).__name__


# -- a policy of the user's own: one function, given as such or by its dotted path ---------------
# The engine checks its proposal against the rules like any other. Where the function fails or
# breaks a rule, the ladder decides instead, and the log records why.

EXPECTED: Final = (
    "function: expected a function of (visible, budget, state) or its path "
    "('package.module:function')"
)


class Custom(msgspec.Struct, frozen=True, dict=True):
    """Let ``function(visible, budget, state)`` decide.

    ``function`` is a plain function (or anything else that can be called), or a path:
    ``package.module:function`` or ``package.module.function``, imported when the policy is made.
    Like every policy it must not read a clock or draw random numbers, and ``version`` should go
    up when it decides differently. Raises InvalidSetting for a path that cannot be imported and
    for an object that cannot be called.
    """

    function: Any = None
    max_messages: AtLeastOne | None = None
    name: str = "custom"
    version: int = 1

    def __post_init__(self) -> None:
        check(self)
        _ = self.call  # a wrong path fails now, and not in the middle of a session

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The function itself."""
        return _check_function(self.function)

    def propose(
        self, visible: Visible, budget: Budget, state: PolicyState
    ) -> Proposal | AskSummary | AskScores | AskMemory | AskTexts:
        """The function's proposal or question. Raises CompactionError for anything else."""
        answer = self.call(visible, budget, state)
        if isinstance(answer, Proposal | AskSummary | AskScores | AskMemory | AskTexts):
            return answer
        if inspect.iscoroutine(answer):
            answer.close()
        raise CompactionError(
            f"{path_of(self.function)}: expected a Proposal or a question, found "
            f"{type(answer).__name__}; keep_only() and drop() make one from message numbers"
        )


def _check_function(function: object) -> Callable[..., Any]:
    found = import_path(function) if isinstance(function, str) else function
    path = path_of(function)
    if isinstance(found, type) or hasattr(found, "propose"):
        raise InvalidSetting(
            f"{EXPECTED}, found {path}, a class or a policy; pass an instance of it as policy="
        )
    if not callable(found):
        raise InvalidSetting(
            f"{EXPECTED}, found {path}, which cannot be called: {_describe(found)}"
        )
    if inspect.iscoroutinefunction(found):
        raise InvalidSetting(
            f"{EXPECTED}, found {path}, which is async; a policy is pure and asks questions "
            "(AskTexts, AskSummary, AskScores, AskMemory) instead of waiting"
        )
    return found


def path_of(function: object) -> str:
    """A name for messages: a path as it is, else the ``module:qualname`` of a function or class.

    Any other object is named by its class.
    """
    if isinstance(function, str):
        return function
    known = function if hasattr(function, "__qualname__") else type(function)
    return f"{known.__module__}:{getattr(known, '__qualname__', '')}"


def import_path(path: str) -> object:
    """The object at ``package.module:name.name`` or ``package.module.name``.

    Raises InvalidSetting where there is none.
    """
    module, separator, name = path.partition(":")
    if not separator:
        module, _, name = path.rpartition(".")
    names = name.split(".")
    if not all(part.isidentifier() for part in [*module.split("."), *names]):
        raise InvalidSetting(f"{EXPECTED}, found {path!r}")
    found: object = _module(module, path)
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError as error:
            where = found.__name__ if isinstance(found, ModuleType) else repr(found)
            raise InvalidSetting(
                f"function: expected {name!r} in {where}, found no such name; correct {path!r}"
            ) from error
    return found


def _module(module: str, path: str) -> ModuleType:
    try:
        return import_module(module)
    except Exception as error:
        # A user's own module may raise anything while it is imported.
        raise InvalidSetting(
            f"function: expected {path!r} to be importable, found {type(error).__name__}: {error}; "
            "install or correct it, or pass the function itself"
        ) from error


def _describe(value: object) -> str:
    return clip(repr(value), 81)
