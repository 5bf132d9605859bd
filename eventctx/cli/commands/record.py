"""``record``: run a program, and record what it asks its model."""

from __future__ import annotations

import time
from pathlib import PurePath

import click

from eventctx.cli.output import opening
from eventctx.cli.output.program import CommandFailed, run


@click.command(
    "record",
    short_help="Run a program, and record what it asks its model.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--serve", is_flag=True, help="Run no program: record until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Listen here; 0 is a free port."
)
@click.option(
    "--tapes",
    metavar="DIR",
    help="Where the tapes are written. Default: `recordings` in the user's data folder.",
)
@opening.store_options
def record_command(
    command: tuple[str, ...], serve: bool, port: int, tapes: str | None, store: str | None
) -> None:
    """Run COMMAND, such as `claude` or `codex`, and record each call of its model.

    It asks a relay on this machine, which passes all bytes on as they are, and writes what it saw
    to a tape. Tapes become sessions of the store while the program runs. Keys are not recorded.
    If recording fails, your program still gets its answer. The exit code is the program's. Needs
    the extra `record`: pip install 'eventctx[record]'.
    """
    if bool(command) == serve:
        raise click.UsageError("name a program, `record -- claude`, or say --serve.")
    name = f"{PurePath(command[0]).stem if command else 'served'}-{time.strftime('%Y%m%d-%H%M%S')}"
    from eventctx.cli.recording import folder_of, record

    code = run(record(command, name, port, folder_of(tapes), store))
    if code:
        raise CommandFailed(code)
