"""The screen of a session, as it is first shown."""

from __future__ import annotations

from eventctx.cli.output.known import session_in_words
from eventctx.cli.replay_screen.model import Model, started
from eventctx.cli.replay_screen.session import ReplayedSession
from eventctx.cli.replay_screen.texts import TextReader
from eventctx.documents.session_texts import title_of
from eventctx.documents.sessions import session_sums_of
from eventctx.documents.unread import Unread
from eventctx.engine import Engine
from eventctx.log.store import StreamInfo
from eventctx.queries.figures import figures_of

_COLUMNS, _ROWS = 80, 24
"""The size until the terminal has told its own."""


async def opened(
    engine: Engine, info: StreamInfo, stop: int | None = None
) -> tuple[ReplayedSession, TextReader, Model]:
    """What the screen is made of. Raises StreamNotFound and what a damaged log raises."""
    figures = await figures_of(engine.store, info.stream)
    sums = await session_sums_of(engine, info, Unread())
    title = None if sums is None else await title_of(engine, info.stream, sums)
    known = session_in_words(figures.requests.values(), figures.file)
    document = await engine.timeline(info.stream)
    session = ReplayedSession(document, title=title or "", known=known)
    reader = TextReader(engine, session, figures.file.undated)
    return session, reader, started(session, _COLUMNS, _ROWS, stop)
