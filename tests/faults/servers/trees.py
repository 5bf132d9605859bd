"""Processes with all that they started: stopped, continued and killed together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from tests.services.process import ServiceFailed

T = TypeVar("T")


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
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def until(true: Callable[[], T], problem: str, seconds: float = 60.0) -> T:
    """What ``true`` returns, as soon as it holds. Raises ServiceFailed."""
    end = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > end:
            raise ServiceFailed(f"{problem} after {seconds:g} s")
        time.sleep(0.02)
    return found


def stands(pid: int, states: str) -> bool:
    """Whether all threads of a process are in these states, or it has ended."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # it has ended
            if thread.read_text().rpartition(")")[2].split()[0] not in states:
                return False
    return True


def kill(roots: Iterable[int]) -> None:
    """kill -9 processes with their descendants, and wait until none runs.

    They are stopped first, so that none starts another one meanwhile.
    """
    roots = list(roots)
    send(roots, signal.SIGSTOP)
    pids = tree(roots)
    send(pids, signal.SIGSTOP)
    pids = [*dict.fromkeys([*pids, *tree(roots)])]
    send(pids, signal.SIGKILL)
    until(lambda: all(stands(one, "ZX") for one in pids), "processes go on after SIGKILL")


def missing(problem: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        raise ServiceFailed(problem)
    pytest.skip(problem)
