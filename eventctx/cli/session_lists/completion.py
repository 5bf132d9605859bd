"""Names of sessions, completed by a shell as click's own completion asks for them."""

from __future__ import annotations

from typing import Any, Final

import click
from click.shell_completion import CompletionItem

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
    async with opening.existing(store, read_only=True) as engine:
        known = SessionStatsCache(engine.store)
        async for info in engine.each_session():
            if not info.stream.startswith(incomplete):
                continue
            sums = known.get(info.stream)
            title = None if sums is None else await title_of(engine.store, info.stream, sums)
            found.append(CompletionItem(info.stream, help=escape_breaks(title or "")))
            if len(found) == _MOST:
                break
    return found
