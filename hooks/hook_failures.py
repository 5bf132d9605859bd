"""Losses: how often handlers failed, and how many records they never got or could not pass on.

Operational figures live outside the log, in a file ``STORE`` + ``SUFFIX``, so that a process can
show the losses of another one that has ended. Each line is JSON and holds the losses of one process
in half a second. Lines are only appended, each in one write, so any number of processes write at
once and none waits for another; a reader sums the lines. A line that a full disk or a power cut
tore is no JSON, and readers skip it. Without a loss there is no file.

A line has about 100 bytes per handler in it, and a process writes at most two a second: a hook
that fails all day long makes 17 MB. Nothing makes the file smaller; it may be deleted at any time,
and the counts begin anew.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Final, Literal

import msgspec

from eventctx.aio import in_own_thread
from eventctx.errors import NotAStore, StoreFull, StoreTooNew, StoreUnavailable
from eventctx.hooks.handlers import renew_after_fork
from eventctx.log.private_files import FILE_RIGHTS, append_line

SUFFIX: Final = "-losses.jsonl"

DELAY: Final = 0.5
"""Seconds for which losses are gathered before they are written."""

_VERSION: Final = 1
_MARK: Final = b'{"hook_failures":'
"""The beginning of every line, before the version. A file that begins otherwise is not ours."""

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})

_log = logging.getLogger("eventctx.hooks")

LossKind = Literal["error", "dropped"]
"""``error``: a handler raised, was cancelled or took too long. ``dropped``: a record that a handler
never got, or something that it took and could not pass on, such as a span nobody accepted."""

LossListener = Callable[[str, LossKind, int], None]
"""Gets a loss: the handler's name, the kind, the number. It must be quick; any thread calls it."""

Listen = Callable[[Hashable, LossListener], Callable[[], None]]
"""``Hooks.on_loss``: among several listeners with an equal place only one gets each loss."""


class Loss(msgspec.Struct, frozen=True):
    """How often a handler (``module.qualified_name``) lost something, of one kind.

    ``last`` is the time of the last loss, in UTC nanoseconds.
    """

    handler: str
    kind: LossKind
    count: int
    last: int


class _Line(msgspec.Struct, frozen=True):
    hook_failures: int
    losses: tuple[Loss, ...]


_Sums = dict[tuple[str, LossKind], Loss]


class HookFailures:
    """The losses on one store: gathers new ones, writes them to the file, and reads all of them.

    No caller waits for a write and nothing polls: the first loss starts a thread, which lives until
    all noted losses are written. A write that fails is tried again with the next loss and at the
    end. Without a path, as for a store in memory, losses end with the process. Safe to call from
    any thread. ``clock`` returns UTC nanoseconds.
    """

    def __init__(
        self, store: Path | None, listen: Listen, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._store = store
        self.path = None if store is None else store.with_name(store.name + SUFFIX)
        self._in_memory: _Sums = {}
        self._clock = clock
        self._noted: _Sums = {}
        self._thread: Thread | None = None
        self._closing = Event()
        self._complained = False
        self._lock = RLock()
        self._writing = RLock()
        place = id(self) if self.path is None else os.path.realpath(self.path)
        self._stop = listen(place, self.note)
        renew_after_fork(self)

    def note(self, handler: str, kind: LossKind, count: int = 1) -> None:
        """Note a loss. Never raises, and waits for nothing."""
        name = handler.encode("utf-8", "backslashreplace").decode()
        with self._lock:
            _add(self._noted, [Loss(name, kind, count, self._clock())])
            if self._thread is not None or self._closing.is_set():
                return
            self._thread = Thread(target=self._run, name="eventctx-losses", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                self._thread = None

    def read(self) -> tuple[Loss, ...]:
        """One loss per handler and kind, ordered by them, of all processes. Blocks; makes no file.

        Raises NotAStore (somebody else's file), StoreTooNew, StoreUnavailable.
        """
        self._write()
        with self._writing:
            sums = dict(self._in_memory)
        if self.path is not None:
            try:
                stored = self.path.read_bytes()
            except FileNotFoundError:
                return ()
            except OSError as error:
                raise self._unavailable(error) from error
            self._check_mark(stored[:100])
            for line in stored.split(b"\n"):
                with suppress(ValueError):  # torn, or not even text
                    _add(sums, msgspec.json.decode(line, type=_Line).losses)
        return tuple([sums[key] for key in sorted(sums)])

    async def close(self) -> None:
        """Write the remaining losses, and stop listening. May be called again."""
        self._stop()
        self._closing.set()
        if self._noted or self._thread is not None:
            await in_own_thread(self._write, "eventctx-losses")

    def after_fork(self) -> None:
        """Forget the noted losses, in a forked child: the parent writes them."""
        self._lock, self._writing, self._closing = RLock(), RLock(), Event()
        self._noted.clear()
        self._thread = None

    def _run(self) -> None:
        # ``close`` writes the rest, and nothing is written after that.
        while not self._closing.wait(DELAY):
            written = self._write()
            with self._lock:
                if not self._noted or not written:
                    self._thread = None
                    return

    def _write(self) -> bool:
        """Write the noted losses; False where that fails, and then they stay noted."""
        with self._writing:
            with self._lock:
                taken, self._noted = self._noted, {}
            if not taken:
                return True
            try:
                if self.path is None:
                    _add(self._in_memory, taken.values())
                else:
                    self._append(
                        self.path, msgspec.json.encode(_Line(_VERSION, tuple(taken.values())))
                    )
            except Exception as error:
                with self._lock:
                    _add(self._noted, taken.values())
                self._complain(error)
                return False
            return True

    def _append(self, path: Path, line: bytes) -> None:
        try:
            append_line(path, line, self._check_mark, self._rights())
        except OSError as error:
            raise self._unavailable(error) from error

    def _rights(self) -> int:
        """The rights of a new file: the store's, to read and to write."""
        if self._store is None or not self._store.exists():
            return FILE_RIGHTS
        return stat.S_IMODE(self._store.stat().st_mode) & 0o666

    def _check_mark(self, start: bytes) -> None:
        """Raise NotAStore or StoreTooNew for a file that this release must not write."""
        # Before the first whole line there may be lines that were torn within the mark.
        torn = takewhile(_MARK.startswith, lines := start.split(b"\n"))
        first = b"".join(lines[len(list(torn)) :][:1])
        if not first.startswith(_MARK[: len(first)]):
            raise NotAStore(
                f"{self.path}: expected the losses of the store, or nothing, found another "
                "program's file; move it away"
            )
        version = first[len(_MARK) :].partition(b",")[0]
        if version.isdigit() and int(version) > _VERSION:
            raise StoreTooNew(
                f"{self.path}: expected losses of version {_VERSION}, found {int(version)}; use a "
                "newer eventctx, or delete the file, which holds counts only"
            )

    def _unavailable(self, error: OSError) -> Exception:
        if error.errno in _NO_SPACE:
            return StoreFull(f"{self.path}: no space left to write; free some and try again")
        return StoreUnavailable(
            f"{self.path}: cannot be opened ({error.strerror}); check that the folder exists and "
            "that you may read and write it and the file"
        )

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        with suppress(Exception):
            _log.warning(
                "what hooks lost cannot be written down: %s; the agent goes on, this is said once",
                error,
            )


def _add(sums: _Sums, losses: Iterable[Loss]) -> None:
    for one in losses:
        key = one.handler, one.kind
        known = sums.get(key)
        if known is not None:
            one = Loss(*key, known.count + one.count, max(known.last, one.last))
        sums[key] = one
