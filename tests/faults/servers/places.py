"""Folders for the data of machines: on this machine's disk, or on a disk whose power can be cut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def place() -> Iterator[Path]:
    """A folder that any user may enter, since PostgreSQL does not run as root."""
    folder = Path(tempfile.mkdtemp(prefix="eventctx-machines-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def skip_unless(count: int) -> int:
    """The number of trials; skips the test where there are none in this run."""
    if not count:
        pytest.skip("tried in a full run alone: set EVENTCTX_FAULTS=full")
    return count
