"""Output files that appear only when they are complete; pipes and devices are written directly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NoReturn

from eventctx.log import private_files

_ENDING: Final = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


@contextmanager
def whole_file(output: Path) -> Iterator[IO[bytes]]:
    """A file to write to, as ``private_files.whole_file``.

    A pipe or a device such as ``/dev/null`` is written to directly. Raises InvalidSetting for a
    store, or another database, which no output replaces, and where there is no folder to write in.
    """
    private_files.check_output(output)
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            yield file
    else:
        with _ended_by_exceptions(), private_files.whole_file(output) as file:
            yield file


@contextmanager
def _ended_by_exceptions() -> Iterator[None]:
    """Let a signal that ends the program end the block first: so nothing half written is left."""

    def end(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.signal(one, end) for one in _ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
