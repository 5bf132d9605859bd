"""Renews objects with locks after a fork of the process.

A lock that another thread of the parent held at the fork would stay locked in the child for ever.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object with locks of its own."""

    def after_fork(self) -> None:
        """Take new locks, and drop the state that only the parent may report."""
        ...


_renewable: WeakSet[Renewable] = WeakSet()


def renew_after_fork(one: Renewable) -> None:
    """Call ``one.after_fork`` in every child that the process forks, as long as ``one`` lives."""
    _renewable.add(one)


def _renew() -> None:
    for one in list(_renewable):
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
