"""Commands that are loaded when they run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import click

from eventctx.cli.output.program import Program


class CommandLater(click.Command):
    """Stands for a command in lists, with its ``line`` of help; ``load`` gives the command itself.

    In ``module`` it is called after its name: ``restore_backup_command``. ``prepared`` is called
    with it when it is loaded.
    """

    def __init__(
        self,
        name: str,
        module: str,
        line: str,
        prepared: Callable[[click.Command], click.Command],
    ) -> None:
        super().__init__(name, short_help=line)
        self._prepared = prepared
        self._module = module
        self._called = f"{name.replace('-', '_')}_command"

    def load(self) -> click.Command:
        """Import the command."""
        found: click.Command = getattr(import_module(self._module), self._called)
        return self._prepared(found)


class ProgramOfCommands(Program):
    """A program that loads the one command that is to run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name, loaded, and its arguments."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, CommandLater) else found, rest
