"""Commands that an agent's program starts: ``hook`` and ``mcp``.

``hook`` is called at the program's events, and never makes it fail. ``mcp`` serves the agent
itself, which asks about what it no longer sees.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eventctx.adapters.command_hooks.hosts import HOSTS
from eventctx.cli.output import opening
from eventctx.cli.output.program import complain, run
from eventctx.errors import EventctxError, InvalidSetting

if TYPE_CHECKING:
    from eventctx.adapters.command_hooks.hosts import HookHost, HookPayload


class _HarmlessCommand(click.Command):
    """A command whose bad usage is a line on stderr: a host takes exit code 2 for a veto."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read the arguments, or end with exit code 0."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            complain(f"hook: {error.format_message()}")
            raise click.exceptions.Exit(0) from error


@click.command("hook", cls=_HarmlessCommand, short_help="Answer a hook of an agent's program.")
@click.argument("host", type=click.Choice(list(HOSTS)))
@opening.store_options
def hook_command(host: str, store: str | None) -> None:
    """Import the session that HOST reports on stdin; after a compaction, repeat the instructions.

    For the hooks in the settings of agents' programs, into which `eventctx setup` writes it. At
    every event what is new of the session's file is imported. At `SessionStart` after a compaction
    of Claude Code or Codex the answer holds the instructions of the person, word for word,
    redacted, at most 6,000 characters; the model is shown them. With Codex they are those that the
    compaction took out; Claude Code asks before it has written the summary, so they are all that
    hold.

    The exit code is 0 whatever happens, since others stop or veto what the program does; an error
    is a line on stderr.
    """
    import asyncio

    from eventctx.adapters.command_hooks.hosts import MOST_BYTES, read_payload
    from eventctx.queries.encoding import encode

    try:
        payload = read_payload(b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_BYTES + 1))
        answer = asyncio.run(_answer(HOSTS[host], payload, store))
    except EventctxError as error:
        complain(f"hook: {error}")
    except Exception as error:  # the host must go on, also after a bug of ours
        complain(f"hook: this is a bug in eventctx, please report it: {error!r}")
    else:
        if answer is not None:
            click.echo(encode(answer).decode())


async def _answer(host: HookHost, payload: HookPayload, store: str | None) -> dict[str, Any] | None:
    from eventctx.adapters.command_hooks.hook import hook_answer

    async with opening.open_or_create(store) as engine:
        return await hook_answer(engine, host, payload)


_MOST = 20_000
_FEWEST = 2_000


@click.command("mcp", short_help="Answer the agent itself, as an MCP server.")
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The project directory whose last session is meant where a call names none. Default: the "
    "current one.",
)
@click.option(
    "--most",
    type=click.IntRange(min=_FEWEST),
    default=_MOST,
    show_default=True,
    metavar="CHARACTERS",
    help="The longest answer.",
)
@click.option("--reveal", is_flag=True, help="Answer with secrets that are otherwise replaced.")
@click.option(
    "--otlp",
    metavar="URL",
    help="Send a span of each answer to a collector: http://HOST:4318, or grpc://HOST:4317.",
)
@opening.store_options
def mcp_command(
    project: Path | None, most: int, reveal: bool, otlp: str | None, store: str | None
) -> None:
    """Serve the tools recall, lost, why and view on stdin and stdout, read-only.

    For the configuration of an agent's program, which starts it; `eventctx setup` writes it there.
    The store may be made later; `eventctx hook` and `eventctx watch` fill it. A span of `--otlp`
    joins the trace that the caller names in `_meta`. Needs the extra `mcp`: pip install
    'eventctx[mcp]'.
    """
    try:
        from eventctx.mcp.server import mcp_server, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise InvalidSetting(
            "mcp: expected the package mcp; install it with: pip install 'eventctx[mcp]'"
        ) from error
    if otlp is not None:
        from eventctx.hooks.counting import configure_tracing

        # The package mcp makes the spans, below the caller's traceparent; here they get a way out.
        configure_tracing(otlp, set_global=True)
    server = mcp_server(
        lambda: opening.open_reader(store),
        project=Path.cwd() if project is None else project,
        most=most,
        reveal=reveal,
    )
    run(serve_stdio(server))
