"""``import``: transcripts of other programs, and eventctx's own exports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from eventctx.cli.commands.watch import follow_paths, show_passed_over, show_session, show_total
from eventctx.cli.output import opening
from eventctx.cli.output.program import USAGE, CommandFailed, run
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.errors import InvalidSetting, MalformedTranscript, StreamExists
from eventctx.importers.format_table import FORMATS
from eventctx.importers.source.lines import unreadable
from eventctx.log.ids import check_session_id

if TYPE_CHECKING:
    from eventctx.importers.load import ImportSummary
    from eventctx.importers.many import FilePassedOver, ImportedPaths
    from eventctx.importers.source.source import Progress
    from eventctx.log.record import Draft
    from eventctx.log.store import EventStore, Receipt

EXPORT: Final = "eventctx"
"""The name of our own export format."""


class _NamedPath(click.Path):
    """A path with a name: an empty one, as of a shell variable that is not set, is no folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a file or a folder, found an empty name; `.` is this folder.")
        return super().convert(value, param, ctx)


@click.command("import", short_help="Import transcripts of other programs, or exports.")
@click.argument("files", nargs=-1, metavar="[FILE...]", type=_NamedPath(path_type=Path))
@click.option("--all", "all_", is_flag=True, help="All sessions of known programs on this machine.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([*FORMATS, EXPORT]),
    help="The files' format, where it is not recognised by itself.",
)
@click.option("--session", metavar="NAME", help="Import as this session (one file only).")
@click.option(
    "--complete",
    is_flag=True,
    help="The files are finished: import their last message groups and end their last turns.",
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Go on: import what is written to the files, and new files, until Ctrl-C.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Make the sessions yours for good: they take new messages, and nothing from their files.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that read many files at the same time. By default one a core, up to 4.",
)
@click.option("--verbose", "-v", is_flag=True, help="What waits, and each warning, too.")
@opening.reading
def import_command(
    files: tuple[Path, ...],
    all_: bool,
    format_: str | None,
    session: str | None,
    complete: bool,
    follow: bool,
    take_over: bool,
    workers: int | None,
    verbose: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Import transcripts of other agents: Claude Code, Codex, Copilot CLI, Cursor, Cline, Roo Code,
    Gemini CLI, Qwen Code, opencode, pi, OpenHands, Amplifier, SWE-agent, mini-swe-agent; what
    Claude Code and Codex print; trajectories of Harbor (ATIF); recorded HTTP of SDKs (VCR); lists
    of messages; exports.

    A folder is searched for them; one with a file per event, as OpenHands has it, or Amplifier's of
    a session is a transcript itself. Importing a file again adds only what is new in it; one that
    has not changed is not read. A session mirrors its file and changes by import alone, until
    --take-over. A file that cannot be read is passed over, named at the end, and makes the exit
    code 2.
    """
    if all_ == bool(files):
        raise click.UsageError("expected files or folders, or --all.")
    if all_:
        from eventctx.cli.first_look import found_files

        files = tuple([one.path for one in found_files()])
    if session is not None:
        from eventctx.importers.detect import is_transcript_folder

        check_session_id(session)
        if len(files) > 1 or (files[0].is_dir() and not is_transcript_folder(files[0])):
            raise click.UsageError("--session names one session: give one file with it.")
    if follow:
        if complete or take_over or session is not None or format_ == EXPORT:
            raise click.UsageError(
                "--follow takes neither --complete, --session, --take-over nor exports."
            )
        follow_paths(files, format_, store, as_json)
        return
    run(_import(files, format_, session, complete, take_over, workers, verbose, store, as_json))


async def _import(
    files: tuple[Path, ...],
    format_: str | None,
    session: str | None,
    complete: bool,
    take_over: bool,
    workers: int | None,
    verbose: bool,
    store: str | None,
    as_json: bool,
) -> None:
    from eventctx.importers.known_files import KnownFiles
    from eventctx.importers.load import ImportSummary
    from eventctx.importers.many import import_paths
    from eventctx.importers.workers import useful_workers

    # The files are searched first: without any, no empty store may be left.
    for path in files:
        _check(path)
    screen = Screen()

    def told(result: ImportSummary | FilePassedOver) -> None:
        if isinstance(result, ImportSummary) and not as_json:
            show_session(screen, result, verbose)

    async with opening.open_or_create(store) as engine:
        known = KnownFiles(opening.path_of(opening.location(store)))
        try:
            done = await import_paths(
                engine.store,
                files,
                take_over=take_over,
                importing=partial(
                    import_one,
                    format_=format_,
                    session=session,
                    complete=complete,
                    take_over=take_over,
                ),
                told=told,
                shown=partial(_shown, format_),
                index=known,
                read_again=bool(complete or take_over or session or format_),
                noted=engine.note_receipt,
                workers=useful_workers() if workers is None else workers,
            )
        finally:
            known.save()
    _put_all(done, screen, as_json)
    if done.total.failed:
        raise CommandFailed(USAGE)


def _put_all(done: ImportedPaths, screen: Screen, as_json: bool) -> None:
    if as_json:
        put_document(done.answer())
        return
    for one in done.passed_over:
        show_passed_over(screen, one)
    show_total(screen, done.total)


@contextmanager
def _shown(format_: str | None, path: Path) -> Iterator[Progress]:
    """Show a progress bar while a file is imported."""
    from eventctx.importers.detect import session_source

    with progress(f"Importing {path.name}", _size(session_source(path, format_))) as bar:
        yield bar.at


def _check(path: Path) -> None:
    """Raise UsageError for a path that is not there, and for a folder without any transcript."""
    from eventctx.importers.found import ENDINGS, check_folder, find

    check_folder(path)
    if not path.is_dir():
        # A link to nowhere is there, and is passed over with the reason.
        if not path.exists() and not path.is_symlink():
            raise click.UsageError(f"{path}: there is no such file.")
    elif next(find(path), None) is None:
        raise click.UsageError(f"{path}: no {', '.join(ENDINGS)} files in this folder.")


def _size(path: Path) -> int | None:
    """Bytes, for the progress bar; None where the import itself will say what is wrong."""
    from eventctx.importers.source.source import folder_size

    try:
        return folder_size(path) if path.is_dir() else path.stat().st_size
    except OSError:
        return None


async def import_one(
    store: EventStore,
    path: Path,
    *,
    progress: Progress | None,
    noted: Callable[[Receipt], None] | None,
    format_: str | None,
    session: str | None,
    complete: bool,
    take_over: bool,
) -> list[ImportSummary]:
    """Import a transcript, or an export; worker processes call it, too."""
    if format_ == EXPORT or (format_ is None and is_export(path)):
        if take_over:
            raise InvalidSetting(
                "--take-over: expected a file of another program, found an export of eventctx; "
                "import it without, or take the program's own file over"
            )
        return [await _import_export(store, path, session, progress, noted)]
    from eventctx.importers.load import import_file

    return await import_file(
        store,
        path,
        format=format_,
        session=session,
        complete=complete,
        take_over=take_over,
        progress=progress,
        noted=noted,
    )


def is_export(path: Path) -> bool:
    """Whether a file is one of our own exports. Raises UnreadableFile."""
    from eventctx.queries.transfer import looks_like_export

    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return looks_like_export(file.readline(65_536))
    except OSError as error:
        raise unreadable(path, error) from error


async def _import_export(
    store: EventStore,
    path: Path,
    session: str | None,
    progress: Progress | None,
    noted: Callable[[Receipt], None] | None,
) -> ImportSummary:
    """Append the records of one of our own exports, verbatim."""
    from eventctx.importers.load import ImportSummary
    from eventctx.log.store import Receipt
    from eventctx.queries.transfer import import_drafts

    with path.open("rb") as file:
        export = _Export(path, file, progress)
        name = check_session_id(session or export.header.session)
        try:
            added = await import_drafts(store, name, export.drafts())
        except StreamExists as error:
            raise MalformedTranscript(
                f"session {name!r} is in the store already and holds something else; import the "
                "file as another one with --session NEW"
            ) from error
    if added and noted is not None and (info := await store.head(name)) is not None:
        noted(Receipt(name, info.head, info.digest))
    seen = export.seen
    return ImportSummary(
        path=path,
        format=EXPORT,
        session=name,
        added=added,
        messages=seen["context:message_added"],
        turns=seen["prompt:submit"],
        calls=seen["provider:request"],
        compactions=seen["context:post_compact"],
        bytes=export.size,
    )


class _Export:
    """An export that is being read: its header, and a count of its records by type so far."""

    def __init__(self, path: Path, file: IO[bytes], progress: Progress | None) -> None:
        from eventctx.queries.transfer import read_header

        self.header = read_header(file.readline())
        self.size = os.fstat(file.fileno()).st_size
        self._path = path
        self.seen: Counter[str] = Counter()
        self._file = file
        self._progress = progress

    def drafts(self) -> Iterator[tuple[Draft, bytes]]:
        """The records with their digests.

        Raises MalformedTranscript when the file ends before the last record that its header names.
        """
        from eventctx.queries.transfer import read_drafts

        last = b""
        for draft, last in read_drafts(self._lines()):
            self.seen[draft.type] += 1
            yield draft, last
        if self.seen.total() != self.header.records or last.hex() != self.header.digest:
            raise MalformedTranscript(
                f"the file ends after {self.seen.total()} of {self.header.records} records: export "
                "the session again; what was imported before the end stays"
            )

    def _lines(self) -> Iterator[bytes]:
        done = 0
        try:
            for line in self._file:
                done += len(line)
                if self._progress is not None:
                    self._progress(done, self.size)
                yield line
        except OSError as error:
            raise unreadable(self._path, error) from error
