"""``inspect``: a page on this machine that shows what the model saw, or one file for others."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import size
from eventctx.cli.output.program import complain, run, stopped_by_signals
from eventctx.cli.output.screen import Screen, progress, styled
from eventctx.cli.output.whole_file import whole_file
from eventctx.errors import InvalidSetting
from eventctx.log.store import StreamInfo
from eventctx.projections.timeline.document import document, marks
from eventctx.queries.key_frames import timeline_at
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.reader import Reader
    from eventctx.web.export.file import Contents


F = TypeVar("F", bound=Callable[..., Any])


def file_options(command: F) -> F:
    """Give ``inspect`` the options of a file."""
    options = (
        click.option(
            "--html",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write SESSION as one file to show to somebody, and serve nothing.",
        ),
        click.option(
            "--structure",
            is_flag=True,
            help="With --html: without any text or name, for strangers.",
        ),
        click.option(
            "--turn", metavar="A..B", help="With --html: only the requests of these turns."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def wants_file(
    session: str | None, *, html: Path | None, structure: bool, turn: str | None, reveal: bool
) -> bool:
    """Whether a file is to be written. Raises InvalidSetting for options that make no sense."""
    if html is None:
        if structure or turn is not None:
            option = "--structure" if structure else "--turn"
            raise InvalidSetting(f"inspect: expected --html FILE beside {option}, found none")
        return False
    if session is None:
        raise InvalidSetting("inspect: expected the name of a session beside --html, found none")
    if reveal and structure:
        raise InvalidSetting(
            "inspect: expected at most one of --reveal and --structure, found both: without texts "
            "there is nothing to reveal"
        )
    return True


async def write_html(
    store: str | None, session: str, *, html: Path, structure: bool, turn: str | None, reveal: bool
) -> None:
    """Write the session to a file, which appears only when it is whole, and say so on stderr."""
    # Imported here, because every command starts with this module.
    from eventctx.web.export.file import Contents, turns_of

    contents = Contents(reveal, structure, None if turn is None else turns_of(turn))
    async with opening.open_reader(store) as reader:
        info = await opening.find_session(reader.store, session)
        written = await html_of(reader, info, html, contents)
    words = [f"wrote {html}: session {info.stream}, {size(written)}.", *contents.left_out()]
    click.echo(styled(" ".join(words)).plain, err=True)


async def html_of(
    reader: Reader, info: StreamInfo, output: Path, contents: Contents | None = None
) -> int:
    """Write the session to a file, all of it unless ``contents`` say less; returns its bytes."""
    from eventctx.web.export.file import Contents, write_file

    with progress(f"Writing {info.stream}", None) as bar:
        state = await timeline_at(reader.store, info.stream)
        columns = document(state, info.stream)
        with whole_file(output) as file:
            return await write_file(
                file, reader.store, columns, marks(state), contents or Contents(), bar.at
            )


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
    async with opening.open_reader(store) as reader:
        name = (
            None if session is None else (await opening.find_session(reader.store, session)).stream
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
                reader, url=url, path=path, ready=ready, stop=stop,
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
