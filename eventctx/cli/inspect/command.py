"""``inspect``: a page on this machine that shows what the model saw, at any point."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Any

import click

from eventctx.cli.inspect.html_file import file_options, wants_file, write_html
from eventctx.cli.output import opening
from eventctx.cli.output.program import complain, run
from eventctx.cli.output.screen import Screen
from eventctx.cli.output.stopping import stopped_by_signals
from eventctx.errors import InvalidSetting
from eventctx.text import without_password


@click.command("inspect", short_help="A page that shows what the model saw, at any point.")
@click.argument("session", required=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="The port of the page. Default: any that is free.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    metavar="ADDRESS",
    help="Another address of this machine, for a page that other machines can reach.",
)
@click.option("--no-open", is_flag=True, help="Only print the address; open no browser.")
@click.option("--reveal", is_flag=True, help="Show keys, tokens and e-mail addresses as they are.")
@file_options
@opening.store_options
def inspect_command(
    session: str | None, port: int, host: str, no_open: bool, reveal: bool, store: str | None,
    **file: Any,
) -> None:  # fmt: skip
    """Serve a page over the store, until Ctrl-C: what was sent in every request, message by
    message, and what was left out and why. With SESSION, that one is shown first.

    Sessions grow on the page while agents write them. The store is opened read-only. The page is
    for this machine alone, and the printed address works once, in one browser. Needs the extra
    `web`: pip install 'eventctx[web]'.

    With --html the page of SESSION becomes one file instead, which any browser opens, offline and
    without eventctx. Nothing is served, and the extra is not needed.
    """
    if wants_file(session, reveal=reveal, **file):
        run(write_html(store, session or "", reveal=reveal, **file))
        return
    run(_inspect(session, port, host, no_open, reveal, store))


async def _inspect(
    session: str | None, port: int, host: str, no_open: bool, reveal: bool, store: str | None
) -> None:
    try:
        from eventctx.web.serving import serve
        from eventctx.web.sockets import is_loopback
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "h11", "anyio"):
            raise
        raise InvalidSetting(
            "inspect: expected the packages starlette and uvicorn; install them with: pip install "
            "'eventctx[web]'"
        ) from error
    if not is_loopback(host):
        complain(
            f"warning: at {host} the page can be reached from other machines, and what it sends "
            "is not encrypted; who has the printed address first reads every session of the store"
        )
    url = opening.location(store)
    async with opening.existing(store, read_only=True) as engine:
        name = (
            None if session is None else (await opening.find_session(engine.store, session)).stream
        )
        path = opening.path_of(url)

        def ready(address: str) -> None:
            screen = Screen()
            screen.line(
                (f"inspecting {path or without_password(url)}, read-only; Ctrl-C ends it", "dim")
            )
            screen.whole(address)
            if not no_open and screen.live and _has_desktop():
                # Some programs for this take seconds, and some wait for their window to close.
                threading.Thread(target=_open, args=(address,), daemon=True).start()

        with stopped_by_signals() as stop:
            await serve(
                engine, url=url, path=path, ready=ready, stop=stop,
                session=name, host=host, port=port, reveal=reveal,
            )  # fmt: skip


def _has_desktop() -> bool:
    """Whether a browser has a window to open in; one for the terminal would take ours."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(address: str) -> None:
    import webbrowser  # few commands need it, and all of them start

    with suppress(webbrowser.Error, OSError):
        webbrowser.open(address)
