"""Work that is counted, where a time would depend on the load of the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls_of_functions(do: Callable[[], object]) -> int:
    """The calls of functions written in Python that it makes, a measure that no load changes."""
    count = 0

    def entered(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        do()
    finally:
        sys.setprofile(before)
    return count
