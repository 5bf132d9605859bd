"""The transcript that the host keeps: what its ``rewind`` took back of it, and what it lacks.

Amplifier's ``rewind`` cuts the host's own transcript and tells no context module. It keeps the one
of before under a name with the time, so a cut that a person asked for can be told from a copy that
is behind because its host was killed: the first is an undo, the second is not. The person is told
of both, because the log alone decides what stays in context.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any, Final

from eventctx.adapters.amplifier.transcript_file import folder_with, message_of
from eventctx.engine import Engine
from eventctx.log.record import Record
from eventctx.session.context import Context
from eventctx.session.reconcile import earlier_copy
from eventctx.text import counted, without_password

SOURCE: Final = "context-eventctx"
"""The name with which the host shows what a person is told."""

_KEPT: Final = "transcript.jsonl"
_REWOUND: Final = ".bak-pre-rewind-"

_log = logging.getLogger("eventctx.adapters.amplifier")


class HostTranscript:
    """The host's transcript of one session, compared with the log.

    ``display`` gives the host's display, which some hosts have and some set later.
    """

    def __init__(
        self, session: str, host_session: str, store: str, display: Callable[[], Any]
    ) -> None:
        self._session = session
        self._host_session = host_session
        self._store = store
        self._display = display

    async def take_back(self, context: Context, last: Record) -> bool:
        """Take out of context what ``rewind`` took back after the ``last`` record.

        Returns whether there was anything.
        """
        if context.mirror is not None:
            return False  # it changes by its import alone
        rows = await asyncio.to_thread(rewound_rows, self._host_session, last.time)
        gone = None if rows is None else earlier_copy(await context.get_messages(), rows)
        if rows is None or gone is None:
            return False
        await context.resume_messages(rows)
        store = shlex.quote(without_password(self._store))
        await self._tell(
            f"Amplifier's rewind took {counted(gone.ahead, 'message')} of this session back: no "
            "request has them from here on. The log keeps them: eventctx transcript "
            f"{self._session} --at {last.position} --store {store}"
        )
        return True

    async def tell_what_stays(self, context: Context, rows: list[dict[str, Any]]) -> None:
        """Tell that the host's transcript ends before the log does, which wins."""
        more = earlier_copy(await context.get_messages(), rows)
        if more is not None:
            await self._tell(
                f"Amplifier's copy of this session ends {counted(more.ahead, 'message')} before "
                "the log does. They stay in context: a copy that a person cuts is no undo, but "
                "Amplifier's rewind is."
            )

    async def _tell(self, text: str) -> None:
        """Show a text to the person, and log it."""
        _log.warning("%s", text)
        show = getattr(self._display(), "show_message", None)
        if callable(show):
            shown = show(text, "warning", SOURCE)
            if isawaitable(shown):
                await shown


async def last_record(engine: Engine, session: str) -> Record | None:
    """The last record of a session; None for a new one."""
    if await engine.store.head(session) is None:
        return None
    async for record in engine.store.read(session, backward=True, bodies=False):
        return record
    return None


def rewound_rows(session: str, since: int) -> list[dict[str, Any]] | None:
    """The transcript that the host has of a session which it took back after ``since``; else None.

    ``since`` is in UTC nanoseconds. Amplifier's ``rewind`` cuts the host's transcript, and keeps
    that of before under a name with the time. It tells no context module.
    """
    folder = folder_with(f"{_KEPT}{_REWOUND}*", session)
    if folder is None:
        return None
    names = [one.name.removeprefix(f"{_KEPT}{_REWOUND}") for one in folder.glob(f"{_KEPT}*")]
    times = [time for name in names if (time := _seconds_of(name)) is not None]
    if max(times, default=0) < since // 1_000_000_000:
        return None
    try:
        lines = (folder / _KEPT).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        _log.warning("what rewind left of session %s cannot be read: %s", session, error)
        return None
    found = [message_of(line) for line in lines if line.strip()]
    return [row for row in found if row is not None]


def _seconds_of(stamp: str) -> float | None:
    """The time in a backup's name; None for another text."""
    try:
        return datetime.strptime(stamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
