"""``inspect --html``: one file that shows a session, for people without the store."""

from __future__ import annotations

from pathlib import Path

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural, size
from eventctx.cli.output.screen import progress, styled
from eventctx.cli.output.whole_file import whole_file
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.store import StreamInfo
from eventctx.projections.timeline import fold
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.units import Document
from eventctx.projections.timeline.views import mark_of
from eventctx.projections.view.entries import Entry
from eventctx.web.export.file import Contents, turns_of, write_file


def contents_of(reveal: bool, structure: bool, turn: str | None) -> Contents:
    """What the file is to hold, by the command's options. Raises InvalidSetting."""
    if reveal and structure:
        raise InvalidSetting(
            "inspect: expected at most one of --reveal and --structure, found both: without texts "
            "there is nothing to reveal"
        )
    return Contents(reveal, structure, None if turn is None else turns_of(turn))


async def write_html(store: str | None, session: str, output: Path, contents: Contents) -> None:
    """Write the session to a file, which appears only when it is whole, and say so on stderr."""
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine, session)
        messages, written = await html_of(engine, info, output, contents)
    summary = (
        f"wrote {output}: session {info.stream}, {plural(messages, 'message')}, {size(written)}"
    )
    click.echo(styled(summary).plain, err=True)


async def html_of(
    engine: Engine, info: StreamInfo, output: Path, contents: Contents
) -> tuple[int, int]:
    """Write the session to a file; returns the numbers of its messages and of the file's bytes."""
    with progress(f"Writing {info.stream}", None) as bar:
        columns, marks = await _timeline(engine, info)
        with whole_file(output) as file:
            written = await write_file(file, engine.store, columns, marks, contents, bar.at)
    return len(columns["messages"]["position"]), written


async def _timeline(engine: Engine, info: StreamInfo) -> tuple[Document, list[bytes]]:
    """The columns of a session, and what a view's digest covers of each message."""
    state = fold.initial()
    async for record in engine.records(info.stream):
        state = fold.evolve(state, record)
    marks = [mark_of(Entry("message", one.ref)) for one in state.changes.origins]
    return document(state, info.stream), marks
