"""A policy of the user's own: one function, given as such or by its dotted path.

The function gets the arguments of every policy and returns a ``Proposal``
(``eventctx.policies.proposals`` makes one from message numbers) or a question. The engine checks
it against the rules like any other policy. Where the function fails or breaks a rule, the ladder
decides instead, and the log records why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import msgspec

from eventctx.errors import CompactionError, InvalidSetting
from eventctx.policies.constraints import AtLeastOne, check
from eventctx.policies.policy import (
    AskMemory,
    AskScores,
    AskSummary,
    AskTexts,
    Budget,
    PolicyState,
    Proposal,
    Visible,
)
from eventctx.text import clip

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
        return _checked(self.function)

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


def _checked(function: object) -> Callable[..., Any]:
    found = imported(function) if isinstance(function, str) else function
    path = path_of(function)
    if isinstance(found, type) or hasattr(found, "propose"):
        raise InvalidSetting(
            f"{EXPECTED}, found {path}, a class or a policy; pass an instance of it as policy="
        )
    if not callable(found):
        raise InvalidSetting(f"{EXPECTED}, found {path}, which cannot be called: {_shown(found)}")
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


def imported(path: str) -> object:
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


def _shown(value: object) -> str:
    return clip(repr(value), 81)
