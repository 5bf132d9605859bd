"""Tapes that are written in a process of their own.

To read a request's JSON takes milliseconds in which no thread of the same process runs, so a token
that comes in that time would wait. The relay's process only packs the bytes of a call into a pipe.
The writer ends when the pipe does, so what a killed relay has sent is on the tapes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Final

import msgspec

from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.tapes import Tapes

_SIZE: Final = 8
"""Bytes that give the length of the packed call after them."""

_GENTLY: Final = 10
"""The priority that the writer gives up to the relay, as for ``nice``."""


class Written(msgspec.Struct, frozen=True):
    """The report of a writer at its end: how many calls are on tapes, which ones, and problems.

    ``problem`` is the first of ``lost`` problems.
    """

    calls: int = 0
    lost: int = 0
    paths: tuple[str, ...] = ()
    problem: str | None = None


class TapeProcess:
    """Writes calls to the tapes in a folder. ``put`` never blocks and never raises.

    ``name`` is that of the session of a program that names none.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._unsent = 0
        self._queue: SimpleQueue[SeenCall | None] = SimpleQueue()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "eventctx.proxy.tape_process", str(folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
        )
        self._thread = threading.Thread(target=self._run, name="eventctx-tapes", daemon=True)
        self._thread.start()

    def put(self, call: SeenCall) -> None:
        """Take a call."""
        self._queue.put(call)

    def close(self) -> Written:
        """Wait until all that was taken is written; return what was."""
        self._queue.put(None)
        self._thread.join()
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        with self._process.stdout as out:
            report = out.read()
        self._process.wait()
        try:
            written = msgspec.json.decode(report, type=Written)
        except msgspec.DecodeError:
            written = Written(problem="the process that writes the tapes was killed")
        lost = written.lost + self._unsent
        return msgspec.structs.replace(written, lost=lost)

    def _run(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None  # noqa: S101 - it is a pipe
        while (call := self._queue.get()) is not None:
            try:
                packed = msgspec.msgpack.encode(call)
                pipe.write(len(packed).to_bytes(_SIZE, "big"))
                pipe.write(packed)
                pipe.flush()
            except OSError:
                self._unsent += 1
        with suppress(OSError):
            pipe.close()


def write(calls: BinaryIO, folder: Path, name: str) -> Written:
    """Write the packed calls of a pipe to tapes, until it ends."""
    problems: list[str] = []
    tapes = Tapes(folder, name, problems.append)
    while len(size := calls.read(_SIZE)) == _SIZE:
        packed = calls.read(int.from_bytes(size, "big"))
        with suppress(msgspec.DecodeError):  # a call that was cut
            tapes.put(msgspec.msgpack.decode(packed, type=SeenCall))
    tapes.close()
    paths = tuple(map(str, tapes.paths))
    return Written(tapes.calls, tapes.lost, paths, next(iter(problems), None))


if __name__ == "__main__":
    with suppress(AttributeError, OSError):
        os.nice(_GENTLY)
    done = write(sys.stdin.buffer, Path(sys.argv[1]), sys.argv[2])
    sys.stdout.buffer.write(msgspec.json.encode(done))
