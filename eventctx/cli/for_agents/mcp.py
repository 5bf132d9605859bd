"""``mcp``: a server for the agent itself, which asks what it no longer sees."""

from __future__ import annotations

from pathlib import Path

import click

from eventctx.cli.output import opening
from eventctx.cli.output.program import run
from eventctx.errors import InvalidSetting

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
@opening.store_options
def mcp_command(project: Path | None, most: int, reveal: bool, store: str | None) -> None:
    """Serve the tools recall, lost, why and view on stdin and stdout, read-only.

    For the configuration of an agent's program, which starts it: `claude mcp add eventctx --
    eventctx mcp`, `codex mcp add eventctx -- eventctx mcp`. The store may be made later; `eventctx
    hook` and `eventctx watch` fill it. Needs the extra `mcp`: pip install
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
    server = mcp_server(
        lambda: opening.asking(store),
        project=Path.cwd() if project is None else project,
        most=most,
        reveal=reveal,
    )
    run(serve_stdio(server))
