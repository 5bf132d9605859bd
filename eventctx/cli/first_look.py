"""The first look at a machine: the sessions of known programs are found, and read with consent.

``eventctx`` alone on a terminal lists them, and says what to type next. A first question reads the
newest until it has an answer, and the others after it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import Final, NamedTuple

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import one_line, plural
from eventctx.cli.output.program import complain, on_terminal, run, spelling
from eventctx.cli.output.screen import Screen, progress
from eventctx.cli.output.session_table import age, show_sessions
from eventctx.importers.detect import passed_over
from eventctx.importers.format_table import known_folders
from eventctx.importers.found import FileState, search
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.load import ImportSummary
from eventctx.importers.many import FilePassedOver, import_paths
from eventctx.importers.source.source import Progress
from eventctx.importers.workers import useful_workers
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import (
    ListedSession,
    Summed,
    list_sessions,
    sort_sessions,
    sum_sessions,
)
from eventctx.queries.session_names import short_names
from eventctx.stores.location import default_path

_READ: Final = 50
"""Files that are read at once: the newest, so that there is an answer within a minute."""

_SHOWN: Final = 10


class UnreadFiles(NamedTuple):
    """Files that the index of what was read has not: among the newest of all, and older ones.

    To be asked about the newest alone is enough: a person who has read these may want no more.
    """

    new: list[FoundFile]
    older: int


class FoundFile(NamedTuple):
    """A transcript of a known program, not yet read, and the files that its import reads."""

    program: str
    path: Path
    files: tuple[FileState, ...]

    @property
    def modified(self) -> int:
        """The time of the last change, in nanoseconds."""
        return max(one.modified for one in self.files)


def look() -> None:
    """Show the sessions there are; first offer to read those of known programs."""
    screen = Screen()
    words = "eventctx shows what an agent's model was sent, and what compactions took from it."
    screen.line((words, "bold"))
    screen.blank()
    sessions, files = run(_state())
    if files.new and _offered(screen, files, again=bool(sessions)):
        run(_read_files(screen, files.new))
        sessions, files = run(_state())
        screen.blank()
    if not sessions:
        _show_ways(screen, files)
        return
    run(_shown(screen))
    if files.older:
        left = f"{plural(files.older, 'older file')} {'is' if files.older == 1 else 'are'}"
        screen.line((f"{left} not read yet: `{spelling()} import --all`", "dim"))


def read_until_compacted(store: Path) -> list[FoundFile]:
    """Offer the same for a store that is not there yet, and read up to a compacted session.

    Returns those of the offered files that are left; none without a terminal or without consent,
    and for a store that somebody named.
    """
    if store != default_path() or not on_terminal():
        return []
    _, files = run(_state())
    screen = Screen()
    if not files.new or not _offered(screen, files, again=False):
        return []
    return files.new[run(_read_files(screen, files.new, until_compacted=True)) :]


def read_rest(files: list[FoundFile]) -> None:
    """Read the files that a first question left."""
    if files:
        screen = Screen()
        screen.blank()
        left = plural(len(files), "other file")
        screen.line((f"Reading {left}; after Ctrl-C, `{spelling()}` goes on.", "dim"))
        run(_read_files(screen, files))


async def _state() -> tuple[list[Summed], UnreadFiles]:
    """The sessions of the store, and the files that were not read; both may be none."""
    path = opening.path_of(opening.location(None))
    files = found_files()
    if path is not None and not path.exists():
        return [], UnreadFiles(files[:_READ], len(files[_READ:]))
    async with opening.open_existing(None) as engine:
        sessions = await sum_sessions(engine.store, ReadErrors())
        known = KnownFiles(path)
        unread = [await known.get(one.path, one.files, engine.store) is None for one in files]
        return sessions, UnreadFiles([*compress(files[:_READ], unread)], sum(unread[_READ:]))


def found_files() -> list[FoundFile]:
    """The transcripts in the folders of known programs by their names, the newest first."""
    found = [
        FoundFile(folder.program, Path(path), states)
        for folder in known_folders(Path.home(), os.environ)
        if folder.path.is_dir()
        for path, states in search(folder.path).files.items()
        if folder.holds(path)
    ]
    return sorted(found, key=lambda one: one.modified, reverse=True)


def _offered(screen: Screen, files: UnreadFiles, *, again: bool) -> bool:
    """Whether the person lets the new files be read."""
    screen.line("Not read yet:" if again else "Found on this machine:")
    for program in dict.fromkeys(one.program for one in files.new):
        own = [one for one in files.new if one.program == program]
        count, when = f"{plural(len(own), 'file'):>10}", age(own[0].modified)
        last = "the last written just now" if when == "now" else f"the last written {when} ago"
        screen.line((f"{program:<12}", "bold"), f"{count}, {last}", indent=2)
    screen.blank()
    if files.older:
        screen.line(
            f"and {plural(files.older, 'older file')}: `{spelling()} import --all`", indent=2
        )
    which = "the newest " + str(len(files.new)) if files.older else "them"
    screen.line(
        f"They are copied into {opening.location(None)}; the files stay as they are, and nothing "
        "leaves this machine."
    )
    return click.confirm(f"Read {which}?", default=True)


async def _read_files(
    screen: Screen, files: list[FoundFile], *, until_compacted: bool = False
) -> int:
    """Read files in their order, all or up to a compacted session; returns how many."""
    began = time.monotonic()
    names: set[str] = set()
    read = taken = 0

    def told(result: ImportSummary | FilePassedOver) -> None:
        if isinstance(result, FilePassedOver):
            text = one_line(f"{result.path}: {result.reason}")
            screen.line(("not read: ", "yellow"), text)
        elif result.session:
            names.add(result.session)

    async with opening.open_or_create(None) as engine:
        known = KnownFiles(opening.path_of(opening.location(None)))
        try:
            with progress("Reading sessions", len(files)) as bar:

                @contextmanager
                def shown(_: Path) -> Iterator[Progress]:
                    nonlocal read
                    yield lambda done, size: None
                    read += 1
                    bar.at(read, len(files))

                for some in [[one] for one in files] if until_compacted else [files]:
                    paths = _paths_to_read(some, known)
                    read += len(some) - len(paths)
                    done = await import_paths(
                        engine.store,
                        paths,
                        told=told,
                        shown=shown,
                        index=known,
                        noted=engine.note_receipt,
                        workers=useful_workers(),
                    )
                    taken += len(some)
                    if until_compacted and any(one.compactions for one in done.sessions):
                        break
        except asyncio.CancelledError:
            complain(f"{read} of {len(files)} read; run `{spelling()}` to go on")
            raise
        finally:
            known.save()
    screen.line(f"Read {plural(len(names), 'session')} in {time.monotonic() - began:.1f} s.")
    return taken


def _paths_to_read(files: list[FoundFile], known: KnownFiles) -> list[Path]:
    """The files whose session no other file tells; the rest is noted as passed over."""
    paths = []
    for one in files:
        if (reason := passed_over(one.path)) is None:
            paths.append(one.path)
        else:
            known.note(one.path, one.files, {}, FilePassedOver(path=one.path, reason=reason))
    return paths


async def _shown(screen: Screen) -> None:
    errors = ReadErrors()
    async with opening.open_existing(None) as engine:
        every = await sum_sessions(engine.store, errors)
        newest = sort_sessions(every, "last")
        rows = [row async for row in list_sessions(engine.store, newest, limit=_SHOWN)]
    show_sessions(screen, rows, every, footnotes=False)
    if len(every) > len(rows):
        screen.line((f"and {len(every) - len(rows):,} more: `{spelling()} sessions`", "dim"))
    screen.blank()
    short = short_names(one.info.stream for one in every)
    compacted = any(one.sums.compactions for one in every)
    _show_commands(screen, rows, short, compacted=compacted)


def _show_commands(
    screen: Screen, rows: list[ListedSession], short: dict[str, str], *, compacted: bool
) -> None:
    own = short[rows[0].session]
    commands = [
        *([("lost", "what the last compaction took")] if compacted else []),
        (f"audit {own}", "its requests and compactions"),
        (f"view {own}", "what its model was sent last"),
        ("inspect", "the same as a page"),
        ("--help", "all commands"),
    ]
    screen.line(("What to type:", "bold"))
    width = max(len(command) for command, _ in commands)
    for command, about in commands:
        screen.line((f"{spelling()} {command:<{width}}", "cyan"), f"  {about}", indent=2)


def _show_ways(screen: Screen, files: UnreadFiles) -> None:
    if not files.new:
        known = known_folders(Path.home(), os.environ)
        looked = ", ".join(f"{one.path} ({one.program})" for one in known)
        screen.line(f"No sessions yet, and none in {looked}.")
    screen.line(("What to type:", "bold"))
    name = spelling()
    for command, about in (
        ("demo", "a sample session with compactions"),
        ("import FILE", "a session of your own: of these programs and others"),
        ("--help", "all commands"),
    ):
        screen.line((f"{name} {command:<11}", "cyan"), f"  {about}", indent=2)
