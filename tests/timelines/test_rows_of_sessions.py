"""The row of a long session, read from its timeline, is the row that all its records give."""

from __future__ import annotations

import pytest

from eventctx.documents import sessions
from eventctx.documents.unread import Unread
from tests.web.made_sessions import SESSIONS as MADE


@pytest.mark.parametrize("name", MADE)
async def test_a_row_from_the_timeline_is_the_row_from_all_records(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = await MADE[name]()
    for info in await engine.sessions():
        counted = await sessions.session_row(engine, info, Unread())
        with monkeypatch.context() as shorter:
            shorter.setattr(sessions, "LONG", 0)
            assert await sessions.session_row(engine, info, Unread()) == counted
