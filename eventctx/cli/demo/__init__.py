"""``demo``: a recorded session runs live under a small budget, compactions and all."""

from __future__ import annotations

from pathlib import Path

import click

from eventctx.cli.commands.imports import is_export
from eventctx.cli.output import opening
from eventctx.errors import InvalidSetting
from eventctx.importers.format_table import FORMATS


@click.command("demo", short_help="Run a sample session live, compactions and all.")
@click.argument(
    "file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--budget", type=click.IntRange(min=1), metavar="TOKENS", help="Tokens per request.")
@click.option("--format", "format_", type=click.Choice(list(FORMATS)), help="The file's format.")
@opening.store_options
def demo_command(
    file: Path | None, budget: int | None, format_: str | None, store: str | None
) -> None:
    """Run a sample session, or your own FILE, live under a budget that forces compactions.

    Needs no network. Without --store it runs on a new store in `demo` in the user's data folder,
    in the place of the one before. The budget is 40 % of what all messages of FILE take together,
    unless you give one.
    """
    if file is not None and is_export(file):
        raise InvalidSetting(
            f"{file} is an export of eventctx: `eventctx import {file}` reads it back, "
            "`eventctx replay` steps through it"
        )
    # The options alone are quick to load: `--help` runs no session.
    from eventctx.cli.demo.run import run_demo

    run_demo(file, budget, format_, store)
