"""A lock for building into the user's cache, by one process at a time."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(lock: Path, name: str) -> Iterator[None]:
    """Hold a lock that the system frees when its holder dies; a process that waits prints so."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice = f"another build of {name} is running; waiting for it"
            print(notice, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
