"""A handler's name in counts and logs, and whether it is async."""

from __future__ import annotations

import inspect
from functools import partial


def name_of(handler: object) -> str:
    """``module.qualified_name`` of a function, or of an object's class: equal in every process."""
    while isinstance(handler, partial):
        handler = handler.func
    if not hasattr(handler, "__qualname__"):
        handler = type(handler)
    return f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', '?')}"


def is_async(handler: object) -> bool:
    """Whether a call returns a coroutine, as far as the function shows without a call."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - the method itself is inspected
    )
