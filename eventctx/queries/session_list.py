"""The list of a store's sessions: sums that a cache keeps, titles, projects, and an order."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.errors import DecodeError, LogCorrupted, StreamNotFound
from eventctx.log.codec import unpacked
from eventctx.log.naming import iso
from eventctx.log.private_files import whole_file
from eventctx.log.record import Record
from eventctx.log.store import EventStore, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.extracts import words_of_person
from eventctx.projections import session_sums
from eventctx.projections.session_sums import VERSION, SessionSums
from eventctx.queries.costs import dollars_of_call, read_prices
from eventctx.queries.encoding import fill
from eventctx.queries.read_errors import ReadErrors
from eventctx.text import pattern

SUFFIX: Final = "-sessions.json"
"""After the name of the store."""

_MARK: Final = b'{"eventctx_sessions":'

_log = logging.getLogger("eventctx.sessions")


class _Known(msgspec.Struct, frozen=True):
    eventctx_sessions: int
    prices: str
    sums: dict[str, SessionSums]


class SessionStatsCache:
    """The sums that are known of a store's sessions. No call raises for the file."""

    def __init__(self, store: EventStore) -> None:
        path: Path | None = store.cache_path
        self._path = None if path is None else path.with_name(path.name + SUFFIX)
        self._writes = not store.read_only
        self._known: Mapping[str, SessionSums] = {}
        if self._path is None:
            return
        try:
            data = self._path.read_bytes()
            self._writes = self._writes and data.startswith(_MARK)
            found = msgspec.json.decode(data, type=_Known)
            if (found.eventctx_sessions, found.prices) == (VERSION, read_prices().date):
                self._known = found.sums
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            _log.debug("%s cannot be read: %s", self._path, error)

    def get(self, session: str) -> SessionSums | None:
        """The sums of a session, perhaps up to an earlier record."""
        return self._known.get(session)

    def keep(self, sums: Mapping[str, SessionSums]) -> None:
        """Keep these for the next list, in the place of all that was known."""
        if self._path is None or not self._writes or sums == self._known:
            return
        try:
            with whole_file(self._path) as file:
                known = _Known(VERSION, read_prices().date, dict(sums))
                file.write(msgspec.json.encode(known))
        except (OSError, UnicodeEncodeError) as error:
            _log.debug("%s cannot be written: %s", self._path, error)


LIVE: Final = 300 * 10**9
"""Nanoseconds after its last record in which a session counts as live."""


class ListedSession(msgspec.Struct, frozen=True):
    """A row of ``eventctx sessions``. ``parent`` is the session it was forked from.

    ``observed`` and ``reconstructed`` count the requests that are known so; eventctx prepared the
    others. ``model`` and ``tokens`` are those of the last request (``audit`` has the same figure).
    ``cost`` is that of its own calls, in US dollars at list prices; ``unpriced`` counts the calls
    that it lacks. ``title`` is the imported file's own, else the first words of a person;
    ``project`` the folder that the file names. A session is ``live`` for five minutes after its
    last record, unless that record ends it.
    """

    session: str
    records: int
    messages: int
    turns: int
    requests: int
    observed: int
    reconstructed: int
    compactions: int
    started: str | None
    last: str | None
    parent: str | None
    forked_at: int | None
    format: str | None
    belongs_to: str | None
    link: str | None
    model: str | None
    tokens: int | None
    tokens_estimated: bool
    cost: float | None
    unpriced: int
    title: str | None
    project: str | None
    live: bool


async def sum_session(
    store: EventStore, info: StreamInfo, errors: ReadErrors, known: SessionSums | None = None
) -> SessionSums:
    """The sums of a session as far as it can be read, from those that are ``known`` of it on."""
    if known is not None and (known.position, known.digest) == (info.head, info.digest):
        return known
    sums = session_sums.initial()
    own = 0 if info.forked_at is None else info.forked_at + 1
    start = 0
    if known is not None and 0 <= known.position < info.head:
        start = known.position
    try:
        async for record in store.read(info.stream, start=start, bodies=False):
            if start and record.position == start:
                assert known is not None  # noqa: S101 - tells the type checker
                if record.digest != known.digest:  # another session has this name by now
                    return await sum_session(store, info, errors)
                sums = known
                continue
            sums = session_sums.count_record(sums, record)
            # What a fork shares was paid once, by its parent.
            fold = _read_own if record.position >= own else session_sums.read_payload
            sums = errors.fold(fold, sums, record)
    except Exception as error:
        errors.session(info.stream, error)
    return sums


def _read_own(sums: SessionSums, record: Record) -> SessionSums:
    return session_sums.read_payload(sums, record, dollars_of_call)


async def list_row(
    store: EventStore, info: StreamInfo, sums: SessionSums, now: int
) -> ListedSession:
    """The row of a session with these sums, at the time ``now`` (UTC nanoseconds)."""
    return fill(
        ListedSession,
        sums,
        session=info.stream,
        records=info.head + 1,
        started=iso(sums.first) if sums.first else None,
        last=iso(sums.last) if sums.last else None,
        parent=info.parent,
        forked_at=info.forked_at,
        tokens_estimated=sums.estimated,
        title=await title_of(store, info.stream, sums),
        project=await project_of(store, info.stream, sums),
        live=is_live(sums, now),
    )


def is_live(sums: SessionSums, now: int) -> bool:
    """Whether a session counts as live at the time ``now`` (UTC nanoseconds)."""
    return not sums.ended and 0 <= now - sums.last < LIVE


Order = Literal["last", "made", "messages", "requests", "compactions", "tokens"]
"""By the last activity, by creation (the first one first), or the largest first."""


class Summed(NamedTuple):
    """A session and its sums."""

    info: StreamInfo
    sums: SessionSums


_KEYS: Final[dict[Order, Callable[[Summed], Any]]] = {
    "last": lambda one: one.sums.last,
    "messages": lambda one: one.sums.messages,
    "requests": lambda one: one.sums.requests,
    "compactions": lambda one: one.sums.compactions,
    "tokens": lambda one: one.sums.tokens or 0,
}


async def sum_sessions(
    store: EventStore, errors: ReadErrors, done: Callable[[int], None] = lambda _: None
) -> list[Summed]:
    """All sessions in order of creation; ``done`` is called with how many were summed up.

    Of a session that was summed up before, only what was appended since is read.
    """
    cache = SessionStatsCache(store)
    found: list[Summed] = []
    kept: dict[str, SessionSums] = {}
    async for info in store.streams():
        if info.deleted:
            continue
        before = errors.count
        sums = await sum_session(store, info, errors, cache.get(info.stream))
        if errors.count == before:  # what could not be read is to be told again
            kept[info.stream] = sums
        found.append(Summed(info, sums))
        done(len(found))
    cache.keep(kept)
    return found


def sort_sessions(sessions: list[Summed], order: Order) -> list[Summed]:
    """The sessions in this order; of equal ones the last made first."""
    if order == "made":
        return sessions
    last_made_first = sessions[::-1]
    return sorted(last_made_first, key=_KEYS[order], reverse=True)


async def list_sessions(
    store: EventStore,
    sessions: list[Summed],
    *,
    project: str | None = None,
    grep: str | None = None,
    limit: int | None = None,
) -> AsyncIterator[ListedSession]:
    """Their rows; only those whose ``project`` and whose texts hold these words, in any case."""
    now = time.time_ns()
    count = 0
    for info, sums in sessions:
        row = await list_row(store, info, sums, now)
        if not _holds(project, row.project) or not _holds(
            grep, row.title, row.project, row.session, row.model
        ):
            continue
        yield row
        count += 1
        if count == limit:
            return


def _holds(wanted: str | None, *texts: str | None) -> bool:
    return wanted is None or any(wanted.casefold() in (text or "").casefold() for text in texts)


_NAMED: Final = 3


async def last_in_project(store: EventStore, folder: Path) -> StreamInfo:
    """The session last active in ``folder`` (resolved), or in one around it; no subagent's.

    Only imported sessions name their folder, those of Gemini CLI by its SHA-256. Raises
    StreamNotFound, with the last sessions of the store, where none named this one.
    """
    found = sort_sessions(await sum_sessions(store, ReadErrors()), "last")
    own = [one for one in found if one.sums.belongs_to is None]
    around = {str(one) for one in (folder, *folder.parents)}
    digests = {sha256(os.fsencode(one)).hexdigest() for one in around}
    for info, sums in own:
        text = "" if sums.raw is None else await _parts(store, info.stream, sums.raw)
        project, digest = _folder_in(text), _FOLDER_DIGEST.search(text)
        if (project and str(Path(project)) in around) or (digest and digest[1] in digests):
            return info
    error = StreamNotFound("")
    names = " or ".join(repr(one.info.stream) for one in own[:_NAMED])
    known = f"name one, such as {names}" if names else "the store holds none yet"
    error.args = (f"no session of this store was used in {folder}: {known}",)
    raise error


LONGEST: Final = 100
"""Characters of a title."""

_READ: Final = 1_000_000
"""Bytes of the parts of an imported file that are looked through for its title and folder."""

_FOLDER: Final = pattern(r'"(?:cwd|directory)"\s*:\s*("(?:[^"\\]|\\.){1,4096}")')
_FOLDER_DIGEST: Final = pattern(r'"projectHash"\s*:\s*"([0-9a-f]{64})"')
_TITLE: Final = pattern(
    r'"(?:customTitle|aiTitle|thread_name|name)"\s*:\s*("(?:[^"\\]|\\.){1,4096}")'
)
_BY_PERSON: Final = ('"custom-title"', '"thread_name_updated"', '"session_info"')
_GENERATED: Final = ('"ai-title"',)
_SPACES: Final = re.compile(r"\s+")


async def title_of(store: EventStore, session: str, sums: SessionSums) -> str | None:
    """The title in the imported file, else the first words of a person, on one line.

    None where there is neither, or what held them was erased or cannot be read.
    """
    if sums.titled is not None:
        lines = (await _parts(store, session, sums.titled)).splitlines()
        title = _last_title(lines, _BY_PERSON) or _last_title(lines, _GENERATED)
        if title is not None:
            return title
    if sums.spoken is None:
        return None
    try:
        (body,) = await store.bodies(session, [sums.spoken])
        message: Any = None if body.data is None else decode_body(body.data)
    except (DecodeError, LogCorrupted, msgspec.DecodeError):
        return None
    return _shortened(words_of_person(message)) if isinstance(message, dict) else None


def _last_title(lines: list[str], marks: tuple[str, ...]) -> str | None:
    for line in reversed(lines):
        found = _TITLE.findall(line) if any(mark in line for mark in marks) else ()
        if found and (title := _shortened(_text(found[-1]))):
            return title
    return None


async def project_of(store: EventStore, session: str, sums: SessionSums) -> str | None:
    """The folder in which the imported session began; None where its file does not name one."""
    if sums.raw is None:
        return None
    return _folder_in(await _parts(store, session, sums.raw))


def _folder_in(text: str) -> str | None:
    found = _FOLDER.search(text)
    return None if found is None else _text(found[1]) or None


async def _parts(store: EventStore, session: str, position: int) -> str:
    """The parts of an imported file at a position; empty where they are not to be had."""
    try:
        async for record in store.read(session, start=position, stop=position):
            found = unpacked(record, _READ)
            return "" if found is None else found.data.decode("utf-8", "replace")
    except (DecodeError, LogCorrupted):
        pass
    return ""


def _text(quoted: str) -> str:
    try:
        return msgspec.json.decode(quoted, type=str)
    except msgspec.DecodeError:
        return ""


def _shortened(text: str) -> str | None:
    line = _SPACES.sub(" ", text[: 20 * LONGEST]).strip()
    if len(line) > LONGEST:
        line = line[: LONGEST - 1].rstrip() + "…"
    return line or None
