"""Processes with all that they started: stopped, continued and killed together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import pytest

from tests.services.process import ServiceFailed


def tree(roots: Iterable[int]) -> list[int]:
    """These processes and all their descendants that run."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(place.parent.name))
    found: list[int] = []
    waiting = [one for one in roots if Path(f"/proc/{one}").exists()]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += children.get(one, [])
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def kill(roots: Iterable[int], seconds: float = 60.0) -> None:
    """kill -9 processes with their descendants, and wait until none runs.

    They are stopped first, so that none starts another one meanwhile.
    """
    roots = list(roots)
    send(roots, signal.SIGSTOP)
    pids = tree(roots)
    send(pids, signal.SIGSTOP)
    pids = [*dict.fromkeys([*pids, *tree(roots)])]
    send(pids, signal.SIGKILL)
    until = time.monotonic() + seconds
    while any(_runs(one) for one in pids):
        assert time.monotonic() < until, "processes go on after SIGKILL"
        time.sleep(0.005)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def missing(problem: str) -> NoReturn:
    """A program that is not here skips the test; in CI it fails."""
    if os.environ.get("CI") == "true":
        raise ServiceFailed(problem)
    pytest.skip(problem)
