"""Importing one session: a parser's items become its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from eventctx.errors import NotATranscript, SourceChanged
from eventctx.importers.detect import FORMATS, Format
from eventctx.importers.recording.recorder import Recorder
from eventctx.importers.recording.track import Track
from eventctx.importers.source.growing_lines import GrowingLines
from eventctx.importers.source.items import FileLine, Item, Paused, Session
from eventctx.importers.source.naming import session_name
from eventctx.importers.source.source import Progress, Source
from eventctx.importers.textless import problem_and_items
from eventctx.log.store import EventStore
from eventctx.log.turn_recorder import fit_for_log
from eventctx.projections.trace.identity import SpanIds


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of one file.

    ``session`` is None when there was nothing to import yet. ``added`` counts new records; the
    other counts cover the whole file, with earlier imports. ``raw`` counts the parts that were kept
    verbatim, by kind, and ``unknown`` those among them that no parser understood. ``waiting`` lists
    the parts left for the next import, ``links`` the sessions that belong to this one. ``bytes`` is
    the size of the file. ``taken_over``: the session is ours from here on. ``observed`` counts the
    calls whose request the file holds as it was sent, ``unanswered`` further such requests that no
    answer in the file names. ``error`` names the exception that a subagent's file raised; the
    warnings hold its message.
    """

    path: Path
    format: str
    session: str | None
    added: int = 0
    messages: int = 0
    turns: int = 0
    calls: int = 0
    compactions: int = 0
    observed: int = 0
    unanswered: int = 0
    raw: dict[str, int] = {}
    unknown: dict[str, int] = {}
    waiting: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    warned: int = 0
    bytes: int = 0
    taken_over: bool = False
    error: str | None = None


class ImportRun(NamedTuple):
    """The part of one import that is the same for the main file and its subagents'.

    ``session`` is the name that the caller wants, ``now`` the time of the import. ``ends`` are the
    errors of a subagent's file that end the import of the main one, too.
    """

    store: EventStore
    chosen: Format
    session: str | None
    complete: bool
    now: int
    salt: Callable[[int], bytes]
    ends: tuple[type[Exception], ...]


class ImportOutcome(msgspec.Struct):
    """What the import of a session found. ``links`` are calls by the sessions they started."""

    summary: ImportSummary
    links: dict[str, str | None] = {}
    answered: set[str] = set()
    last_compaction: int | None = None
    track: Track | None = None


AtEnd = Callable[[ImportOutcome, GrowingLines], Awaitable[bool]]
"""Called at the present end of a file; waits, and returns whether to read on."""


class _Reading(NamedTuple):
    """A file while it is read."""

    run: ImportRun
    source: Source
    at_end: AtEnd | None


async def import_session(
    run: ImportRun,
    path: Path,
    progress: Progress | None = None,
    *,
    parent: str | None = None,
    call_id: str | None = None,
    call_span: SpanIds | None = None,
    at_end: AtEnd | None = None,
) -> ImportOutcome:
    """Import the session that the run's format reads in a file, or what there is of it so far.

    ``call_id`` and ``call_span`` are those of the call in ``parent`` that started it.
    """
    chosen = run.chosen
    source = Source(path, progress, growing=at_end is not None)
    track: Track | None = None

    def closed() -> bool:
        # A stream that goes on behind what may grow was imported as complete before.
        return run.complete or (track is not None and track.next is not None)

    parse = (chosen.parse_folder if source.is_folder else None) or chosen.parse
    lines: Iterable[FileLine] = chosen.whole(path, source.lines())
    if run.complete:
        # Nobody will write the rest of a half last line, so it is kept as it is.
        lines = (line._replace(terminated=True) for line in lines)
    items = parse(lines, chosen.called(path), closed)
    first = next(items, None)
    if not isinstance(first, Session):
        return ImportOutcome(_nothing(path, chosen, first, source.size))
    if parent is not None:
        first = msgspec.structs.replace(first, parent=parent)
    track = Track(run.store, run.session or session_name(first.session_id), run.salt, run.now)
    await track.open()
    rest: Iterable[Item] = items
    if track.next is None:
        # A parser may ask at the end of the file whether the session goes on in the store, which
        # is known only when its records were matched: a session that is there is not looked at.
        problem, rest = problem_and_items(items)
        if problem is not None:
            found = f"{problem}, read as {chosen.name}"
            raise NotATranscript(path.name, found, tuple(FORMATS))
    recorder = Recorder(
        track,
        key=f"{chosen.name}:{first.session_id}",
        source=fit_for_log(path.name),
        format=chosen.name,
        imported_at=run.now,
        call_id=call_id,
        call_span=call_span,
    )
    reading = _Reading(run, source, at_end)
    try:
        await recorder.feed(first)
        for item in rest:
            if isinstance(item, Paused):
                await _pause(reading, recorder, track)
            else:
                await recorder.feed(item)
        await recorder.end(closed())
    except SourceChanged:
        await track.check_ours()
        raise
    finally:
        recorder.close()
    if track.next is not None:
        await track.check_ours()
        raise SourceChanged(
            f"{path.name}: session {track.stream!r} holds more than this file, from position "
            f"{track.next.position} ({track.next.type}) on: the file was cut, or the session was "
            "continued; import the file as another session with --session NEW"
        )
    return _outcome(reading, recorder, track)


async def _pause(reading: _Reading, recorder: Recorder, track: Track) -> None:
    """Wait at the present end of a file that is followed."""
    growing = reading.source.growing
    # A stream that goes on behind the file's end is matched, or refused, at that end.
    if track.next is None and reading.at_end is not None and growing is not None:
        await track.flush()
        if await reading.at_end(_outcome(reading, recorder, track), growing):
            growing.resume()


def _outcome(reading: _Reading, recorder: Recorder, track: Track) -> ImportOutcome:
    counts, nul = recorder.counts, reading.source.nul
    left_out = (f"{nul} NUL bytes, as a crash leaves them, were left out",) if nul else ()
    summary = ImportSummary(
        path=reading.source.path,
        format=reading.run.chosen.name,
        session=track.stream,
        added=track.added,
        messages=counts.messages,
        turns=counts.turns,
        calls=counts.calls,
        compactions=counts.compactions,
        observed=recorder.wires.observed,
        unanswered=recorder.wires.unanswered,
        raw=dict(recorder.raw.kinds),
        unknown=dict(counts.unknown),
        waiting=tuple(counts.waiting),
        links=tuple(counts.links),
        warnings=(*counts.warnings, *left_out),
        warned=counts.warned + len(left_out),
        bytes=reading.source.size,
    )
    return ImportOutcome(summary, counts.links, counts.answered, counts.last_compaction, track)


def _nothing(path: Path, chosen: Format, first: Item | None, size: int) -> ImportSummary:
    reason = getattr(first, "reason", "nothing in the file names a session or holds a message")
    return ImportSummary(
        path=path, format=chosen.name, session=None, waiting=(f"line 1: {reason}",), bytes=size
    )
