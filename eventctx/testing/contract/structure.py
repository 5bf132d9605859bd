"""Checks of a module's form: its mount function, its entry point, the five methods."""

from __future__ import annotations

import inspect

from eventctx.testing.contract.subject import METHODS, Subject, mounted
from eventctx.testing.contract.target import entry_points_of
from eventctx.testing.contract.verdicts import Broken, NotChecked, sees


async def mount_function(subject: Subject) -> None:
    """There is an ``async def mount(coordinator, config)``."""
    name = subject.target.attribute
    mount = subject.mount
    if mount is None:
        raise Broken(f"the module has no function {name}()")
    sees(inspect.iscoroutinefunction(mount), f"{name}() is not async")
    parameters = inspect.signature(mount).parameters.values()
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    taken = [
        one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.POSITIONAL_ONLY)
    ]
    sees(several or len(taken) >= 2, f"{name}() takes {len(taken)} arguments")


async def entry_point(subject: Subject) -> None:
    """The module is declared under ``amplifier.modules``, in pyproject.toml or as installed."""
    found = entry_points_of(subject.target, subject.mount)
    if found is None:
        raise NotChecked("no pyproject.toml lies above it, and it is not installed as a module")
    wanted = f"{subject.target.module}:{subject.target.attribute}"
    sees(found, f"pyproject.toml declares no entry point {wanted} in the group amplifier.modules")


async def mount_point(subject: Subject) -> None:
    """There is a context at the mount point ``context``, where hosts look for it."""
    async with mounted(subject):
        pass


async def methods(subject: Subject) -> None:
    """The context has the five methods, async, with the protocol's arguments."""
    async with mounted(subject) as one:
        for name, count in METHODS:
            method = getattr(one.context, name, None)
            sees(callable(method), f"there is no method {name}()")
            assert method is not None
            sees(inspect.iscoroutinefunction(method), f"{name}() is not async")
            _takes(name, method, count)


def _takes(name: str, method: object, count: int) -> None:
    assert callable(method)
    arguments = (None,) * count
    try:
        inspect.signature(method).bind(*arguments)
        if name == "get_messages_for_request":
            inspect.signature(method).bind()
            inspect.signature(method).bind(token_budget=None, provider=None)
    except TypeError as error:
        raise Broken(f"{name}{inspect.signature(method)}: {error}") from error
