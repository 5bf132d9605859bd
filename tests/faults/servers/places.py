"""Folders for the data of machines: on this machine's disk, or on a disk whose power can be cut."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.counts import FULL, trials
from tests.services.in_memory import memory_folder


@contextmanager
def place() -> Iterator[Path]:
    """A folder that any user may enter, since PostgreSQL does not run as root.

    It is on the disk in a full run, whose figures are shown.
    """
    where = None if FULL else memory_folder()
    folder = Path(tempfile.mkdtemp(prefix="eventctx-machines-", dir=where))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tried(fault: str) -> pytest.MarkDecorator:
    """Skip a test without trials in this run, before machines are started for it."""
    reason = "tried in a full run alone: set EVENTCTX_FAULTS=full"
    return pytest.mark.skipif(not trials(fault), reason=reason)
