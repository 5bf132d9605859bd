"""The session that a command is about where its line names none: the last one used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import one_line
from eventctx.errors import StreamNotFound
from eventctx.queries.session_names import short_names

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.log.store import StreamInfo

Which = Literal["used", "compacted"]

_LONGEST: Final = 60


async def session_or_last(engine: Engine, name: str | None, which: Which = "used") -> StreamInfo:
    """The session called ``name``; without a name the last one used, or the last compacted one.

    It is named on stderr then. Raises what ``find_session`` raises, and StreamNotFound where there
    is none.
    """
    if name is not None:
        return await opening.find_session(engine.store, name)
    from eventctx.queries.read_errors import ReadErrors
    from eventctx.queries.session_list import listed_sessions, ordered, summed_sessions

    every = await summed_sessions(engine.store, ReadErrors())
    fitting = [
        one
        for one in ordered(every, "last")
        if (one.sums.compactions if which == "compacted" else one.sums.belongs_to is None)
    ]
    if not fitting:
        raise _none(which, empty=not every)
    chosen = fitting[0].info
    rows = [row async for row in listed_sessions(engine.store, fitting[:1])]
    short = short_names(one.info.stream for one in every)[chosen.stream]
    title = f" “{one_line(rows[0].title, _LONGEST)}”" if rows[0].title else ""
    last = "the last one that was compacted" if which == "compacted" else "the last one used"
    click.echo(f"session {one_line(short)}{title}, {last}", err=True)
    return chosen


def _none(which: Which, *, empty: bool) -> StreamNotFound:
    error = StreamNotFound("")
    if empty:
        words = "the store holds no sessions yet; `eventctx import FILE` adds some"
    elif which == "compacted":
        words = (
            "no session of this store was compacted; name one of `eventctx sessions`, in which "
            "`lost` then shows what left its view in other ways"
        )
    else:
        words = "every session of this store belongs to another one; name one: `eventctx sessions`"
    error.args = (words,)
    return error
