"""``export``: write a session as JSON Lines; importing them gives an equal session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural, size
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import progress, put, styled
from eventctx.cli.output.whole_file import whole_file
from eventctx.queries.transfer import export_lines

_PROGRESS_EVERY = 500
"""Lines between two updates of the progress bar."""


@click.command("export", short_help="A session as JSON Lines that import back equal.")
@click.argument("session")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Write to this file, which appears only when it is whole; else to stdout.",
)  # fmt: skip
@opening.store_options
def export_command(session: str, output: Path | None, store: str | None) -> None:
    """Write SESSION as JSON Lines: every record with its ids, times and digests.

    `eventctx import` reads the file back into an equal session. A fork is written with what it
    inherits. A terminal gets control characters as escapes, a file or a pipe as they are.
    """
    run(_export(session, output, store))


async def _export(session: str, output: Path | None, store: str | None) -> None:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine, session)
        lines = export_lines(engine.store, info)
        with progress(f"Exporting {info.stream}", info.head + 1) as bar:
            if output is None:
                await _write(lines, put, bar.at)
                return
            with whole_file(output) as file:
                written = await _write(lines, file.write, bar.at)
    summary = styled(
        f"wrote {output}: session {info.stream}, {plural(info.head + 1, 'record')}, {size(written)}"
    )
    click.echo(summary.plain, err=True)


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
