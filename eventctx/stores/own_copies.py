"""Files of ours that hold contents of sessions: tapes of recorded programs, and exports.

What is erased in a store has to be gone from them, too. The receipt book knows the files, and those
in the user's folder of tapes are found by their names. A file is ours only if its first line says
so, as somebody may have put another in its place. Invariant: where a tape was destroyed a mark is
left, so no later tape gets its name (``is_spent``): its session would be taken for a cut one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from glob import escape
from pathlib import Path
from typing import Final, Literal

import msgspec

from eventctx.errors import NotAStore, StoreUnavailable
from eventctx.log.private_files import FILE_RIGHTS
from eventctx.stores.location import default_tapes
from eventctx.stores.receipt_book import BookEntry, ReceiptBook

ATIF_MARK: Final = "Exported by eventctx "
"""The beginning of the ``notes`` in the first line of a trajectory of ours."""

_MOST_HEADER: Final = 1 << 16
_SIDE: Final = re.compile(r"-\d+$")
"""The end of the names of a tape's further sessions."""


class _Header(msgspec.Struct):
    session: str
    eventctx_tape: int = 0
    eventctx: int = 0


def is_spent(path: Path) -> bool:
    """Whether a tape of this name was destroyed."""
    return _mark(path).exists()


def copies(
    book: ReceiptBook | None, sessions: Collection[str], what: Literal["tape", "export"]
) -> list[Path]:
    """The tapes or exports that there are of these sessions; of a store without a book, none.

    Among exports are the halves that a kill left.
    """
    if book is None:
        return []
    entries = _entries(book)
    found = {Path(one.found) for one in entries if one.what == what and one.session in sessions}
    if what == "tape":
        stems = {*sessions, *[_SIDE.sub("", one) for one in sessions]}
        found |= {default_tapes() / f"{stem}.jsonl" for stem in stems if "/" not in stem}
    else:
        found |= {
            half for path in found for half in path.parent.glob(f".{escape(path.name)}.*.part")
        }
    return sorted(path for path in found if _is_ours(path, what))


def destroy_tapes(book: ReceiptBook | None) -> list[Path]:
    """Destroy the tapes of all sessions that the book calls erased or deleted.

    Returns those that cannot be destroyed.
    """
    if book is None:
        return []
    gone = {one.session for one in _entries(book) if one.what in ("erased", "deleted")}
    stay = []
    for path in copies(book, gone, "tape"):
        try:
            _mark(path).touch(FILE_RIGHTS)
            path.unlink()
        except OSError:
            stay.append(path)
    return stay


def destroy_exports(paths: Iterable[Path]) -> list[Path]:
    """Destroy exports; returns those that stay."""
    stay = []
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError:
            stay.append(path)
    return stay


def _entries(book: ReceiptBook) -> list[BookEntry]:
    try:
        return book.entries()
    except (NotAStore, StoreUnavailable) as error:
        book.complain(error)
        return []


def _is_ours(path: Path, what: Literal["tape", "export"]) -> bool:
    if not path.is_file():
        return False  # a pipe would let us wait
    try:
        with path.open("rb") as file:
            line = file.readline(_MOST_HEADER)
        if what == "export" and line.startswith(b'{"schema_version":"ATIF-'):
            return b'"notes":"' + ATIF_MARK.encode() in line
        header = msgspec.json.decode(line, type=_Header)
    except (OSError, msgspec.DecodeError):
        return False
    return bool(header.eventctx_tape if what == "tape" else header.eventctx)


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.stem}.erased")
