"""Importing a file: choose its format, import its sessions, link those of its subagents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from eventctx.aio import in_own_thread
from eventctx.errors import (
    NotAStore,
    SessionWasTakenOver,
    SourceChanged,
    StoreTooNew,
    StoreUnavailable,
    WrongExpectedVersion,
)
from eventctx.importers.detect import choose, session_source
from eventctx.importers.format_table import Format
from eventctx.importers.formats import amplifier
from eventctx.importers.one_session import (
    ImportOutcome,
    ImportRun,
    ImportSummary,
    import_session,
)
from eventctx.importers.recording.track import Track, check_not_taken_over
from eventctx.importers.source.document import stem
from eventctx.importers.source.lines import unreadable
from eventctx.importers.source.naming import (
    event_id,
    folder_mark,
    names_with_folders,
    session_name,
)
from eventctx.importers.source.source import GrowingLines, Progress
from eventctx.importers.subagents import Agents, with_agents
from eventctx.log.codec import decode_known
from eventctx.log.events import SessionStart, SessionTakenOver
from eventctx.log.ids import check_session_id, random_bytes
from eventctx.log.record import CheckedClock
from eventctx.log.store import EventStore, Receipt
from eventctx.log.turn_recorder import fit_for_log

__all__ = ["ENDS_ALL", "ImportSummary", "More", "follow_file", "import_file"]

ENDS_ALL: Final = (StoreUnavailable, NotAStore, StoreTooNew)
"""The errors that end an import of many files. They concern the store, not one file."""

More = Callable[[list[ImportSummary], Callable[[], bool]], Awaitable[bool]]
"""Called at the present end of a file, with the summaries so far; waits, and returns whether to
read on. The second argument tells whether that can be: it is still the file that was read."""


async def import_file(
    store: EventStore,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002 - the command line's word
    session: str | None = None,
    complete: bool = False,
    take_over: bool = False,
    clock: Callable[[], int] = time.time_ns,
    salt: Callable[[int], bytes] = random_bytes,
    progress: Progress | None = None,
    noted: Callable[[Receipt], None] | None = None,
) -> list[ImportSummary]:
    """Import a transcript, and the files of its subagents, and return a summary of each.

    ``path`` is a file, a folder of events as OpenHands keeps it, or Amplifier's folder of a
    session. Of Amplifier's files, the one that tells most is read, whichever is named, unless
    ``format`` is given. A file with several sessions gives a summary of each.

    A second import adds only what is new since the first one. ``format`` overrides detection,
    ``session`` the file's own id. ``complete`` means that the file grows no more: parts that would
    wait are imported, and the last turn ends. ``clock`` gives UTC nanoseconds. ``noted`` is called
    with the receipt of each session that got records (``Engine.note_receipt``).

    An imported session mirrors its file and changes by import alone. ``take_over`` makes it ours
    for good: everything is imported, as with ``complete``, and from then on the session takes new
    messages and nothing from its file. The sessions of its subagents stay mirrors. Of Amplifier's
    files, the one with the messages as its context module had them is read then, unless the session
    mirrors another one already; the session has the id that Amplifier gave it.

    Raises UnreadableFile, UnknownFormat and MalformedTranscript for files that cannot be read,
    InvalidSessionId for an unusable ``session``, SourceChanged when the session holds something
    else than this file, SessionWasTakenOver when it is ours by now, and what the store raises. An
    error of a subagent's file is in its summary, unless it is one of ``ENDS_ALL``. Records appended
    before an error stay, and the next import finds them.
    """
    path = Path(path)
    if session is not None:
        check_session_id(session)
    if take_over and format is None:
        path, session = await _to_take_over(store, path, session)
    else:
        path = session_source(path, format)
    chosen = _choose(path, format)
    now = CheckedClock(clock)()
    done = complete or take_over
    run = ImportRun(store, chosen, session, done, now, salt, ENDS_ALL, noted=noted)
    run, main = await _import_main(run, path, progress)
    summaries = await with_agents(run, path, main, {})
    others = await _others(run, path, main)
    summaries += [one.summary for one in others]
    if not take_over:
        return summaries
    tracks = {one.track.stream: one.track for one in (main, *others) if one.track is not None}
    return [await _taken_over(one, tracks.get(one.session or ""), run.now) for one in summaries]


async def follow_file(
    store: EventStore,
    path: str | Path,
    more: More,
    *,
    format: str | None = None,  # noqa: A002 - the command line's word
    clock: Callable[[], int] = time.time_ns,
    salt: Callable[[int], bytes] = random_bytes,
    noted: Callable[[Receipt], None] | None = None,
) -> list[ImportSummary]:
    """Import a transcript as ``import_file`` does, and read on as often as ``more`` says so.

    What was read is in the store when ``more`` is called, but for the parts that are kept verbatim:
    these are written in batches and at the end. The file is not read from its start again. That
    needs JSON Lines that were not imported as complete; of all else the first end is the last, and
    ``more`` is not called. Raises as ``import_file`` does.
    """
    path = session_source(Path(path), format)
    # What another process writes in between says nothing of a subagent's file: all is read again.
    ends = (*ENDS_ALL, WrongExpectedVersion)
    now = CheckedClock(clock)()
    run = ImportRun(store, _choose(path, format), None, False, now, salt, ends, noted=noted)
    # Of a file that is being written, the beginning of another run may be all that there is.
    run = [one async for one in _runs_to_try(run, path) if not one.only_match][-1]
    agents: Agents = {}

    async def at_end(main: ImportOutcome, lines: GrowingLines) -> bool:
        return await more(await with_agents(run, path, main, agents), lines.is_same)

    main = await import_session(run, path, at_end=at_end)
    others = await _others(run, path, main)
    return [*await with_agents(run, path, main, agents), *[one.summary for one in others]]


async def _import_main(
    run: ImportRun, path: Path, progress: Progress | None
) -> tuple[ImportRun, ImportOutcome]:
    """Import the main session of a file under the first of its names that no other file has."""
    async for named in _runs_to_try(run, path):
        try:
            return named, await import_session(named, path, progress)
        except (SourceChanged, SessionWasTakenOver):
            if not named.only_match:
                raise
    raise AssertionError("the last run is no attempt")


async def _runs_to_try(run: ImportRun, path: Path) -> AsyncIterator[ImportRun]:
    """The run under each name that the session may have; the last one is to be taken.

    Runs of one task have a folder each, and their files have the same names. The first session is
    named after its file, the others after the folders that tell them apart. Under the name of a
    file in another folder, a copy of that file is found.
    """
    names: list[str] = []
    if run.session is None and run.chosen.by_file:
        own = session_name(stem(run.chosen.called(path)))
        names = [own, *names_with_folders(path, own)]
    for name in names:
        named = run if name == names[0] else run._replace(session=name)
        start = await _start_of(run.store, name)
        if start is None or start.folder in (None, folder_mark(path)):
            yield named
            return
        yield named._replace(only_match=True)
    yield run


async def _others(run: ImportRun, path: Path, main: ImportOutcome) -> list[ImportOutcome]:
    """Import the further sessions of a file, which only some formats have."""
    found = []
    # The subagents in a file belong to its main session, whatever that is called here.
    parent = main.summary.session if run.chosen.has_agents else None
    # Some formats read the whole file for it, during which Ctrl-C must be heard.
    parsers = await in_own_thread(partial(run.chosen.others, path), "eventctx-others")
    for number, parse in enumerate(parsers, 2):
        session = None if run.session is None else f"{run.session}-{number}"
        part = run._replace(chosen=run.chosen._replace(parse=parse), session=session)
        found.append(await import_session(part, path, parent=parent))
    return found


def _choose(path: Path, name: str | None) -> Format:
    try:
        return choose(path, name, folders=True)
    except OSError as error:
        raise unreadable(path, error) from error


async def _to_take_over(
    store: EventStore, path: Path, session: str | None
) -> tuple[Path, str | None]:
    """The file to read, and the session's name, where the file itself is not named after it."""
    folder = amplifier.folder_of_session(path)
    if folder is None:
        return session_source(path), session
    name = session or session_name(folder.resolve().name)
    mirrored = await _mirrored(store, name)
    path = amplifier.source_to_take_over(path, mirrored)
    if mirrored is not None and path.name != mirrored:
        await check_not_taken_over(store, name)
        raise SourceChanged(
            f"{path.name}: session {name!r} mirrors {mirrored}, which is not in {folder}: name the "
            "folder that has it, or import this file as another session with --session NEW"
        )
    return path, name if path.name == amplifier.CONTEXT else session


async def _mirrored(store: EventStore, session: str) -> str | None:
    """The name of the file that a session in the store mirrors; None for any other."""
    start = await _start_of(store, session)
    return None if start is None or start.imported_at is None else start.source


async def _start_of(store: EventStore, session: str) -> SessionStart | None:
    info = await store.head(session)
    if info is None or info.deleted:
        return None
    first = [record async for record in store.read(session, start=0, stop=0, bodies=False)]
    event = decode_known(first[0]) if first and first[0].type == "session:start" else None
    return event if isinstance(event, SessionStart) else None


async def _taken_over(summary: ImportSummary, track: Track | None, now: int) -> ImportSummary:
    """Make an imported session ours, with the last record that an import adds to it."""
    if track is None:
        return summary
    event = SessionTakenOver(source=fit_for_log(summary.path.name), format=summary.format)
    new_id = event_id(track.stream, 0, "session:taken_over", summary.path.name)
    await track.put(event, new_id, 0, now)
    await track.flush()
    return msgspec.structs.replace(summary, added=summary.added + 1, taken_over=True)
