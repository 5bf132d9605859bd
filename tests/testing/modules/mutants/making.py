"""How a sound context class becomes a faulty one: by what it keeps, or by what it sends.

A mutant uses the methods of its base alone, so that the checks must find it by what it does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
Rows = list[Row]
Make = Callable[[Any], Any]

MUTANTS: dict[str, tuple[str, Make]] = {}
"""By name: the check that must not hold, and the function that makes the mutant."""


def breaks(check: str) -> Callable[[Make], Make]:
    """Register a function that makes a faulty class of a sound one."""

    def register(make: Make) -> Make:
        MUTANTS[make.__name__] = (check, make)
        return make

    return register


def adding(change: Callable[[Row], Row | None]) -> Make:
    """A class that keeps changed messages, or does not keep those that are changed to None."""

    def make(base: Any) -> Any:
        class Mutant(base):
            async def add_message(self, message: Row) -> None:
                changed = change(copy.deepcopy(message))
                if changed is not None:
                    await super().add_message(changed)

        return Mutant

    return make


def sending(change: Callable[[Rows], Rows], *, always: bool = False) -> Make:
    """A class whose requests are changed; only those that were reduced, unless ``always``."""

    def make(base: Any) -> Any:
        class Mutant(base):
            async def get_messages_for_request(self, token_budget=None, provider=None) -> Rows:
                view = await super().get_messages_for_request(token_budget, provider)
                kept = await self.get_messages()
                is_whole = len(str(view)) >= len(str(kept))
                return view if is_whole and not always else change(copy.deepcopy(view))

        return Mutant

    return make
