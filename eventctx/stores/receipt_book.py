"""The receipt book: the end of every session after its last turn, kept outside the store.

A chain cannot show that its end was cut off, or that all of it was written anew. So the book notes
a receipt at each turn's end and when a store is closed. It is a file of JSON lines, one for each
receipt, which is only appended to; it holds names, positions and digests, no contents. A line is
one write, so any number of processes may note at once, and a line that a full disk tore is skipped.

A book that cannot be written never disturbs the agent: a warning says so once. With write access to
book and store, anybody can change both; a signature is the remedy (``log.integrity``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec

from eventctx.errors import NotAStore, StoreUnavailable
from eventctx.log.private_files import append_line, make_folder
from eventctx.log.store import Receipt

_MARK: Final = b'{"receipt_book":1'
"""The beginning of every line. A file that begins otherwise is not ours."""

_TAIL_BYTES: Final = 1 << 16

Noted = Literal["receipt", "deleted", "mismatch", "restored", "erased", "tape", "export"]

_ENDS: Final = frozenset(("receipt", "deleted", "restored"))
"""Lines that say how sessions end; the others tell of contents."""


class BookEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line: a session's receipt, its deletion on purpose, or a mismatch that was found.

    Or, without a session, that a backup was put in the store's place: earlier lines no longer
    apply. Or that contents were erased, or are also in a file, a tape or an export, whose path is
    ``found``. ``time`` is in UTC nanoseconds; else ``found`` describes the record
    in the place of a receipt.
    """

    receipt_book: int
    what: Noted
    session: str
    time: int
    position: int = -1
    digest: str = ""
    found: str = ""

    @property
    def receipt(self) -> Receipt:
        """The receipt that was noted."""
        return Receipt(self.session, self.position, bytes.fromhex(self.digest))


class ReceiptBook:
    """The receipts of one store's sessions. ``clock`` returns UTC nanoseconds.

    A ``read_only`` book notes nothing.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], int] = time.time_ns, read_only: bool = False
    ) -> None:
        self.path = path
        self._read_only = read_only
        self._clock = clock
        self._last: dict[str, Receipt] | None = None
        self._complained = False

    def note(self, receipt: Receipt) -> None:
        """Note the end of a session. Never raises."""
        if self._last is not None:
            self._last[receipt.stream] = receipt
        self._append(
            BookEntry(
                1,
                "receipt",
                receipt.stream,
                self._clock(),
                receipt.position,
                receipt.digest.hex(),
            )
        )

    def deleted(self, mark: Receipt) -> None:
        """Note the record that is left of a session which was deleted on purpose. Never raises.

        Its earlier receipts no longer apply.
        """
        if self._last is not None:
            self._last[mark.stream] = mark
        now = self._clock()
        self._append(BookEntry(1, "deleted", mark.stream, now, mark.position, mark.digest.hex()))

    def erased(self, session: str) -> None:
        """Note that contents of a session were erased. Never raises."""
        self._append(BookEntry(1, "erased", session, self._clock()))

    def copied_to(self, path: Path, session: str, what: Literal["tape", "export"]) -> None:
        """Note a file of ours that holds contents of a session. Never raises."""
        where = os.path.realpath(path)
        self._append(BookEntry(1, what, session, self._clock(), found=where))

    def restored(self, receipts: Iterable[Receipt]) -> None:
        """Note that a backup was put in the store's place on purpose. Never raises.

        Earlier receipts no longer apply; ``receipts`` are the present ends of the sessions.
        """
        if self._last is not None:
            self._last.clear()
        self._append(BookEntry(1, "restored", "", self._clock()))
        for receipt in receipts:
            self.note(receipt)

    def mismatch(self, receipt: Receipt, found: str) -> None:
        """Note, and warn, that a session is not what its last receipt says. Never raises."""
        _warn(
            "session %r is not what it was: its receipt is for position %d, and %s. `eventctx "
            "verify` says more; if you removed the store, or put an older one in its place, delete "
            "the receipts: %s",
            receipt.stream, receipt.position, found, self.path,
        )  # fmt: skip
        now = self._clock()
        digest = receipt.digest.hex()
        self._append(BookEntry(1, "mismatch", receipt.stream, now, receipt.position, digest, found))

    @property
    def is_read(self) -> bool:
        """Whether ``last`` needs no file."""
        return self._last is not None

    def last(self) -> dict[str, Receipt]:
        """The last receipt of each session since a restore. Empty without a book.

        Raises NotAStore (somebody else's file), StoreUnavailable.
        """
        if self._last is None:
            found: dict[str, Receipt] = {}
            for entry in self.entries():
                if entry.what == "receipt" or (entry.what == "deleted" and entry.digest):
                    found[entry.session] = entry.receipt
                elif entry.what == "deleted":  # as earlier releases noted it
                    found.pop(entry.session, None)
                elif entry.what == "restored":
                    found.clear()
            self._last = found
        return dict(self._last)

    def newest(self) -> Receipt | None:
        """The receipt that was noted last, of any session; from the book's end. Never raises."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return None
        for entry in map(_entry, reversed(lines)):
            if entry is not None and entry.what in _ENDS:
                return entry.receipt if entry.what == "receipt" else None
        return None

    def entries(self) -> list[BookEntry]:
        """All lines, oldest first. Raises as ``last`` does."""
        try:
            stored = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path}: the receipts cannot be read ({error.strerror})"
            ) from error
        self._check(stored[: len(_MARK)])
        found = map(_entry, stored.splitlines())
        return [entry for entry in found if entry is not None]

    def complain(self, error: Exception) -> None:
        """Say once that the book cannot be used."""
        if not self._complained:
            self._complained = True
            _warn("receipts cannot be kept: %s; the agent goes on, this is said once", error)

    def _append(self, entry: BookEntry) -> None:
        if self._read_only:
            return
        try:
            make_folder(self.path.parent)
            append_line(self.path, msgspec.json.encode(entry), self._check)
        except (OSError, NotAStore) as error:
            self.complain(error)

    def _check(self, start: bytes) -> None:
        if not start.startswith(_MARK[: len(start)]):
            raise NotAStore(
                f"{self.path}: expected a book of receipts, or nothing, found another program's "
                "file; move it away"
            )


def _entry(line: bytes) -> BookEntry | None:
    """The entry in a line; None for one that is torn, or of a later release."""
    try:
        entry = msgspec.json.decode(line, type=BookEntry)
        bytes.fromhex(entry.digest)
    except ValueError:
        return None
    return entry


def _warn(text: str, *values: object) -> None:
    """Log a warning. A command that only says what it can do loads no logging."""
    import logging

    logging.getLogger("eventctx.receipts").warning(text, *values)
