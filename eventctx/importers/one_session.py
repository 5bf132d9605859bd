"""Importing one session: a parser's items become its records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from eventctx.errors import InvalidMessage, NotATranscript, SourceChanged
from eventctx.importers.format_table import FORMATS, Format
from eventctx.importers.recording.recorder import Recorder
from eventctx.importers.recording.track import Track
from eventctx.importers.source.items import (
    CompactionItem,
    FileLine,
    Item,
    MessageItem,
    Paused,
    Raw,
    RecordedContent,
    RecordedRequest,
    Session,
    Waiting,
)
from eventctx.importers.source.lines import MAX_BYTES
from eventctx.importers.source.naming import folder_mark, session_name
from eventctx.importers.source.source import GrowingLines, Progress, Source
from eventctx.log.store import EventStore, Receipt
from eventctx.log.turn_recorder import fit_for_log
from eventctx.messages.facts_reader import read_facts
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
    errors of a subagent's file that end the import of the main one, too. ``only_match``: the
    session must be there, and the file must hold nothing else. ``noted`` takes the receipt of each
    session that got records.
    """

    store: EventStore
    chosen: Format
    session: str | None
    complete: bool
    now: int
    salt: Callable[[int], bytes]
    ends: tuple[type[Exception], ...]
    only_match: bool = False
    noted: Callable[[Receipt], None] | None = None


class ImportOutcome(msgspec.Struct):
    """The outcome of the import of a session. ``links`` are calls by the sessions they started."""

    summary: ImportSummary
    links: dict[str, str | None] = {}
    answered: set[str] = set()
    last_compaction: int | None = None
    track: Track | None = None


AtEnd = Callable[[ImportOutcome, GrowingLines], Awaitable[bool]]
"""Called at the present end of a file; waits, and returns whether to read on."""


class _Reading:
    """A file while it is read, and the stream that its records are in."""

    def __init__(self, run: ImportRun, source: Source, at_end: AtEnd | None) -> None:
        self.run = run
        self.source = source
        self.track: Track | None = None
        self._at_end = at_end

    def items(self) -> Iterator[Item]:
        """The items that the run's format reads."""
        chosen, path = self.run.chosen, self.source.path
        lines: Iterable[FileLine] = chosen.whole(path, self.source.lines())
        if self.run.complete:
            # The rest of a half last line will never come, so it is kept as it is.
            lines = (line._replace(terminated=True) for line in lines)
        parse = (chosen.parse_folder if self.source.is_folder else None) or chosen.parse
        return parse(lines, chosen.called(path), self.closed)

    def closed(self) -> bool:
        """Whether the file grows no more."""
        # A stream that goes on after what may grow was imported as complete before.
        return self.run.complete or (self.track is not None and self.track.next is not None)

    async def feed(self, recorder: Recorder, track: Track, items: Iterable[Item]) -> None:
        """Record items up to the end of the file. Raises SourceChanged."""
        try:
            for item in items:
                if isinstance(item, Paused):
                    await self._pause(recorder, track)
                else:
                    await recorder.feed(item)
            await recorder.end(self.closed())
        except SourceChanged:
            await track.check_ours()
            raise
        finally:
            recorder.close()
        if track.next is not None:
            await track.check_ours()
            raise SourceChanged(
                f"{self.source.path.name}: session {track.stream!r} holds more than this file, "
                f"from position {track.next.position} ({track.next.type}) on: the file was cut, or "
                "the session was continued; import the file as another session with --session NEW"
            )

    async def _pause(self, recorder: Recorder, track: Track) -> None:
        """Wait at the present end of a file that is followed."""
        growing = self.source.growing
        # A stream that goes on after the file's end is matched, or refused, at that end.
        if track.next is None and self._at_end is not None and growing is not None:
            await track.flush()
            if await self._at_end(_outcome(self, recorder, track), growing):
                growing.resume()


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
    reading = _Reading(run, Source(path, progress, growing=at_end is not None), at_end)
    items = reading.items()
    first = next(items, None)
    if not isinstance(first, Session):
        return ImportOutcome(_nothing(path, chosen, first, reading.source.size))
    if parent is not None:
        first = msgspec.structs.replace(first, parent=parent)
    name = run.session or session_name(first.session_id)
    track = Track(
        run.store,
        name,
        run.salt,
        run.now,
        only_match=run.only_match,
        rewrites=chosen.rewrites,
        noted=run.noted,
    )
    reading.track = track
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
        folder=folder_mark(path) if chosen.by_file else None,
        call_id=call_id,
        call_span=call_span,
        has_requests=chosen.has_requests,
        undoes_compactions=chosen.undoes_compactions,
    )
    await reading.feed(recorder, track, chain((first,), rest))
    return _outcome(reading, recorder, track)


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
        observed=recorder.requests.observed,
        unanswered=recorder.requests.unanswered,
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


def problem_and_items(items: Iterator[Item]) -> tuple[str | None, Iterable[Item]]:
    """The problem of a session that holds no text, and all items again.

    The marks of a format may fit a file of another program. Such a file yields messages that are
    all empty, or lines that no parser understands.

    Items are held back up to the first one that says something. A file that has no message yet is
    no problem, nor is one whose beginning is too long to be held.
    """
    held: list[Item] = []
    size = messages = unknown = 0
    begins = False
    for item in items:
        held.append(item)
        size += len(item.data) if isinstance(item, Raw) else 0
        # What waits for the rest of the file may say something.
        if _says(item) or isinstance(item, Waiting) or size > MAX_BYTES:
            return None, chain(held, items)
        if isinstance(item, Paused):
            begins = True
            break
        messages += isinstance(item, MessageItem)
        unknown += isinstance(item, Raw) and not item.understood
        begins = begins or (isinstance(item, Raw) and item.kind != "document")
    problem = None
    if messages:
        problem = f"{messages} message{'s' * (messages > 1)} without any text"
    elif unknown:
        problem = f"no message, and {unknown} line{'s' * (unknown > 1)} of another form"
    elif not begins:
        problem = "no message"
    return problem, chain(held, items)


def _says(item: Item) -> bool:
    if isinstance(item, MessageItem):
        return _holds_something(item)
    return isinstance(item, CompactionItem | RecordedContent | RecordedRequest)


def _holds_something(item: MessageItem) -> bool:
    try:
        facts = item.facts or read_facts(item.message)
    except InvalidMessage:
        return False
    sizes = facts.prose + facts.arguments + facts.outcome + facts.thinking + facts.images
    return bool(sizes or facts.media or facts.calls or facts.results)
