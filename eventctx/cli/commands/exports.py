"""``export`` and ``copy``: sessions leave a store, for a file of JSON Lines or another store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import IO

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import number, plural, size
from eventctx.cli.output.program import DAMAGE, FOUND, CommandFailed, run
from eventctx.cli.output.screen import Bar, Screen, progress, put, put_document, styled
from eventctx.cli.output.whole_file import whole_file
from eventctx.log.naming import position_name
from eventctx.queries.atif.export import AtifExport
from eventctx.queries.atif.export import write as write_atif
from eventctx.queries.atif.export import write_file as write_atif_file
from eventctx.queries.copy_writing import CopyProgress, CopyResult, CopyStep
from eventctx.queries.encoding import fill
from eventctx.queries.transfer import export_lines
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.text import escape_breaks, without_password

_PROGRESS_EVERY = 500
"""Lines between two updates of the progress bar."""
_SESSIONS_EVERY = 50
"""Sessions between two updates of the progress bar."""


@click.command("export", short_help="A session as JSON Lines that import back equal.")
@click.argument("session")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write to this file, which appears only when it is whole; else to stdout.",
)  # fmt: skip
@click.option("--atif", is_flag=True, help="As an ATIF 1.8 trajectory, for other programs.")
@opening.store_options
def export_command(session: str, output: Path | None, atif: bool, store: str | None) -> None:
    """Write SESSION as JSON Lines: every record with its ids, times and digests.

    `eventctx import` reads the file back into an equal session. A fork is written with what it
    inherits. A terminal gets control characters as escapes, a file or a pipe as they are.

    With --atif it is a trajectory in JSON. In FILE it goes on after each compaction in the next
    file (`….cont-1.json`), on stdout it is one document. Subagents are in it.
    """
    run(_export_atif(session, output, store) if atif else _export(session, output, store))


async def _export(session: str, output: Path | None, store: str | None) -> None:
    async with opening.open_reader(store) as reader:
        info = await opening.find_session(reader.store, session)
        lines = export_lines(reader.store, info)
        with progress(f"Exporting {info.stream}", info.head + 1) as bar:
            if output is None:
                await _write(lines, put, bar.at)
                return
            if reader.receipts_path is not None:
                # Before it is written, so that half of it is known, too.
                ReceiptBook(reader.receipts_path).copied_to(output, info.stream, "export")
            with whole_file(output) as file:
                written = await _write(lines, file.write, bar.at)
    what = f"session {info.stream}, {plural(info.head + 1, 'record')}, {size(written)}"
    summary = styled(f"wrote {escape_breaks(str(output))}: {what}")
    click.echo(summary.plain, err=True)


async def _export_atif(session: str, output: Path | None, store: str | None) -> None:
    async with opening.open_reader(store) as reader:
        info = await opening.find_session(reader.store, session)
        with progress(f"Exporting {info.stream}"):
            if output is None:
                await write_atif(reader.store, info.stream, lambda _: put)
                return
            path = reader.receipts_path
            book = None if path is None else ReceiptBook(path)

            @contextmanager
            def noted(file: Path) -> Iterator[IO[bytes]]:
                if book is not None:
                    book.copied_to(file, info.stream, "export")
                with whole_file(file) as opened:
                    yield opened

            found = await write_atif_file(reader.store, info.stream, output, noted)
            if book is not None:
                for name, file in product(found.subagents, found.files):
                    book.copied_to(Path(file), name, "export")
    click.echo(styled(_atif_summary(found)).plain, err=True)


def _atif_summary(found: AtifExport) -> str:
    known = found.completeness
    parts = [
        f"session {found.session}",
        plural(known.steps, "step"),
        f"{plural(known.requests, 'request')}, {number(known.exact)} known exactly",
        size(found.bytes),
    ]
    if found.subagents:
        parts.insert(1, f"{plural(len(found.subagents), 'subagent')} in it")
    if found.missing:
        parts.insert(1, f"{plural(len(found.missing), 'subagent')} not in it")
    first, *others = found.files
    also = f" and {plural(len(others), 'file')} after it" if others else ""
    return f"wrote {escape_breaks(first)}{also}: {', '.join(parts)}"


async def _write(
    lines: AsyncIterator[bytes], put: Callable[[bytes], object], report: Callable[[int], None]
) -> int:
    written = done = 0
    async for line in lines:
        put(line + b"\n")
        written += len(line) + 1
        done += 1
        if done % _PROGRESS_EVERY == 0:
            report(done)
    return written


class CopyAnswer(CopyResult, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """The outcome of a copy from one store to another, both without passwords.

    ``ok``: every session is in the target as it is in the source. ``copied`` are new there,
    ``continued`` had records there before, ``unchanged`` had all; ``checked`` were read back.
    """

    source: str
    target: str
    ok: bool


@click.command("copy", short_help="Sessions to another store: file, PostgreSQL, JetStream.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("sessions", nargs=-1, metavar="[SESSION]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def copy_command(source: str, target: str, sessions: tuple[str, ...], as_json: bool) -> None:
    """Copy SESSIONs, or all, from the store FROM to the store TO, each a path or a URL.

    Ids, times, digests, salts, forks, erasures and deletions are the same there, so receipts of the
    one hold for the other; every session is read back. FROM is only read. TO is created if it is a
    file that is not there. Run it again to go on after an interruption, or to bring over what came
    since: what is there is not written again. Nothing is written if TO has another session of one
    of the names. Exits with 5 when damage is found; the sound sessions are copied then.
    """
    result = run(_copied(source, target, sessions))
    if as_json:
        places = without_password(source), without_password(target)
        put_document(fill(CopyAnswer, result, source=places[0], target=places[1]))
    else:
        _show_copied(Screen(), result, without_password(target))
    if not result.ok:
        raise CommandFailed(DAMAGE if any(one.damage for one in result.problems) else FOUND)


async def _copied(source: str, target: str, sessions: tuple[str, ...]) -> CopyResult:
    async with opening.open_reader(source) as reader:
        names = [(await opening.find_session(reader.store, name)).stream for name in sessions]
        async with opening.open_or_create(target) as into:
            with progress("Comparing", 1) as bar:
                told = _told(bar)
                return await reader.copy_to(into, names or None, progress=told)


def _told(bar: Bar) -> CopyProgress:
    words = {"comparing": "Comparing", "copying": "Copying", "checking": "Reading back"}

    def told(step: CopyStep, done: int, of: int) -> None:
        if done % _SESSIONS_EVERY and done != of:
            return
        bar.name(words[step] if of else f"{words[step]} {number(done)}")
        if of:
            bar.at(done, of)

    return told


def _show_copied(screen: Screen, result: CopyResult, target: str) -> None:
    screen.line(
        ("copied ", "bold green"),
        f"{plural(result.copied, 'session')}{_besides(result)}: "
        f"{plural(result.records, 'record')}, {size(result.bytes)}",
    )
    if result.erased:
        words = f"{plural(result.erased, 'content')} erased in the source since an earlier copy"
        screen.line(("erased ", "bold"), words)
    if result.left_out:
        marks = f"{plural(result.left_out, 'mark')} of deleted sessions"
        screen.line(("left out ", "yellow"), f"{marks}: the target cannot hold them")
    for one in result.problems:
        where = "" if one.position < 0 else f" {position_name(one.position)}"
        kind = "DAMAGED " if one.damage else "not copied "
        screen.line((kind, "bold red"), (one.session, "bold"), f"{where}: {one.text}")
    unlisted = result.failed - len(result.problems)
    if unlisted:
        screen.line((f"… and {plural(unlisted, 'session')} more", "dim"))
    screen.line(
        ("checked ", "bold green" if result.ok else "bold"),
        f"{plural(result.checked, 'session')}, read back and equal, in:",
    )
    screen.whole(target)


def _besides(result: CopyResult) -> str:
    parts = [
        (result.continued, "continued"),
        (result.unchanged, "there already"),
        (result.deleted, "deleted, as in the source"),
    ]
    found = [f"{number(count)} {words}" for count, words in parts if count]
    return f" ({', '.join(found)})" if found else ""
