"""The ``eventctx`` program: its options and its commands.

A command's module is loaded when the command runs, so that ``eventctx --help`` loads no engine.
"""

from __future__ import annotations

from typing import Any, Final

import click

from eventctx.cli.later import CommandLater, ProgramOfCommands, with_session_names
from eventctx.version import __version__

_COMMANDS: Final = {
    "Bring sessions in": (
        ("import", "commands.imports", "Import transcripts of other programs, or exports."),
        ("watch", "commands.watch", "Import sessions while agents write them."),
        ("record", "commands.record", "Run a program, and record what it asks its model."),
        ("demo", "demo", "Run a sample session live, compactions and all."),
    ),
    "Ask": (
        ("sessions", "commands.sessions", "The sessions of the store, the last used first."),
        ("lost", "commands.lost", "What left the view: instructions, files, commands."),
        (
            "instructions",
            "commands.instructions",
            "A person's instructions: is each still sent?",
        ),
        ("why", "commands.why", "Why a message was in a view, or was not."),
        ("view", "commands.transcript", "What the model was sent in a turn."),
        ("audit", "commands.audit", "The requests: what was kept, shortened and dropped."),
        ("transcript", "commands.transcript", "All that was said, now or at an earlier point."),
        ("search", "commands.sessions", "Find what was said, in view or not."),
        ("diff", "commands.diff", "What two requests differ in, and why."),
        ("trace", "commands.trace", "The trace of a session: a tree, a file, or sent to Jaeger."),
        ("log", "commands.log", "The records of a session, one a line."),
        ("replay", "commands.replay", "Step through a session."),
        ("inspect", "commands.inspect", "A page that shows what the model saw, at any point."),
        ("stats", "commands.stats", "Figures of the whole store."),
    ),
    "Change": (
        ("restore", "commands.changing", "Bring messages back into view."),
        ("compact", "commands.compact", "Compact a session, or say what that would do."),
        ("fork", "commands.changing", "A new session from a point of another one."),
    ),
    "Keep and destroy": (
        ("verify", "commands.verify", "Recompute every digest; find damage."),
        ("sign", "commands.changing", "Sign a session."),
        ("backup", "commands.backup", "A verified copy of the store, while it is in use."),
        ("restore-backup", "commands.backup", "Put a verified backup in the store's place."),
        ("export", "commands.exports", "A session as JSON Lines that import back equal."),
        ("copy", "commands.exports", "Sessions to another store: file, PostgreSQL, JetStream."),
        ("erase", "commands.erasing", "Destroy contents of messages for ever."),
        ("delete", "commands.erasing", "Destroy a session for ever."),
        ("prune", "commands.erasing", "Delete the sessions that are older than a limit."),
    ),
    "For agents and their developers": (
        ("setup", "commands.setup", "Connect the agents' programs on this machine."),
        ("hook", "commands.for_agents", "Answer a hook of an agent's program."),
        ("mcp", "commands.for_agents", "Answer the agent itself, as an MCP server."),
        ("compare", "commands.compare", "What each policy would have kept, and at what cost."),
        ("validate", "commands.validate", "Hold a context module to the contract."),
    ),
}
"""Commands by their heading in the help: a name, its module in this folder, and its line."""


@click.group(
    cls=ProgramOfCommands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",  # releases of click differ in it
    context_settings={"help_option_names": ["-h", "--help"]},
)
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

    Begin with `eventctx` alone: it looks for sessions of Claude Code, Codex and the other agents
    that `import` knows, asks before it reads them, and says what to type. `eventctx demo` shows a
    sample.
    """
    context.obj = {"store": store}
    if context.invoked_subcommand is None:
        from eventctx.cli.output.program import on_terminal

        if not on_terminal():
            raise click.exceptions.NoArgsIsHelpError(context)
        from eventctx.cli.first_look import look

        look()


for _heading, _rows in _COMMANDS.items():
    for _name, _module, _line in _rows:
        _later = CommandLater(_name, f"eventctx.cli.{_module}", _line, with_session_names)
        cli.add_under(_heading, _later)


def main(arguments: list[str] | None = None, **options: Any) -> None:
    """Run the program with ``arguments`` (those of the process when None), and exit."""
    cli.main(args=arguments, **options)
