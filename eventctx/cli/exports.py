"""``export``: a session as JSON Lines that import back equal."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

import click

from eventctx.cli import opening
from eventctx.cli.plain import plural, size
from eventctx.cli.program import run
from eventctx.cli.screen import progress, styled
from eventctx.portable import export_lines

_TOLD = 500


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
    inherits.
    """
    run(_export(session, output, store))


async def _export(session: str, output: Path | None, store: str | None) -> None:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine, session)
        lines = export_lines(engine.store, info)
        with progress(f"Exporting {info.stream}", info.head + 1) as bar:
            if output is None:
                await _write(lines, lambda data: click.echo(data, nl=False), bar.at)
                return
            written = await _write_file(lines, output, bar.at)
    said = styled(
        f"wrote {output}: session {info.stream}, {plural(info.head + 1, 'record')}, {size(written)}"
    )
    click.echo(said.plain, err=True)


async def _write(
    lines: AsyncIterator[bytes], put: Callable[[bytes], object], tell: Callable[[int], None]
) -> int:
    written = done = 0
    async for line in lines:
        put(line + b"\n")
        written += len(line) + 1
        done += 1
        if done % _TOLD == 0:
            tell(done)
    return written


async def _write_file(
    lines: AsyncIterator[bytes], output: Path, tell: Callable[[int], None]
) -> int:
    """Write beside the file and rename, so that a broken export is never taken for a whole one."""
    file, whole = _open_beside(output)
    try:
        with file:
            written = await _write(lines, file.write, tell)
        whole()
    except BaseException:
        _forget(Path(file.name), output)
        raise
    return written


def _open_beside(output: Path) -> tuple[IO[bytes], Callable[[], object]]:
    """A file to write to, and what to do when it is whole."""
    if output.exists() and not output.is_file():  # a pipe or /dev/null is written to as it is
        return output.open("wb"), lambda: None
    beside = output.with_name(f".{output.name}.{os.getpid()}.part")
    return beside.open("wb"), lambda: beside.replace(output)


def _forget(beside: Path, output: Path) -> None:
    if beside != output:
        beside.unlink(missing_ok=True)
