"""Subagents of Claude Code: files in a folder with the session's name, sessions of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import EventctxError
from eventctx.importers.found import agents_folder
from eventctx.importers.one_session import ImportOutcome, ImportRun, ImportSummary, import_session
from eventctx.importers.source.lines import nanoseconds, text_or_none
from eventctx.importers.source.naming import event_id
from eventctx.importers.source.values import read_value
from eventctx.log.events import SessionLinked
from eventctx.log.store import EventStore
from eventctx.projections.trace.identity import CallSpans

_TAIL_BYTES: Final = 1 << 16


class Subagent(NamedTuple):
    """A subagent, and the state of its file; an equal one need not be imported again.

    ``over``: nothing will be written to the file any more.
    """

    name: str
    call_id: str | None
    over: bool
    file: tuple[int, int, int] | None = None


Agents = dict[Path, tuple[Subagent, ImportSummary]]
"""The subagents that were imported, by their files."""


def subagent_files(path: Path) -> list[Path]:
    """The files of the subagents of a session, of Claude Code's or Cursor's.

    Those of a workflow's run have a folder, with a journal that is no transcript.
    """
    folder = agents_folder(path)
    if not folder.is_dir():
        return []
    return sorted({*folder.glob("*.jsonl"), *folder.rglob("agent-*.jsonl")})


def subagent_of(path: Path, main: ImportOutcome) -> Subagent:
    """A subagent, as its file's name, its main session and the file system tell it."""
    name = path.stem.removeprefix("agent-")
    call_id = next((c for s, c in main.links.items() if s.endswith(f".agent-{name}")), None)
    call_id = call_id or _call_beside(path)
    # Its call has a result, or the compaction for which it wrote the summary is done.
    over = call_id is not None and call_id in main.answered
    if name.startswith("acompact") and main.last_compaction is not None:
        last = _last_time(path)
        over = last <= main.last_compaction if last is not None else over
    try:
        there = path.stat()
    except OSError:
        return Subagent(name, call_id, over)
    return Subagent(name, call_id, over, (there.st_ino, there.st_size, there.st_mtime_ns))


def _call_beside(path: Path) -> str | None:
    """The call that the file about a subagent names; None without one."""
    about = path.with_name(f"{path.stem}.meta.json")
    try:
        value, _ = read_value(about.read_bytes()) if about.is_file() else (None, "")
    except (OSError, ValueError):
        return None  # it says nothing that the transcript needs
    return text_or_none(value.get("toolUseId")) if isinstance(value, dict) else None


def _last_time(path: Path) -> int | None:
    """The time of a file's last line."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).rstrip()
    except OSError:
        tail = b""  # the import itself says what is wrong
    last = tail[tail.rfind(b"\n") + 1 :]
    try:
        value, _ = read_value(last)
    except ValueError:
        value = None
    return nanoseconds(value.get("timestamp")) if isinstance(value, dict) else None


# -- importing them ------------------------------------------------------------------------------


async def with_agents(
    run: ImportRun, path: Path, main: ImportOutcome, before: Agents
) -> list[ImportSummary]:
    """Import the subagents' files that are not the same as ``before``, and link their sessions.

    Returns the summaries of all of them, after the main session's.
    """
    if not run.chosen.has_agents or main.summary.session is None:
        return [main.summary]
    summaries = []
    known: CallSpans | None = None
    for file in subagent_files(path):
        agent = subagent_of(file, main)
        if file not in before or before[file][0] != agent:
            known = known or await _call_spans(run.store, main.summary.session)
            if agent.call_id is not None:
                main.links[f"{main.summary.session}.agent-{agent.name}"] = agent.call_id
            before[file] = agent, await _import_agent(run, file, agent, main, known)
        summaries.append(before[file][1])
    already = main.track.added if main.track else 0
    await _link(main, summaries)
    added = main.summary.added + (main.track.added - already if main.track else 0)
    names = [summary.session for summary in summaries]
    links = dict.fromkeys((*main.summary.links, *(name for name in names if name)))
    main.summary = msgspec.structs.replace(main.summary, added=added, links=tuple(links))
    return [main.summary, *summaries]


async def _call_spans(store: EventStore, session: str) -> CallSpans:
    known = CallSpans()
    async for record in store.read(session, bodies=False):
        known.see(record)
    return known


async def _import_agent(
    run: ImportRun, path: Path, agent: Subagent, main: ImportOutcome, known: CallSpans
) -> ImportSummary:
    """Import a subagent's file into a stream of its own, named after the main session's."""
    parent = main.summary.session or ""
    name = f"{parent}.agent-{agent.name}" if run.session is not None else None
    run = run._replace(session=name, complete=run.complete or agent.over)
    span = known.calls.get(agent.call_id or "")
    # Which of several compactions an agent wrote the summary for, its file does not say.
    if agent.name.startswith("acompact") and len(known.compactions) == 1:
        (span,) = known.compactions
    try:
        done = await import_session(run, path, parent=parent, call_id=agent.call_id, call_span=span)
    except run.ends:
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


async def _link(main: ImportOutcome, agents: list[ImportSummary]) -> None:
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
        track.aside.append(await track.put(event, link_id, 0, None))
    await track.flush()
