"""Importing a file: choose its format, run its parser, record the items, link its agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from os import urandom
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import MalformedTranscript, SourceChanged, UnknownFormat
from eventctx.importers.detect import Format, choose, session_source
from eventctx.importers.formats import claude_code
from eventctx.importers.recording.recorder import Recorder
from eventctx.importers.recording.track import Track
from eventctx.importers.source.event_folder import folder_size, read_events
from eventctx.importers.source.items import FileLine, Item, Session
from eventctx.importers.source.lines import nanoseconds, read_lines
from eventctx.importers.source.naming import event_id, session_name
from eventctx.importers.source.values import read_value
from eventctx.log.events import SessionLinked
from eventctx.log.outcomes import fit_for_log
from eventctx.log.record import CheckedClock
from eventctx.log.session_id import check_session_id
from eventctx.log.store import EventStore

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and the file's size."""

_PROGRESS_BYTES: Final = 1 << 18
_TAIL_BYTES: Final = 1 << 16


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an import of one file.

    ``session`` is None when there was nothing to import yet. ``added`` counts new records; the
    other counts cover the whole file, with earlier imports. ``raw`` counts the parts that were kept
    verbatim, by kind, and ``unknown`` those among them that no parser understood. ``waiting`` lists
    the parts left for the next import, ``links`` the sessions that belong to this one. ``bytes`` is
    the size of the file.
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


class _Source:
    """A file's lines, or a folder's events, counted as they are read."""

    def __init__(self, path: Path, progress: Progress | None) -> None:
        self.path = path
        self.is_folder = path.is_dir()
        self.size = folder_size(path) if self.is_folder else path.stat().st_size
        self._progress = progress

    def lines(self) -> Iterator[FileLine]:
        done = reported = 0
        for line in read_events(self.path) if self.is_folder else read_lines(self.path):
            yield line
            done += len(line.data) + 1
            if self._progress is not None and done - reported >= _PROGRESS_BYTES:
                reported = done
                self._progress(min(done, self.size), self.size)
        if self._progress is not None:
            self._progress(self.size, self.size)


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

    ``path`` is a file, a folder of events as OpenHands keeps it, or Amplifier's folder of a
    session. Of Amplifier's files, the one that tells most is read, whichever is named. A file with
    several sessions gives a summary of each.

    A second import adds only what is new since the first one. ``format`` overrides detection,
    ``session`` the file's own id. ``complete`` means that the file grows no more: parts that would
    wait are imported, and the last turn ends. ``clock`` gives UTC nanoseconds.

    Raises UnknownFormat and MalformedTranscript for files that cannot be read, InvalidSessionId
    for an unusable ``session``, SourceChanged when the session holds something else than this
    file, and what the store raises. Records appended before an error stay, and the next import
    finds them.
    """
    path = session_source(Path(path), format)
    chosen = _choose(path, format)
    if session is not None:
        check_session_id(session)
    now = CheckedClock(clock)()
    run = _Import(store, chosen, session, complete, now, salt)
    main = await _import_one(run, path, progress)
    outcomes = [main]
    if chosen.name == claude_code.NAME and main.summary.session is not None:
        outcomes += [await _import_agent(run, agent, main) for agent in _agent_files(path)]
        before = main.track.added if main.track else 0
        await _link(main, [outcome.summary for outcome in outcomes[1:]], now)
        added = main.summary.added + (main.track.added - before if main.track else 0)
        names = [outcome.summary.session for outcome in outcomes[1:]]
        links = dict.fromkeys((*main.summary.links, *(name for name in names if name)))
        main.summary = msgspec.structs.replace(main.summary, added=added, links=tuple(links))
    for number, parse in enumerate(chosen.others(path), 2):
        other = None if session is None else f"{session}-{number}"
        part = run._replace(chosen=chosen._replace(parse=parse), session=other)
        outcomes.append(await _import_one(part, path))
    return [outcome.summary for outcome in outcomes]


def _choose(path: Path, name: str | None) -> Format:
    try:
        return choose(path, name, folders=True)
    except OSError as error:
        raise UnknownFormat(f"{path}: expected a file to read, found {error.strerror}") from error


async def _import_one(
    run: _Import,
    path: Path,
    progress: Progress | None = None,
    parent: str | None = None,
    call_id: str | None = None,
) -> _Outcome:
    store, chosen, session, complete, now, salt = run
    source = _Source(path, progress)
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
            await recorder.feed(item)
        await recorder.end(closed())
    finally:
        recorder.close()
    if track.next is not None:
        raise SourceChanged(
            f"{path.name}: session {name!r} holds more than this file, from position "
            f"{track.next.position} ({track.next.type}) on: the file was cut, or the session was "
            "continued; import the file as another session with --session NEW"
        )
    counts = recorder.counts
    summary = ImportSummary(
        path=path,
        format=chosen.name,
        session=name,
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


def _agent_files(path: Path) -> list[Path]:
    folder = path.with_suffix("") / "subagents"
    return sorted(folder.glob("*.jsonl")) if folder.is_dir() else []


async def _import_agent(run: _Import, path: Path, main: _Outcome) -> _Outcome:
    """Import a subagent's file into a stream of its own, named after the main session's."""
    parent = main.summary.session or ""
    agent, last = _agent_of(path)
    call_id = next((c for s, c in main.links.items() if s.endswith(f".agent-{agent}")), None)
    # Its call has a result, or the compaction for which it wrote the summary is done.
    over = call_id is not None and call_id in main.answered
    if agent.startswith("acompact") and last is not None and main.last_compaction is not None:
        over = last <= main.last_compaction
    name = f"{parent}.agent-{agent}" if run.session is not None else None
    run = run._replace(session=name, complete=run.complete or over)
    try:
        return await _import_one(run, path, parent=parent, call_id=call_id)
    except (MalformedTranscript, UnknownFormat) as error:
        summary = ImportSummary(
            path=path, format=run.chosen.name, session=None, warnings=(str(error),), warned=1
        )
        return _Outcome(summary)


def _agent_of(path: Path) -> tuple[str, int | None]:
    """A subagent's id (by its file's name), and the time of the file's last line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        tail = file.read().rstrip()
    last = tail[tail.rfind(b"\n") + 1 :]
    try:
        value, _ = read_value(last)
    except ValueError:
        value = None
    moment = nanoseconds(value.get("timestamp")) if isinstance(value, dict) else None
    return path.stem.removeprefix("agent-"), moment


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
        await track.put(event, link_id, 0, now)
    await track.flush()
