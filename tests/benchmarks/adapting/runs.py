"""What is run: rounds in which the model calls a tool that answers a kilobyte, and a last text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from eventctx.engine import Engine

ROUNDS = 30
CALLS = ROUNDS + 1
TEXT = "x" * 1_000

RunOnce = Callable[[], Awaitable[Any]]


class Pair(NamedTuple):
    """Makes a run without the adapter, one with seams that do nothing, and one with the adapter in
    a new session of this name."""

    bare: Callable[[], RunOnce]
    empty: Callable[[], RunOnce]
    ours: Callable[[Engine, str], Awaitable[RunOnce]]
