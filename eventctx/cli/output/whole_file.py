"""Output files that appear only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to: it lies beside ``output`` and replaces it at the end.

    So nobody can take a broken export for a complete one, and an older file stays until the end. A
    pipe or a device such as ``/dev/null`` is written to directly.
    """
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(output)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
