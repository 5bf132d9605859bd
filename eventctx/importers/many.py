"""Importing many files: one that cannot be read is passed over, and named with the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from eventctx.errors import (
    EventctxError,
    NotATranscript,
    SessionWasDeleted,
    SessionWasTakenOver,
)
from eventctx.importers.detect import passed_over
from eventctx.importers.formats.amplifier import CONTEXT
from eventctx.importers.found import Candidate, FileState, check_folder, find
from eventctx.importers.load import ENDS_ALL, ImportSummary, import_file
from eventctx.log.store import EventStore, Receipt, StreamInfo


class FilePassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A file that became no session, and why.

    ``error`` names the exception's class. It is None where nothing is wrong: a search met
    the file, and it is no transcript, or its session was taken over or deleted; or it holds nothing
    to import yet.
    """

    path: Path
    reason: str
    error: str | None = None


class ImportTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over an import: of all sessions' records, not only new ones, but for ``added``.

    ``sessions`` counts names: two files of one session count once. ``failed`` counts the files
    among the ``passed_over`` that have an error. ``bytes`` are those of the imported files.
    """

    sessions: int = 0
    added: int = 0
    messages: int = 0
    turns: int = 0
    calls: int = 0
    compactions: int = 0
    observed: int = 0
    warned: int = 0
    passed_over: int = 0
    failed: int = 0
    bytes: int = 0


class ImportedPaths(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of many files: a summary of each session, and what was left out."""

    sessions: tuple[ImportSummary, ...]
    passed_over: tuple[FilePassedOver, ...]

    @property
    def total(self) -> ImportTotal:
        """The sums."""
        last = {summary.session: summary for summary in self.sessions}
        return ImportTotal(
            sessions=len(last),
            added=sum([one.added for one in self.sessions]),
            messages=sum([one.messages for one in last.values()]),
            turns=sum([one.turns for one in last.values()]),
            calls=sum([one.calls for one in last.values()]),
            compactions=sum([one.compactions for one in last.values()]),
            observed=sum([one.observed for one in last.values()]),
            warned=sum([one.warned for one in self.sessions]),
            passed_over=len(self.passed_over),
            failed=sum([one.error is not None for one in self.passed_over]),
            bytes=sum([one.bytes for one in self.sessions]),
        )


CLOSED_ON_PURPOSE: Final = (SessionWasTakenOver, SessionWasDeleted)
"""The errors of a session that somebody closed to its file on purpose; nothing is wrong with it."""

ImportOne = Callable[[Path], Awaitable[Sequence[ImportSummary]]]
"""Imports the sessions of one path."""

Told = Callable[[ImportSummary | FilePassedOver], None]
"""Called with each result as soon as there is one."""


class FileIndex(Protocol):
    """The files that were read before, and what became of them (``KnownFiles``)."""

    async def summaries(
        self, path: Path, files: tuple[FileState, ...], store: EventStore
    ) -> tuple[ImportSummary, ...]:
        """What another import of these files would give; nothing if they are to be read."""

    async def note_read(
        self,
        path: Path,
        files: tuple[FileState, ...],
        sessions: dict[str, StreamInfo],
        results: Sequence[ImportSummary | FilePassedOver],
        *,
        plainly: bool,
    ) -> None:
        """Note the outcome of an import that has read these files to their ends.

        ``plainly``: another import without options makes the same of them.
        """


async def import_paths(
    store: EventStore,
    paths: Iterable[str | Path],
    *,
    complete: bool = False,
    take_over: bool = False,
    importing: ImportOne | None = None,
    told: Told | None = None,
    index: FileIndex | None = None,
    read_again: bool = False,
    noted: Callable[[Receipt], None] | None = None,
) -> ImportedPaths:
    """Import files, and all transcripts in folders; an error of one file does not end the others.

    ``complete``, ``take_over`` and ``noted`` are those of ``import_file``; ``importing`` takes its
    place, for other options. A file that is in the ``index`` and has not changed is not read, but
    with ``read_again``, as options need it that make something else of the same file.

    Raises StoreUnavailable, NotAStore and StoreTooNew: without the store no other file can be
    imported. What was imported before stays. Raises InvalidSetting for a folder with more than
    ``MOST_ENTRIES`` files.
    """

    async def plainly(path: Path) -> Sequence[ImportSummary]:
        return await import_file(store, path, complete=complete, take_over=take_over, noted=noted)

    sessions: list[ImportSummary] = []
    left_out: list[FilePassedOver] = []
    for path in paths:
        check_folder(Path(path))
        candidates = list(find(Path(path)))
        if take_over:
            # Amplifier's two programs keep one session in two folders; the file with all of its
            # messages comes first, since the session is taken over once.
            candidates = sorted(candidates, key=lambda one: one.path.name != CONTEXT)
        for found in candidates:
            results: Sequence[ImportSummary | FilePassedOver] = ()
            if index is not None and not read_again:
                results = await _known(index, found, store)
            if not results:
                results = await _results(found, importing or plainly, take_over)
                if index is not None:
                    await _note(index, found, store, results, plainly=not read_again)
            for result in results:
                if isinstance(result, FilePassedOver):
                    left_out.append(result)
                else:
                    sessions.append(result)
                if told is not None:
                    told(result)
    return ImportedPaths(sessions=tuple(sessions), passed_over=tuple(left_out))


async def _known(index: FileIndex, found: Candidate, store: EventStore) -> Sequence[ImportSummary]:
    """What was made of a file that has not changed, unless another file tells its session now."""
    known = await index.summaries(found.path, found.files, store)
    return () if known and not found.named and passed_over(found.path) is not None else known


async def _note(
    index: FileIndex,
    found: Candidate,
    store: EventStore,
    results: Sequence[ImportSummary | FilePassedOver],
    *,
    plainly: bool,
) -> None:
    """Note the sessions that were made of a file, and why it was passed over, if it was."""
    names = [one.session for one in results if isinstance(one, ImportSummary)]
    heads = {name: info for name in names if name and (info := await store.head(name))}
    await index.note_read(found.path, found.files, heads, results, plainly=plainly)


async def _results(
    found: Candidate, importing: ImportOne, take_over: bool
) -> list[ImportSummary | FilePassedOver]:
    try:
        if found.error is not None:
            raise found.error
        reason = None if found.named else passed_over(found.path, take_over=take_over)
        if reason is not None:
            return [FilePassedOver(path=found.path, reason=reason)]
        return [result_of(summary) for summary in await importing(found.path)]
    except ENDS_ALL:
        raise
    except EventctxError as error:
        return [passed_over_for(found.path, error, named=found.named)]


def result_of(summary: ImportSummary) -> ImportSummary | FilePassedOver:
    """A file without a session is passed over: it has a damage, or nothing to import yet."""
    if summary.session is not None:
        return summary
    reason = "; ".join((*summary.waiting, *summary.warnings)) or "nothing to import in it yet"
    return FilePassedOver(path=summary.path, reason=reason, error=summary.error)


def passed_over_for(path: Path, error: EventctxError, *, named: bool) -> FilePassedOver:
    """The report of a file whose import raised ``error``; not ``named`` if a search met it."""
    if isinstance(error, NotATranscript) and not named:
        return FilePassedOver(path=path, reason=f"no transcript: {error.found}")
    if isinstance(error, CLOSED_ON_PURPOSE) and not named:
        return FilePassedOver(path=path, reason=str(error))
    reason = str(error).removeprefix(f"{path}: ").removeprefix(f"{path.name}: ")
    # It may hold a file's name, which may be no UTF-8.
    reason = reason.encode("utf-8", "backslashreplace").decode()
    return FilePassedOver(path=path, reason=reason, error=type(error).__name__)
