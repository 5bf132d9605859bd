"""``inspect --html``: one file that shows a session, for people without the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import size
from eventctx.cli.output.screen import progress, styled
from eventctx.cli.output.whole_file import whole_file
from eventctx.errors import InvalidSetting
from eventctx.log.store import StreamInfo
from eventctx.projections.timeline.document import document, marks
from eventctx.queries.key_frames import timeline_at

if TYPE_CHECKING:
    from eventctx.engine import Engine
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
    async with opening.existing(store, read_only=True) as engine:
        info = await opening.find_session(engine.store, session)
        written = await html_of(engine, info, html, contents)
    words = [f"wrote {html}: session {info.stream}, {size(written)}.", *contents.left_out()]
    click.echo(styled(" ".join(words)).plain, err=True)


async def html_of(
    engine: Engine, info: StreamInfo, output: Path, contents: Contents | None = None
) -> int:
    """Write the session to a file, all of it unless ``contents`` say less; returns its bytes."""
    from eventctx.web.export.file import Contents, write_file

    with progress(f"Writing {info.stream}", None) as bar:
        state = await timeline_at(engine.store, info.stream)
        columns = document(state, info.stream)
        with whole_file(output) as file:
            return await write_file(
                file, engine.store, columns, marks(state), contents or Contents(), bar.at
            )
