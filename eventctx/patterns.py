"""Regular expressions that are compiled when they are first used.

A module that names a dozen of them would compile all at import, 0.1 to 3 ms each, in every process
that loads the module and for most of them in vain. ``pattern`` takes what ``re.compile`` takes; an
expression that is wrong raises at its first use, so a test compiles every one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


class _Pattern:
    """Stands in for a ``re.Pattern``: the first use of an attribute fetches it from the real one.

    It is then an attribute of this object, so a later use costs no call. Two threads that use one
    at the same time both get it from ``re``, which keeps one compiled pattern.
    """

    def __init__(self, expression: Any, flags: int = 0) -> None:
        self._expression = expression
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._expression, self._flags), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    pattern = re.compile
else:
    pattern = _Pattern
