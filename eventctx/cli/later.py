"""Commands that are loaded when they run, and the names that a shell completes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

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
    """A program that loads the one command that is to run, and lists commands under headings."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._headings: dict[str, list[CommandLater]] = {}

    def add_under(self, heading: str, command: CommandLater) -> None:
        """Add a command under a heading of the help."""
        self.add_command(command)
        self._headings.setdefault(heading, []).append(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, those of a heading together, in the order in which they came."""
        width = max(len(name) for name in self.commands)
        for heading, commands in self._headings.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (f"{one.name or '':<{width}}", one.get_short_help_str(100))
                        for one in commands
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` name, loaded, and its arguments."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found.load() if isinstance(found, CommandLater) else found, rest


_MOST: Final = 50
"""Names that a shell is offered."""

_ARGUMENTS: Final = ("session", "sessions")


class SessionName(click.ParamType):  # type: ignore[type-arg]  # generic in later releases alone
    """A session's name, taken as it is typed; a shell is offered those that begin so."""

    name = "session"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin with ``incomplete``, with their titles; none where there is an
        error, as a shell that completes has no place to say it."""
        import asyncio

        given = ctx.params.get("store") or ctx.find_root().params.get("store")
        try:
            return asyncio.run(_names(given, incomplete))
        except Exception:
            return []


def with_session_names(command: click.Command) -> click.Command:
    """The command, whose arguments that name sessions are completed."""
    for param in command.params:
        if isinstance(param, click.Argument) and param.name in _ARGUMENTS:
            param.type = SessionName()
    return command


async def _names(store: Any, incomplete: str) -> list[CompletionItem]:
    from eventctx.cli.output import opening
    from eventctx.queries.session_list import SessionStatsCache, title_of
    from eventctx.text import escape_breaks

    found: list[CompletionItem] = []
    async with opening.open_reader(store) as reader:
        known = SessionStatsCache(reader.store)
        async for info in reader.each_session():
            if not info.stream.startswith(incomplete):
                continue
            sums = known.get(info.stream)
            title = None if sums is None else await title_of(reader.store, info.stream, sums)
            found.append(CompletionItem(info.stream, help=escape_breaks(title or "")))
            if len(found) == _MOST:
                break
    return found
