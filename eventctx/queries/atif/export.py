"""A session as an ATIF 1.8 trajectory, written while its log is read.

A document is a JSON object whose ``steps`` are a line each. The agent comes before them, sums and
the report of completeness after them, so nothing but the open step is held. A trajectory whose
context was replaced goes on in another document (``continued_trajectory_ref``) where the caller
gives documents names; in one document alone it goes on behind the mark of the compaction. Subagents
are embedded in the document whose steps name them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from eventctx.errors import StreamNotFound
from eventctx.log import private_files
from eventctx.log.store import EventStore
from eventctx.projections.timeline.fold import TimelineState
from eventctx.queries.atif.draft import StepDraft
from eventctx.queries.atif.root import (
    Completeness,
    MetricSums,
    count_step,
    describe_agent,
    describe_session,
)
from eventctx.queries.atif.steps import SessionSteps
from eventctx.queries.atif.verbatim import NAME, VERSION
from eventctx.queries.key_frames import timeline_at
from eventctx.stores.own_copies import ATIF_MARK
from eventctx.version import __version__

Put = Callable[[bytes], object]
"""Takes the next bytes of a document."""

OpenFile = Callable[[Path], AbstractContextManager[IO[bytes]]]

_encode: Final = msgspec.json.Encoder().encode

_MOST_NESTED: Final = 20
"""Subagents of subagents that are embedded; a reader of JSON takes a limited depth."""


class AtifExport(msgspec.Struct, frozen=True):
    """What was written: the files, and how much of the session's requests they say.

    ``subagents`` are sessions that are embedded, ``missing`` those that the store does not hold.
    ``completeness`` is of the session itself, over all its files.
    """

    session: str
    files: tuple[str, ...]
    subagents: tuple[str, ...]
    missing: tuple[str, ...]
    completeness: Completeness
    bytes: int


async def write_file(
    store: EventStore, session: str, path: Path, open_file: OpenFile = private_files.whole_file
) -> AtifExport:
    """Write a session to a file, and to files next to it where its context was replaced.

    The files appear when all of them are whole. Raises StreamNotFound, LogCorrupted, OSError, and
    InvalidSetting where no file can be written, or a database is.
    """
    private_files.check_output(path)
    names = [path.name]

    def name_of(number: int) -> str:
        return f"{path.name.removesuffix('.json')}.cont-{number}.json" if number else path.name

    with ExitStack() as files:

        def next_file(number: int) -> Put:
            names[number:] = [name_of(number)]
            file = files.enter_context(open_file(path.with_name(name_of(number))))
            return file.write

        found = await write(store, session, next_file, None if _is_device(path) else name_of)
    return msgspec.structs.replace(found, files=tuple([str(path.with_name(one)) for one in names]))


def _is_device(path: Path) -> bool:
    """Whether a path is a pipe or a device, which takes one document."""
    return path.exists() and not path.is_file()


async def write(
    store: EventStore,
    session: str,
    next_document: Callable[[int], Put],
    name_of: Callable[[int], str] | None = None,
) -> AtifExport:
    """Write a session. ``next_document`` begins a document, ``name_of`` names them for each other.

    Without names it is one document. Raises StreamNotFound, LogCorrupted.
    """
    writer = _Writer(store, next_document, name_of, (session,))
    await writer.write()
    return AtifExport(
        session, (), tuple(writer.embedded), tuple(writer.missing), writer.whole, writer.bytes
    )


class _Link(NamedTuple):
    """A subagent: its session, the call that started it, and whether it is embedded."""

    session: str
    call: str | None
    embedded: bool

    def id_in(self, parent: str) -> str:
        """The id of its trajectory in that of ``parent``; the importer puts the two together."""
        return self.session.removeprefix(f"{parent}.agent-")

    def ref(self, parent: str) -> dict[str, Any]:
        """The reference to it: within the document, or to a file that is not written."""
        if self.embedded:
            return {"trajectory_id": self.id_in(parent), "session_id": self.session}
        own = {"extra": {NAME: {"embedded": False}}}
        return {"trajectory_path": f"{self.session}.json", "session_id": self.session, **own}


class _Writer:
    """Writes one session; another one writes each embedded subagent."""

    def __init__(
        self,
        store: EventStore,
        next_document: Callable[[int], Put],
        name_of: Callable[[int], str] | None,
        above: tuple[str, ...],
        trajectory_id: str | None = None,
    ) -> None:
        """``above`` are the sessions that this one is embedded in, and itself."""
        self._store = store
        self._next_document = next_document
        self._name_of = name_of
        self._above = above
        self._trajectory_id = trajectory_id or above[-1]
        self._session = above[-1]
        self._links: dict[str, _Link] = {}
        self._document = self._number = 0
        self._here = Completeness()
        self._sums = MetricSums()
        self._put: Put = self._nowhere
        self.embedded: list[str] = []
        self.missing: list[str] = []
        self.whole = Completeness()
        self.bytes = 0

    def _nowhere(self, data: bytes) -> None:
        raise AssertionError("no document was begun")

    async def write(self) -> None:
        """Write all documents of the session."""
        info = await self._store.head(self._session)
        if info is None or info.deleted:
            raise StreamNotFound(self._session)
        now = await timeline_at(self._store, self._session, info.head)
        links = await self._find_links(now)
        agent, extra = await describe_agent(self._store, info, now), describe_session(info, now)
        refs: dict[str | None, list[dict[str, Any]]] = {}
        for link in links:
            refs.setdefault(link.call, []).append(link.ref(self._session))
        self._begin(agent)
        async for step in SessionSteps(self._store, info, now, refs).all():
            if isinstance(step, StepDraft):
                self._step(step)
            elif self._name_of is not None:
                await self._end(extra, self._name_of(self._document + 1))
                self._document += 1
                self._begin(agent)
        await self._end(extra, None)

    async def _find_links(self, now: TimelineState) -> list[_Link]:
        """The subagents, each once."""
        for link in now.extras.links:
            if link.relation != "child" or link.kind != "subagent" or link.session in self._links:
                continue
            info = await self._store.head(link.session)
            there = info is not None and not info.deleted and link.session not in self._above
            embedded = there and len(self._above) < _MOST_NESTED
            self._links[link.session] = _Link(link.session, link.call_id, embedded)
            if not embedded:
                self.missing.append(link.session)
        return list(self._links.values())

    # -- a document --------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        self._put(data)
        self.bytes += len(data)

    def _field(self, name: str, value: Any) -> None:
        self._write(b"," + _encode(name) + b":" + _encode(value))

    def _begin(self, agent: dict[str, Any]) -> None:
        self._put = self._next_document(self._document)
        self._number = 0
        self._here, self._sums = Completeness(), MetricSums()
        self._named: dict[str, _Link] = {}
        own = self._trajectory_id
        document = {
            "schema_version": VERSION,
            "notes": f"{ATIF_MARK}{__version__}; extra.{NAME} says what ATIF has no field for.",
            "session_id": self._session,
            "trajectory_id": f"{own}.cont-{self._document}" if self._document else own,
            "agent": agent,
        }
        self._write(_encode(document)[:-1] + b',"steps":[')

    def _step(self, draft: StepDraft) -> None:
        self._number += 1
        step = draft.step(self._number)
        self._write((b",\n" if self._number > 1 else b"\n") + _encode(step))
        count_step(self._here, self._sums, step)
        for kind, count in draft.left_in_shape.items():
            self._here.left_in_shape[kind] = self._here.left_in_shape.get(kind, 0) + count
        for refs in draft.other.get("refs", {}).values():
            found = [self._links[ref["session_id"]] for ref in refs]
            self._named |= {one.session: one for one in found if one.embedded}

    async def _end(self, extra: dict[str, Any], following: str | None) -> None:
        self._write(b"\n]")
        self._field("final_metrics", self._sums.final(self._number))
        self._field("extra", {NAME: {**extra, "completeness": self._here}})
        if following is not None:
            self._field("continued_trajectory_ref", following)
        self.whole.add(self._here)
        if self._named:
            self._write(b',"subagent_trajectories":[')
            for number, link in enumerate(self._named.values()):
                self._write(b"," if number else b"")
                await self._embed(link)
            self._write(b"]")
        self._write(b"}\n")

    async def _embed(self, link: _Link) -> None:
        put, above = self._put, (*self._above, link.session)
        inner = _Writer(self._store, lambda _: put, None, above, link.id_in(self._session))
        await inner.write()
        self.bytes += inner.bytes
        self.embedded += [link.session, *inner.embedded]
        self.missing += inner.missing
