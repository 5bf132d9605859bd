"""What a handler is called in counts and logs, and what calling it returns."""

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
    """Whether calling it returns a coroutine, as far as can be told beforehand."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - asked is what a call returns
    )
