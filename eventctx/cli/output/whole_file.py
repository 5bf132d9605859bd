"""Output files that appear only when they are complete; pipes and devices are written directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from eventctx.log import private_files


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to, as ``private_files.whole_file``.

    A pipe or a device such as ``/dev/null`` is written to directly.
    """
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
    else:
        with private_files.whole_file(output) as file:
            yield file
