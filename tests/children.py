"""Programs that tests start as processes of their own: none outlives its test.

Every child begins with SIGINT at its default; tests/conftest.py sees to that.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a program; when the block ends it is killed, waited for, and its pipes are closed.

    ``options`` are those of ``subprocess.Popen``.
    """
    child = subprocess.Popen([str(word) for word in command], **options)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
