"""Importing a file: choose its format, run its parser, record the items, link its agents."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from os import urandom
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import (
    EventctxError,
    NotAStore,
    SourceChanged,
    StoreTooNew,
    StoreUnavailable,
)
from eventctx.importers.detect import Format, choose
from eventctx.importers.formats import claude_code
from eventctx.importers.recording.recorder import Recorder
from eventctx.importers.recording.track import Track
from eventctx.importers.source.growing_lines import GrowingLines
from eventctx.importers.source.items import Item, Paused, Session
from eventctx.importers.source.lines import unreadable
from eventctx.importers.source.naming import event_id, session_name
from eventctx.importers.source.source import Progress, Source
from eventctx.importers.subagents import Subagent, subagent_files, subagent_of
from eventctx.log.events import SessionLinked
from eventctx.log.outcomes import fit_for_log
from eventctx.log.record import CheckedClock
from eventctx.log.session_id import check_session_id
from eventctx.log.store import EventStore

ENDS_ALL: Final = (StoreUnavailable, NotAStore, StoreTooNew)
"""The errors that end an import of many files. They concern the store, not one file."""


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of one file.

    ``session`` is None when there was nothing to import yet. ``added`` counts new records; the
    other counts cover the whole file, with earlier imports. ``raw`` counts the parts that were kept
    verbatim, by kind, and ``unknown`` those among them that no parser understood. ``waiting`` lists
    the parts left for the next import, ``links`` the sessions that belong to this one. ``bytes`` is
    the size of the file. ``error`` names the exception that a subagent's file raised; the warnings
    hold its message.
    """

    path: Path
    format: str
    session: str | None
    added: int = 0
    messages: int = 0
    turns: int = 0
    calls: int = 0
    compactions: int = 0
    raw: dict[str, int] = {}
    unknown: dict[str, int] = {}
    waiting: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    warned: int = 0
    bytes: int = 0
    error: str | None = None


class _Import(NamedTuple):
    """The part of one import that is the same for the main file and its subagents'."""

    store: EventStore
    chosen: Format
    session: str | None
    complete: bool
    now: int
    salt: Callable[[int], bytes]


class _Outcome(msgspec.Struct):
    summary: ImportSummary
    links: dict[str, str | None] = {}
    answered: set[str] = set()
    last_compaction: int | None = None
    track: Track | None = None


_Agents = dict[Path, tuple[Subagent, ImportSummary]]

_AtEnd = Callable[[_Outcome, GrowingLines], Awaitable[bool]]
"""Called at the present end of a file; waits, and returns whether to read on."""

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
    clock: Callable[[], int] = time.time_ns,
    salt: Callable[[int], bytes] = urandom,
    progress: Progress | None = None,
) -> list[ImportSummary]:
    """Import a transcript, and the subagents' files beside it, and return a summary of each.

    ``path`` is a file, or a folder of events as OpenHands keeps it.

    A second import adds only what is new since the first one. ``format`` overrides detection,
    ``session`` the file's own id. ``complete`` means that the file grows no more: parts that would
    wait are imported, and the last turn ends. ``clock`` gives UTC nanoseconds.

    Raises UnreadableFile, UnknownFormat and MalformedTranscript for files that cannot be read,
    InvalidSessionId for an unusable ``session``, SourceChanged when the session holds something
    else than this file, and what the store raises. An error of a subagent's file is in its summary,
    unless it is one of ``ENDS_ALL``. Records appended before an error stay, and the next import
    finds them.
    """
    path = Path(path)
    if session is not None:
        check_session_id(session)
    run = _Import(store, _choose(path, format), session, complete, CheckedClock(clock)(), salt)
    return await _with_agents(run, path, await _import_one(run, path, progress), {})


async def follow_file(
    store: EventStore,
    path: str | Path,
    more: More,
    *,
    format: str | None = None,  # noqa: A002 - the command line's word
    clock: Callable[[], int] = time.time_ns,
    salt: Callable[[int], bytes] = urandom,
) -> list[ImportSummary]:
    """Import a transcript as ``import_file`` does, and read on as often as ``more`` says so.

    What was read is in the store when ``more`` is called, but for the parts that are kept verbatim:
    these are written in batches and at the end. The file is not read from its start again. That
    needs JSON Lines that were not imported as complete; of all else the first end is the last, and
    ``more`` is not called. Raises as ``import_file`` does.
    """
    path = Path(path)
    run = _Import(store, _choose(path, format), None, False, CheckedClock(clock)(), salt)
    agents: _Agents = {}

    async def at_end(main: _Outcome, lines: GrowingLines) -> bool:
        return await more(await _with_agents(run, path, main, agents), lines.is_same)

    main = await _import_one(run, path, at_end=at_end)
    return await _with_agents(run, path, main, agents)


def _choose(path: Path, name: str | None) -> Format:
    try:
        return choose(path, name, folders=True)
    except OSError as error:
        raise unreadable(path, error) from error


async def _import_one(
    run: _Import,
    path: Path,
    progress: Progress | None = None,
    parent: str | None = None,
    call_id: str | None = None,
    at_end: _AtEnd | None = None,
) -> _Outcome:
    store, chosen, session, complete, now, salt = run
    source = Source(path, progress, growing=at_end is not None)
    track: Track | None = None

    def closed() -> bool:
        # A stream that goes on behind what may grow was imported as complete before.
        return complete or (track is not None and track.next is not None)

    parse = (chosen.parse_folder if source.is_folder else None) or chosen.parse
    lines = source.lines()
    if complete:
        # Nobody will write the rest of a half last line, so it is kept as it is.
        lines = (line._replace(terminated=True) for line in lines)
    items = parse(lines, chosen.called(path), closed)
    first = next(items, None)
    if not isinstance(first, Session):
        return _Outcome(_nothing(path, chosen, first, source.size))
    if parent is not None:
        first = msgspec.structs.replace(first, parent=parent)
    name = session or session_name(first.session_id)
    track = Track(store, name, salt)
    await track.open()
    recorder = Recorder(
        track,
        key=f"{chosen.name}:{first.session_id}",
        source=fit_for_log(path.name),
        format=chosen.name,
        imported_at=now,
        call_id=call_id,
    )
    try:
        await recorder.feed(first)
        for item in items:
            if not isinstance(item, Paused):
                await recorder.feed(item)
            # A stream that goes on behind the file's end is matched, or refused, at that end.
            elif track.next is None and at_end is not None and source.growing is not None:
                await track.flush()
                present = _outcome(source, chosen, recorder, track)
                if await at_end(present, source.growing):
                    source.growing.resume()
        await recorder.end(closed())
    finally:
        recorder.close()
    if track.next is not None:
        raise SourceChanged(
            f"{path.name}: session {name!r} holds more than this file, from position "
            f"{track.next.position} ({track.next.type}) on: the file was cut, or the session was "
            "continued; import the file as another session with --session NEW"
        )
    return _outcome(source, chosen, recorder, track)


def _outcome(source: Source, chosen: Format, recorder: Recorder, track: Track) -> _Outcome:
    counts = recorder.counts
    summary = ImportSummary(
        path=source.path,
        format=chosen.name,
        session=track.stream,
        added=track.added,
        messages=counts.messages,
        turns=counts.turns,
        calls=counts.calls,
        compactions=counts.compactions,
        raw=dict(recorder.raw.kinds),
        unknown=dict(counts.unknown),
        waiting=tuple(counts.waiting),
        links=tuple(counts.links),
        warnings=tuple(counts.warnings),
        warned=counts.warned,
        bytes=source.size,
    )
    return _Outcome(summary, counts.links, counts.answered, counts.last_compaction, track)


def _nothing(path: Path, chosen: Format, first: Item | None, size: int) -> ImportSummary:
    reason = getattr(first, "reason", "nothing in the file names a session or holds a message")
    return ImportSummary(
        path=path, format=chosen.name, session=None, waiting=(f"line 1: {reason}",), bytes=size
    )


# -- subagents -----------------------------------------------------------------------------------


async def _with_agents(
    run: _Import, path: Path, main: _Outcome, before: _Agents
) -> list[ImportSummary]:
    """Import the subagents' files that are not the same as ``before``, and link their sessions.

    Returns the summaries of all of them, behind the main session's.
    """
    if run.chosen.name != claude_code.NAME or main.summary.session is None:
        return [main.summary]
    summaries = []
    for file in subagent_files(path):
        agent = subagent_of(file, main)
        if file not in before or before[file][0] != agent:
            before[file] = agent, await _import_agent(run, file, agent, main)
        summaries.append(before[file][1])
    already = main.track.added if main.track else 0
    await _link(main, summaries, run.now)
    added = main.summary.added + (main.track.added - already if main.track else 0)
    names = [summary.session for summary in summaries]
    links = dict.fromkeys((*main.summary.links, *(name for name in names if name)))
    main.summary = msgspec.structs.replace(main.summary, added=added, links=tuple(links))
    return [main.summary, *summaries]


async def _import_agent(run: _Import, path: Path, agent: Subagent, main: _Outcome) -> ImportSummary:
    """Import a subagent's file into a stream of its own, named after the main session's."""
    parent = main.summary.session or ""
    name = f"{parent}.agent-{agent.name}" if run.session is not None else None
    run = run._replace(session=name, complete=run.complete or agent.over)
    try:
        done = await _import_one(run, path, parent=parent, call_id=agent.call_id)
    except ENDS_ALL:
        raise
    except EventctxError as error:
        return ImportSummary(
            path=path,
            format=run.chosen.name,
            session=None,
            warnings=(str(error),),
            warned=1,
            error=type(error).__name__,
        )
    return done.summary


async def _link(main: _Outcome, agents: list[ImportSummary], now: int) -> None:
    """Write a link to each subagent's stream into the main one, once."""
    track = main.track
    if track is None:
        return
    known = {record.id for record in track.aside}
    for name in [agent.session for agent in agents if agent.session is not None]:
        link_id = event_id(track.stream, 0, "session:linked", name)
        if link_id in known:
            continue
        agent = f".agent-{name.rpartition('.agent-')[2]}"
        call_id = next((call for link, call in main.links.items() if link.endswith(agent)), None)
        event = SessionLinked(session=name, relation="child", call_id=call_id)
        track.aside.append(await track.put(event, link_id, 0, now))
    await track.flush()
