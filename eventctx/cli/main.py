"""The ``eventctx`` program: its options and its commands."""

from __future__ import annotations

from typing import Any

import click

from eventctx.cli.commands.audit import audit_command
from eventctx.cli.commands.backup import backup_command, restore_backup_command
from eventctx.cli.commands.compact import compact_command
from eventctx.cli.commands.compare import compare_command
from eventctx.cli.commands.diff import diff_command
from eventctx.cli.commands.erasing import delete_command, erase_command, prune_command
from eventctx.cli.commands.exports import copy_command, export_command
from eventctx.cli.commands.fork import fork_command
from eventctx.cli.commands.imports import import_command
from eventctx.cli.commands.instructions import instructions_command
from eventctx.cli.commands.log import log_command
from eventctx.cli.commands.lost import lost_command
from eventctx.cli.commands.replay import replay_command
from eventctx.cli.commands.restore import restore_command
from eventctx.cli.commands.search import search_command
from eventctx.cli.commands.sessions import sessions_command
from eventctx.cli.commands.sign import sign_command
from eventctx.cli.commands.stats import stats_command
from eventctx.cli.commands.trace import trace_command
from eventctx.cli.commands.transcript import transcript_command, view_command
from eventctx.cli.commands.validate import validate_command
from eventctx.cli.commands.verify import verify_command
from eventctx.cli.commands.watch import watch_command
from eventctx.cli.commands.why import why_command
from eventctx.cli.demo.command import demo_command
from eventctx.cli.inspect.command import inspect_command
from eventctx.cli.output.program import Program
from eventctx.version import __version__


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store",
    metavar="URL",
    help="The store: a path, sqlite:///PATH, postgresql://… or nats://…. Default: $EVENTCTX_STORE, "
    "else the user's data folder.",
)
@click.version_option(__version__, prog_name="eventctx")
@click.pass_context
def cli(context: click.Context, store: str | None) -> None:
    """Replay, trace and audit what an LLM agent's model was sent.

    Begin with `eventctx demo`, or `eventctx import FILE` with a session of your own.
    """
    context.obj = {"store": store}


for _command in (
    demo_command,
    import_command,
    watch_command,
    inspect_command,
    sessions_command,
    log_command,
    transcript_command,
    view_command,
    audit_command,
    why_command,
    trace_command,
    diff_command,
    lost_command,
    instructions_command,
    search_command,
    replay_command,
    fork_command,
    restore_command,
    compact_command,
    compare_command,
    verify_command,
    sign_command,
    backup_command,
    restore_backup_command,
    export_command,
    copy_command,
    erase_command,
    delete_command,
    prune_command,
    stats_command,
    validate_command,
):
    cli.add_command(_command)


def main(arguments: list[str] | None = None, **options: Any) -> None:
    """Run the program with ``arguments`` (those of the process when None), and exit."""
    cli.main(args=arguments, **options)
