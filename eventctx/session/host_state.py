"""A host's whole state in its session: messages, and parts that are no messages, in one append.

For a host that resumes from the log, as a checkpoint saver does. Invariant: the parts of a step and
the messages that it has are on disk together, or neither is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from eventctx.errors import WrongExpectedVersion
from eventctx.log import events
from eventctx.log.codec import pack
from eventctx.log.record import Draft, Record, make_body
from eventctx.projections.view.request_view import ViewState
from eventctx.session.aggregate import preview
from eventctx.session.open_session import OpenSession
from eventctx.session.transcript import Transcript


class HostPart(NamedTuple):
    """A part of a host's state that is no message: its kind, and its bytes, kept verbatim."""

    kind: str
    data: bytes


class Extension(NamedTuple):
    """What a host's state adds to a session in one append: messages first, then ``parts``.

    With ``order`` it sets the transcript: each item is the number of a message that stays, or a new
    message. ``added`` are messages at its end. ``source`` names the host.
    """

    source: str
    parts: Sequence[HostPart]
    added: Sequence[Mapping[str, Any]] = ()
    order: Sequence[int | Mapping[str, Any]] | None = None


class HostState:
    """The command handler that extends a session by a step of its host."""

    def __init__(self, session: OpenSession, transcript: Transcript) -> None:
        self._session = session
        self._transcript = transcript

    async def extend(self, decide: Callable[[int], Awaitable[Extension]]) -> tuple[Record, ...]:
        """As ``Context.extend``."""
        appends = self._session.appends
        while True:
            view, version = await appends.settle()
            asked = await decide(appends.last_sent)
            drafts = self._drafts(view, asked)
            try:
                records = await appends.append_exactly(version, *drafts)
            except WrongExpectedVersion:
                continue  # another process wrote; the next view has it
            if records is not None:
                return records

    def _drafts(self, view: ViewState, asked: Extension) -> list[Draft]:
        transcript = self._transcript
        drafts: list[Draft] = []
        if asked.order is not None:
            given = [one for one in asked.order if not isinstance(one, int)]
            new = iter(transcript.make_bodies(given))
            rows = [one if isinstance(one, int) else next(new) for one in asked.order]
            drafts.append(transcript.set_to(view, rows))
            view = preview(view, self._session.stream, drafts)
        if asked.added:
            drafts += transcript.additions(view, asked.added).drafts
        return [*drafts, *[self._part(asked.source, one) for one in asked.parts]]

    def _part(self, source: str, part: HostPart) -> Draft:
        session = self._session
        data, encoding = pack(part.data)
        event = events.ImportRaw(
            source=source,
            lines=(0, 0),
            kinds={part.kind: 1},
            imported_at=session.drafts.now(),
            encoding=encoding,
        )
        return session.drafts.make(event, (make_body(data, b"", session.random),))
