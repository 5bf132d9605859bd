"""After a fork of the process: locks that another thread held would stay locked in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something with locks of its own."""

    def after_fork(self) -> None:
        """Take new locks, and forget what only the parent may tell."""
        ...


_renewable: WeakSet[Renewable] = WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Call its ``after_fork`` in every child that the process forks, as long as it lives."""
    _renewable.add(one)


def _renew() -> None:
    for one in list(_renewable):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
