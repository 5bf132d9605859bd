"""The lines of one transcript in a stream of their own, verbatim, in batches as they came.

The SDK's transcripts are opaque. A line's batch is an ``import:raw`` record; the first one of a
stream holds the SDK's key. Two things are made of the lines: a summary, which is the SDK's own fold
with a snapshot, and a session of the importer's. For the importer they are laid out as Claude Code
lays out its files. They come from the log, so every host that resumes a session imports the same
bytes, and a second import finds the first.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from eventctx.errors import InvalidMessage, InvalidSessionId
from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.codec import decode_event, encode_event, pack, raw_of
from eventctx.log.events import Event, ImportRaw, SessionLinked, SessionStart
from eventctx.log.ids import check_session_id, random_bytes
from eventctx.log.record import Draft, Record, make_body
from eventctx.log.store import EventStore, Snapshot
from eventctx.version import __version__

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionSummaryEntry

    from eventctx.engine import Engine


FORMAT: Final = "claude-agent-sdk"
HEAD: Final = 2
"""The last position at which the key may stand."""

_PREFIX: Final = "claude-lines-"
_KIND: Final = "transcript"
_KEY: Final = "key"
_LINE: Final = "line"

Entry = dict[str, Any]


class TranscriptKey(NamedTuple):
    """A transcript of the SDK: a session's main one, or with ``subpath`` a subagent's."""

    project: str
    session: str
    subpath: str | None = None

    @staticmethod
    def of(key: SessionKey) -> TranscriptKey:
        """The transcript of the SDK's key."""
        return TranscriptKey(key["project_key"], key["session_id"], key.get("subpath"))

    @property
    def main(self) -> TranscriptKey:
        """The main transcript of its session."""
        return self._replace(subpath=None)

    @property
    def stream(self) -> str:
        """Its stream: hashes, since the SDK's names may be paths, of any length."""
        ends = [self.project, self.session, *([] if self.subpath is None else [self.subpath])]
        return _PREFIX + "-".join([_hash(one) for one in ends])


class KeyFound(NamedTuple):
    """The transcript that a stream holds; its lines begin after ``position``."""

    transcript: TranscriptKey
    position: int


def streams_of(project: str) -> str:
    """The prefix of the names of all streams of a project."""
    return f"{_PREFIX}{_hash(project)}-"


def first_drafts(transcript: TranscriptKey, now: int) -> list[Draft]:
    """The first records of a stream: where it comes from, what it belongs to, and its key."""
    started = SessionStart(
        library=f"eventctx {__version__}", source=None, format=FORMAT, imported_at=now
    )
    drafts = [_draft(started, now)]
    with suppress(InvalidSessionId):
        owner = check_session_id(transcript.session)
        drafts.append(_draft(SessionLinked(session=owner, relation="parent", kind=_KIND), now))
    return [*drafts, _batch(_KEY, [msgspec.json.encode(list(transcript))], now)]


def lines_draft(entries: Sequence[Mapping[str, Any]], now: int) -> Draft:
    """The record of a batch. Raises InvalidMessage for an entry that JSON cannot hold."""
    return _batch(_LINE, [_line(number, one) for number, one in enumerate(entries)], now)


def entry_of(line: bytes) -> Entry:
    """The entry of a line."""
    found: Entry = json.loads(line)
    return found


def _line(number: int, entry: Mapping[str, Any]) -> bytes:
    """The entry as Claude Code writes it, so that its own file imports as the same lines."""
    try:
        text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which only an escape can hold
        return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"$[{number}]", str(error), "an entry of plain JSON") from error


def lines_in(record: Record) -> list[bytes]:
    """The lines of a record, none where it has none or they were erased."""
    if record.type != "import:raw":
        return []
    event = decode_event(record)
    if not isinstance(event, ImportRaw) or _LINE not in event.kinds:
        return []
    data = raw_of(record)
    return [] if data is None else data.split(b"\n")


async def key_in(records: AsyncIterator[Record]) -> KeyFound | None:
    """The key among the first records of a stream."""
    async for record in records:
        event = decode_event(record)
        if isinstance(event, ImportRaw) and _KEY in event.kinds:
            data = raw_of(record)
            if data is not None:
                return KeyFound(TranscriptKey(*msgspec.json.decode(data)), record.position)
    return None


def _batch(kind: str, lines: list[bytes], now: int) -> Draft:
    plain = b"\n".join(lines)
    packed, encoding = pack(plain)
    event = ImportRaw(
        source=FORMAT,
        lines=(0, 0),
        kinds={kind: len(lines)},
        imported_at=now,
        encoding=encoding,
    )
    return _draft(event, now, packed)


def _draft(event: Event, now: int, *bodies: bytes) -> Draft:
    kind, version, payload = encode_event(event)
    made = tuple([make_body(data, b"", random_bytes) for data in bodies])
    return Draft(random_bytes(16), kind, version, now, payload, made)


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


_AGENT: Final = re.compile(r"subagents/([\w.-]{1,200})")


async def imported(
    engine: Engine, session: str, parts: Mapping[str | None, list[bytes]]
) -> list[ImportSummary]:
    """Import the lines of a main transcript (key None) and of those below its subpaths.

    Raises InvalidSessionId, and what ``import_file`` raises.
    """
    check_session_id(session)
    if not parts.get(None):
        return []
    with tempfile.TemporaryDirectory(prefix="eventctx-") as folder:
        path = await asyncio.to_thread(_write_files, Path(folder), session, parts)
        return await import_file(
            engine.store, path, format="claude-code", noted=engine.note_receipt
        )


def _write_files(folder: Path, session: str, parts: Mapping[str | None, list[bytes]]) -> Path:
    """Write the files of agents, and return the main one; other files have no place there."""
    for subpath, lines in parts.items():
        agent = None if subpath is None else _AGENT.fullmatch(subpath)
        if subpath is None:
            path = folder / f"{session}.jsonl"
        elif agent is not None:
            path = folder / session / "subagents" / f"{agent[1]}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            continue
        path.write_bytes(b"".join([line + b"\n" for line in lines]))
    return folder / f"{session}.jsonl"


_VERSION: Final = 1
_NAME: Final = "claude-agent-sdk-summary"


async def summary_of(
    store: EventStore, transcript: TranscriptKey, mtime: int
) -> SessionSummaryEntry:
    """The summary of a main transcript, with the time of its last entry in milliseconds.

    The snapshot is named after the SDK's version, whose fold may change.
    """
    from claude_agent_sdk import __version__ as sdk
    from claude_agent_sdk import fold_session_summary

    name = f"{_NAME}-{sdk}"
    known = await store.load_snapshot(transcript.stream, name)
    if known is not None and known.version != _VERSION:
        known = None
    summary: Any = None if known is None else msgspec.json.decode(known.data)
    key: SessionKey = {"project_key": transcript.project, "session_id": transcript.session}
    last = None
    start = 0 if known is None else known.position + 1
    async for last in store.read(transcript.stream, start=start):
        entries: list[Any] = [entry_of(line) for line in lines_in(last)]
        summary = fold_session_summary(summary, key, entries)
    if last is not None:
        data = msgspec.json.encode(summary)
        snapshot = Snapshot(last.position, last.digest, _VERSION, data)
        store.save_snapshot(transcript.stream, name, snapshot)
    return cast("SessionSummaryEntry", {**summary, "mtime": mtime})
