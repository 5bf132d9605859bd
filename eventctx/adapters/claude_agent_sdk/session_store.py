"""A ``SessionStore`` of the SDK over an engine: a live mirror of transcripts, resumed from the log.

The SDK calls it in the loop of its client, which must be the engine's.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from eventctx.adapters.claude_agent_sdk.lines import (
    HEAD,
    Entry,
    TranscriptKey,
    entry_of,
    first_drafts,
    imported,
    key_in,
    lines_draft,
    lines_in,
    streams_of,
    summary_of,
)
from eventctx.adapters.command_hooks.reminder import reminder, words_that_hold
from eventctx.aio import KeyedLock, finish
from eventctx.errors import SessionWasDeleted, WrongExpectedVersion
from eventctx.log.store import NO_STREAM

if TYPE_CHECKING:
    from claude_agent_sdk import HookMatcher
    from claude_agent_sdk.types import (
        HookEvent,
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

    from eventctx.engine import Engine
    from eventctx.importers.load import ImportSummary

_MILLISECOND: Final = 1_000_000
_MOST_SEEN: Final = 64
"""Transcripts whose entries' ids are held in memory."""


@dataclass(slots=True)
class _Seen:
    """The ids of a transcript's entries up to a position of its stream."""

    ids: set[str] = field(default_factory=set)
    head: int = -1

    def take(self, entries: Iterable[Mapping[str, Any]], head: int) -> None:
        self.ids.update(one["uuid"] for one in entries if isinstance(one.get("uuid"), str))
        self.head = head


class EventctxSessionStore:
    """Give it as ``session_store`` to ``ClaudeAgentOptions``, and ``hooks`` as its ``hooks``.

    Each transcript is a stream, its lines kept as they came. ``import_session`` makes a session of
    them that every question can be asked; ``hooks`` do so around compactions and after turns.
    ``clock`` gives UTC nanoseconds.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._engine = engine
        self._store = engine.store
        self._clock = clock
        self._locks = KeyedLock()
        self._seen: dict[TranscriptKey, _Seen] = {}
        self._over: set[str] = set()

    # -- the SDK's SessionStore ------------------------------------------------------------------

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep entries; those whose ``uuid`` is known already are a retry of the SDK's.

        Raises InvalidMessage for what is no JSON, SessionWasDeleted, and what the store raises;
        the SDK then tries again, and reports it.
        """
        transcript = TranscriptKey.of(key)
        # The ids of a cancelled append would be unknown, and the SDK's retry would double it.
        await finish(self._append(transcript, entries))

    async def _append(self, transcript: TranscriptKey, entries: list[SessionStoreEntry]) -> None:
        async with self._locks(transcript.stream):
            while (new := await self._append_new(transcript, entries)) is None:
                pass
        if transcript.session in self._over and any("uuid" in one for one in new):
            from eventctx.adapters.claude_agent_sdk.hooks import import_quietly

            main: SessionListSubkeysKey = {
                "project_key": transcript.project,
                "session_id": transcript.session,
            }
            await import_quietly(self.import_session, main)

    async def _append_new(
        self, transcript: TranscriptKey, entries: list[SessionStoreEntry]
    ) -> list[SessionStoreEntry] | None:
        """Append what is new and return it; None where another process appended meanwhile."""
        seen = await self._seen_of(transcript)
        new = [one for one in entries if one.get("uuid") not in seen.ids]
        if new:
            draft = lines_draft(cast("Sequence[Entry]", new), self._clock())
            try:
                done = await self._store.append(transcript.stream, [draft], seen.head)
            except WrongExpectedVersion:
                await self._read_on(transcript, seen)
                return None
            seen.take(new, done.receipt.position)
        return new

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript, equal to what was appended; None for an unknown one."""
        lines = await self._lines(TranscriptKey.of(key))
        if not lines:
            return None
        return [cast("SessionStoreEntry", entry_of(line)) for line in lines]

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, with the time of their last entry."""
        return [
            {"session_id": one.session, "mtime": await self._written(one)}
            async for one in self._transcripts(project_key)
            if one.subpath is None
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK's own fold says of each session; only what is new of one is read."""
        return [
            await summary_of(self._store, one, await self._written(one))
            async for one in self._transcripts(project_key)
            if one.subpath is None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Destroy a transcript's lines for ever; those of its subagents with a main one's.

        A session that was imported from them stays: ``engine.delete`` destroys that.
        """
        wanted = TranscriptKey.of(key)
        of_session = [
            one
            async for one in self._transcripts(wanted.project)
            if one == wanted or (wanted.subpath is None and one.main == wanted)
        ]
        for one in of_session:
            self._seen.pop(one, None)
            await self._engine.delete(one.stream, reason="deleted by the Claude Agent SDK")

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths of a session: its subagents' transcripts."""
        main = TranscriptKey(key["project_key"], key["session_id"])
        return [
            one.subpath
            async for one in self._transcripts(main.project)
            if one.subpath is not None and one.main == main
        ]

    # -- ours ------------------------------------------------------------------------------------

    async def import_session(self, key: SessionListSubkeysKey) -> list[ImportSummary]:
        """Import what is new of a session's lines, and return a summary of each transcript.

        The session has the SDK's id, those of its subagents are linked to it. Empty where no line
        is known. Raises as ``eventctx.import_file``.
        """
        main = TranscriptKey(key["project_key"], key["session_id"])
        async with self._locks(f"import {main.stream}"):
            agents = [main._replace(subpath=one) for one in await self.list_subkeys(key)]
            parts = {one.subpath: await self._lines(one) for one in (main, *agents)}
            return await imported(self._engine, main.session, parts)

    def hooks(self) -> dict[HookEvent, list[HookMatcher]]:
        """Hooks that import a session before a compaction and after each turn.

        The last lines of a turn come after its end, and are imported with their append. After a
        compaction the model is told the demands of the person that hold, redacted. What fails is
        logged, and changes nothing for the agent.
        """
        from eventctx.adapters.claude_agent_sdk.hooks import session_hooks

        return session_hooks(self.import_session, self._over, self._reminder)

    async def _reminder(self, session: str) -> str | None:
        return reminder(session, await words_that_hold(self._engine, session))

    # -- streams ---------------------------------------------------------------------------------

    async def _seen_of(self, transcript: TranscriptKey) -> _Seen:
        """What is known of a transcript, which is begun if it is new."""
        seen = self._seen.pop(transcript, None)
        if seen is None:
            await self._begin(transcript)
            await self._read_on(transcript, seen := _Seen())
        self._seen[transcript] = seen
        while len(self._seen) > _MOST_SEEN:
            self._seen.pop(next(iter(self._seen)))
        return seen

    async def _read_on(self, transcript: TranscriptKey, seen: _Seen) -> None:
        """Take what was appended since. Raises SessionWasDeleted."""
        info = await self._store.head(transcript.stream)
        if info is not None and info.deleted:
            raise SessionWasDeleted(transcript.stream)
        async for record in self._store.read(transcript.stream, start=seen.head + 1):
            seen.take([entry_of(line) for line in lines_in(record)], record.position)

    async def _begin(self, transcript: TranscriptKey) -> None:
        if await self._store.head(transcript.stream) is None:
            drafts = first_drafts(transcript, self._clock())
            with suppress(WrongExpectedVersion):  # another process began it
                await self._store.append(transcript.stream, drafts, NO_STREAM)

    async def _lines(self, transcript: TranscriptKey) -> list[bytes]:
        info = await self._store.head(transcript.stream)
        if info is None or info.deleted:
            return []
        return [
            line
            async for record in self._store.read(transcript.stream)
            for line in lines_in(record)
        ]

    async def _transcripts(self, project: str) -> AsyncIterator[TranscriptKey]:
        """The transcripts of a project that hold a line."""
        prefix = streams_of(project)
        async for info in self._engine.each_session():
            if info.stream.startswith(prefix):
                found = await key_in(self._store.read(info.stream, stop=HEAD))
                if found is not None and info.head > found.position:
                    yield found.transcript

    async def _written(self, transcript: TranscriptKey) -> int:
        """UTC milliseconds of the last record."""
        async for last in self._store.read(transcript.stream, backward=True, bodies=False):
            return last.time // _MILLISECOND
        return 0
