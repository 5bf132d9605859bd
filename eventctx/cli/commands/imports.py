"""``import``: transcripts of other programs, and eventctx's own exports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import USAGE, CommandFailed, complain, run
from eventctx.cli.output.screen import Bar, Screen, progress, put_json
from eventctx.engine import Engine
from eventctx.errors import (
    EventctxError,
    MalformedTranscript,
    StoreUnavailable,
    StreamExists,
    UnknownFormat,
)
from eventctx.importers.detect import FORMATS, is_transcript_folder, passed_over, session_source
from eventctx.importers.load import ImportSummary, import_file
from eventctx.importers.source.event_folder import folder_size, is_event_file
from eventctx.log.record import Draft
from eventctx.log.session_id import check_session_id
from eventctx.queries.transfer import import_drafts, looks_like_export, read_drafts, read_header

EXPORT: Final = "eventctx"
"""The name of our own export format."""

_ENDINGS: Final = (".jsonl", ".json", ".traj", ".ndjson", ".yaml", ".yml")
_BELONGS: Final = "subagents"
_SHOWN: Final = 5


@click.command("import", short_help="Import transcripts of other programs, or exports.")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "--format",
    "format_",
    type=click.Choice([*FORMATS, EXPORT]),
    help="The files' format, where it is not recognised by itself.",
)
@click.option("--session", metavar="NAME", help="Import as this session (one file only).")
@click.option(
    "--complete",
    is_flag=True,
    help="The files grow no more: import their last message groups and end their last turns.",
)
@opening.reading
def import_command(
    files: tuple[Path, ...],
    format_: str | None,
    session: str | None,
    complete: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Import transcripts of other agents: Claude Code, Codex, pi, OpenHands, Amplifier, SWE-agent,
    mini-swe-agent; recorded HTTP of SDKs (VCR); lists of messages; exports.

    A folder is searched for them; one with a file per event, as OpenHands has it, or Amplifier's of
    a session is a transcript itself. Importing a file again adds only what is new in it. With
    --json, one JSON object a session.
    """
    if session is not None:
        check_session_id(session)
        if len(files) > 1 or (files[0].is_dir() and not is_transcript_folder(files[0])):
            raise click.UsageError("--session names one session: give one file with it.")
    run(_import(files, format_, session, complete, store, as_json))


async def _import(
    files: tuple[Path, ...],
    format_: str | None,
    session: str | None,
    complete: bool,
    store: str | None,
    as_json: bool,
) -> None:
    screen = Screen()
    failed = skipped = 0
    # The files are searched first: without any, no empty store may be left behind.
    chosen = list(_found(files))
    async with opening.created(store) as engine:
        for path, named in chosen:
            reason = None if named else passed_over(path)
            if reason is not None:
                if not as_json:
                    screen.line((f"{path}: passed over, {reason}", "dim"))
                continue
            try:
                with progress(f"Importing {path.name}", _size(session_source(path))) as bar:
                    found = await _import_one(engine, path, format_, session, complete, bar)
            except UnknownFormat as error:
                if named:
                    complain(f"{path}: {error}")
                    failed += 1
                else:
                    skipped += 1
            except (StoreUnavailable, OSError):
                raise
            except EventctxError as error:
                complain(f"{path}: {error}")
                failed += 1
            else:
                for summary in found:
                    _show(screen, summary, as_json)
    if skipped and not as_json:
        screen.line((f"{plural(skipped, 'file')} of unknown format passed over", "dim"))
    if failed:
        raise CommandFailed(USAGE)


def _found(files: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """The files to import, each with whether it was named on the command line.

    A file that was found in a named folder counts as not named: it may be of an unknown format.
    """
    for path in files:
        if is_transcript_folder(path):
            yield path, True
        elif path.is_dir():
            met = sorted(
                {
                    # Files of single events are one transcript, so their folder is imported.
                    inner.parent if is_event_file(inner) else inner
                    for inner in path.rglob("*")
                    if inner.suffix in _ENDINGS
                    and inner.is_file()
                    # Subagents are imported with the session that they belong to.
                    and _BELONGS not in inner.relative_to(path).parts
                }
            )
            if not met:
                raise click.UsageError(f"{path}: no {', '.join(_ENDINGS)} files in this folder.")
            yield from ((inner, False) for inner in met)
        elif not path.exists():
            raise click.UsageError(f"{path}: there is no such file.")
        else:
            yield path, True


def _size(path: Path) -> int:
    return folder_size(path) if path.is_dir() else path.stat().st_size


async def _import_one(
    engine: Engine,
    path: Path,
    format_: str | None,
    session: str | None,
    complete: bool,
    bar: Bar,
) -> list[ImportSummary]:
    if format_ == EXPORT or (format_ is None and is_export(path)):
        return [await _import_export(engine, path, session, bar)]
    return await import_file(
        engine.store,
        path,
        format=format_,
        session=session,
        complete=complete,
        progress=bar.at,
    )


def is_export(path: Path) -> bool:
    """Whether a file is one of our own exports."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return looks_like_export(file.readline(65_536))


async def _import_export(
    engine: Engine, path: Path, session: str | None, bar: Bar
) -> ImportSummary:
    """Append the records of one of our own exports, verbatim."""
    with path.open("rb") as file:
        export = _Export(path, file, bar)
        name = check_session_id(session or export.header.session)
        try:
            added = await import_drafts(engine.store, name, export.drafts())
        except StreamExists as error:
            raise MalformedTranscript(
                f"session {name!r} is in the store already and holds something else; import the "
                "file as another one with --session NEW"
            ) from error
    seen = export.seen
    return ImportSummary(
        path=path,
        format=EXPORT,
        session=name,
        added=added,
        messages=seen["context:message_added"],
        turns=seen["prompt:submit"],
        calls=seen["provider:request"],
        compactions=seen["context:post_compact"],
        bytes=export.size,
    )


class _Export:
    """An export that is being read: its header, and a count of its records by type so far."""

    def __init__(self, path: Path, file: IO[bytes], bar: Bar) -> None:
        self.header = read_header(file.readline())
        self.size = path.stat().st_size
        self.seen: Counter[str] = Counter()
        self._file = file
        self._bar = bar

    def drafts(self) -> Iterator[tuple[Draft, bytes]]:
        """The records with their digests.

        Raises MalformedTranscript when the file ends before the last record that its header names.
        """
        last = b""
        for draft, last in read_drafts(self._lines()):
            self.seen[draft.type] += 1
            yield draft, last
        if self.seen.total() != self.header.records or last.hex() != self.header.digest:
            raise MalformedTranscript(
                f"the file ends after {self.seen.total()} of {self.header.records} records: export "
                "the session again; what was imported before the end stays"
            )

    def _lines(self) -> Iterator[bytes]:
        done = 0
        for line in self._file:
            done += len(line)
            self._bar.at(done, self.size)
            yield line


def _show(screen: Screen, summary: ImportSummary, as_json: bool) -> None:
    if as_json:
        put_json(summary)
        return
    if summary.session is None:
        reasons = "; ".join((*summary.waiting, *summary.warnings)) or "nothing in it yet"
        screen.line((summary.path.name, "bold"), f": nothing imported ({reasons})")
        return
    added = f"{plural(summary.added, 'new record')}" if summary.added else "nothing new"
    screen.line((summary.session, "bold green"), f"  {summary.format}, {added}")
    screen.line(
        f"{plural(summary.messages, 'message')}, {plural(summary.turns, 'turn')}, "
        f"{plural(summary.calls, 'model call')}, {plural(summary.compactions, 'compaction')}",
        indent=2,
    )
    if summary.raw:
        screen.line((f"kept as they are: {_kinds(summary.raw)}", "dim"), indent=2)
    if summary.unknown:
        screen.line((f"of these not understood: {_kinds(summary.unknown)}", "yellow"), indent=2)
    _listed(screen, "waits for the next import", summary.waiting, len(summary.waiting), "dim")
    _listed(screen, "warning", summary.warnings, summary.warned, "yellow")


def _listed(screen: Screen, title: str, texts: tuple[str, ...], total: int, style: str) -> None:
    for text in texts[:_SHOWN]:
        screen.line((f"{title}: {text}", style), indent=2)
    if total > _SHOWN:
        screen.line((f"… and {total - _SHOWN} more", style), indent=2)


def _kinds(kinds: dict[str, int]) -> str:
    ranked = sorted(kinds.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{kind} {number(count)}" for kind, count in ranked[:8])
    rest = sum(count for _, count in ranked[8:])
    return f"{shown}, {number(rest)} others" if rest else shown
