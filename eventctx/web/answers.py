"""The questions that the page asks, each the JSON twin of a command: the same function makes both.

An answer equals what the command prints with ``--json``, but for secrets, which are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from eventctx.comparison.contenders import policies_alone
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.naming import RequestName, position_name
from eventctx.log.store import StreamInfo
from eventctx.projections.timeline.document import marks
from eventctx.queries.audit import audit_answer, audit_of
from eventctx.queries.encoding import builtins_of, encode
from eventctx.queries.explain_answers import diff_answer, why_answer
from eventctx.queries.explaining import why
from eventctx.queries.instruction_reading import instructions_of
from eventctx.queries.key_frames import figures_of
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.records import RecordAnswer, record_rows, transcript_answer, transcript_of
from eventctx.queries.session_diff import (
    SessionsDiff,
    difference_of_sessions,
    sessions_diff_answer,
)
from eventctx.queries.session_list import ListedSession
from eventctx.queries.stats import Stats, stats_of
from eventctx.queries.verify import StoreVerification, verification_answers
from eventctx.queries.view import last_request, view_answer, view_of
from eventctx.reader import Reader
from eventctx.search.found import count_messages, find_messages, found_answers
from eventctx.stores.location import default_store
from eventctx.text import without_password
from eventctx.version import __version__
from eventctx.web.bodies import demands_of_messages, messages_at, with_parts
from eventctx.web.follow import SessionStream, Streams
from eventctx.web.parameters import (
    addresses_of,
    after_of,
    filter_of,
    needed,
    number_of,
    parts_wanted,
    policies_of,
    query_of,
    request_of,
    session_of,
)
from eventctx.web.reading import BackgroundReader, SessionList
from eventctx.web.renderer import Renderer
from eventctx.web.store_file import StoreFile
from eventctx.web.timelines import Timelines

_HITS: Final = 100

Answer = Callable[[Request], Awaitable[Response]]


class PageAnswers:
    """The answers about one store, which is named ``url`` and lies at ``path``."""

    def __init__(
        self, reader: Reader, url: str, path: Path | None, redactor: ResultRedactor
    ) -> None:
        self.streams = Streams()
        self._reader = reader
        self._url = url
        self._shown_url = without_password(url)
        self._path = path
        self._file = StoreFile(path)
        self._redactor = redactor
        self._timelines = Timelines(reader.store)
        self._background = BackgroundReader(url)
        self._player = BackgroundReader(url)
        self._list = SessionList(reader.store, self._background)
        self._rows: tuple[list[ListedSession], bytes] = ([], b"[]")
        self._renderer = Renderer()
        self._whole: tuple[tuple[str, bytes], bytes] = (("", b""), b"")

    async def close(self) -> None:
        """End what answers questions."""
        await self._background.close()
        await self._player.close()
        await self._renderer.close()

    def routes(self) -> list[Route]:
        """All routes below ``/api``."""
        of_store: dict[str, Answer] = {
            "about": self._about,
            "sessions": self._sessions,
            "listed": self._listed,
            "lost": self._lost_words,
            "search": self._search,
            "matches": self._matches,
            "stats": self._stats,
            "verify": self._verify_all,
        }
        of_session: dict[str, Answer] = {
            "timeline": self._timeline,
            "digests": self._digests,
            "bodies": self._bodies,
            "demands": self._demands,
            "rendered": self._rendered,
            "follow": self._follow,
            "audit": self._audit,
            "why": self._why,
            "lost": self._lost,
            "diff": self._diff,
            "compare": self._compare,
            "view": self._view,
            "transcript": self._transcript,
            "log": self._log,
            "stats": self._stats,
            "instructions": self._instructions,
            "verify": self._verify,
        }
        return [
            *[Route(f"/api/{name}", self._sure(one)) for name, one in of_store.items()],
            *[
                Route(f"/api/s/{{name}}/{name}", self._sure(one))
                for name, one in of_session.items()
            ],
        ]

    def _sure(self, answer: Answer) -> Answer:
        """The answer, as long as the store is the one that was opened."""

        async def checked(request: Request) -> Response:
            self._file.check()
            return await answer(request)

        return checked

    # -- the store -------------------------------------------------------------------------------

    async def _about(self, request: Request) -> Response:
        return _json(
            {
                "version": __version__,
                "reveal": self._redactor.reveal,
                "live": True,
                "store": self._shown_url if self._path is None else self._path.name,
                # What a command needs besides, so that it works on the store that the page shows.
                "option": None if self._url == default_store() else self._shown_url,
                "writable": False,
                "policies": policies_alone(),
            }
        )

    async def _sessions(self, request: Request) -> Response:
        rows = await self._list.rows()
        if rows != self._rows[0]:  # every page asks every five seconds, mostly for the same
            reply = await self._shown(rows)
            self._rows = rows, bytes(reply.body)
        return Response(self._rows[1], media_type=_JSON)

    async def _listed(self, request: Request) -> Response:
        found = self._list
        return _json({"read": found.read, "sessions": found.sessions, "older": found.older})

    async def _lost_words(self, request: Request) -> Response:
        return _json(await self._list.lost())

    async def _search(self, request: Request) -> Response:
        session = request.query_params.get("session")
        if session is not None:
            await self._info(session)
        limit = min(number_of(request, "limit") or _HITS, 1_000)
        query, only = query_of(request), filter_of(request)
        found = await self._background.ask(
            lambda reader: find_messages(
                reader.store, reader.recaller(), query, session, limit, only
            )
        )
        keep = await self._names_in(found_answers(found))
        return await _sent(lambda: self._redactor.found(found_answers(found), query, keep))

    async def _matches(self, request: Request) -> Response:
        session = request.query_params.get("session")
        if session is not None:
            await self._info(session)
        query, only = query_of(request), filter_of(request)
        found = await self._background.ask(
            lambda reader: count_messages(reader.store, reader.recaller(), query, session, only)
        )
        return _json({"matches": found})

    async def _stats(self, request: Request) -> Response:
        def asked(reader: Reader) -> Coroutine[Any, Any, Stats]:
            return stats_of(reader.store, self._url, self._path, reader.hook_failures, ReadErrors())

        return await self._shown(await self._background.ask(asked))

    async def _verify_all(self, request: Request) -> Response:
        checked = await self._background.ask(lambda reader: reader.verify_store())
        return await self._shown(verification_answers(checked))

    # -- a session, for a page that derives the rest itself --------------------------------------

    async def _timeline(self, request: Request) -> Response:
        info, after = await self._info(session_of(request)), after_of(request)
        if after < 0 and self._whole[0] == (info.stream, info.digest):
            return Response(self._whole[1], media_type=_JSON)
        document = await self._timelines.document(info.stream, after)
        reply = await _sent(lambda: self._redactor.timeline(document))
        if after < 0:
            # A page that is loaded again, or in another tab, asks for the same.
            self._whole = ((info.stream, bytes.fromhex(document["digest"])), bytes(reply.body))
        return reply

    async def _digests(self, request: Request) -> Response:
        state = await self._timelines.at(session_of(request))
        return await _sent(lambda: {"messages": [one.hex() for one in marks(state)]})

    async def _bodies(self, request: Request) -> Response:
        messages = await self._messages(request)
        parts = parts_wanted(request)
        return await self._shown(
            [{"message": one} for one in messages] if parts else messages, parts
        )

    async def _demands(self, request: Request) -> Response:
        messages = await self._messages(request)
        keep = await self._names_in(messages)
        # Of the texts as they are shown, so that the page finds them there.
        return await _sent(lambda: demands_of_messages(self._redactor.document(messages, keep)))

    async def _rendered(self, request: Request) -> Response:
        messages = await self._messages(request)
        keep = await self._names_in(messages)
        # Redacted first: a tree then holds what its text holds.
        shown = await asyncio.to_thread(self._redactor.document, messages, keep)
        rendered = await self._renderer.messages(shown)
        return await _sent(lambda: rendered)

    async def _messages(self, request: Request) -> list[dict[str, Any] | None]:
        info = await self._info(session_of(request))
        return await messages_at(self._reader.store, info.stream, addresses_of(request))

    async def _follow(self, request: Request) -> Response:
        info = await self._info(session_of(request))
        after = after_of(request)
        if after > info.head:
            raise InvalidSetting(f"after: expected a position up to {info.head}, found {after}")
        if self.streams.full:
            return _json({"error": "too many pages follow this store: close some"}, 503)
        parts = (self._reader, self._timelines, self._redactor, self.streams, self._file)
        return SessionStream(*parts, info.stream, after)  # type: ignore[return-value]

    # -- a session, as the commands answer -------------------------------------------------------

    async def _audit(self, request: Request) -> Response:
        name, turn = await self._name(request), number_of(request, "turn")
        audit, file = await self._background.ask(lambda reader: audit_of(reader.store, name, turn))
        return await self._shown(audit_answer(audit, file.undated))

    async def _why(self, request: Request) -> Response:
        name, which = await self._name(request), request_of(request)
        number = needed(request, "number")
        answer = await self._background.ask(lambda reader: why(reader.store, name, number, which))
        known = await self._background.ask(lambda reader: figures_of(reader.store, name))
        return await self._shown(why_answer(answer, known.file.undated))

    async def _lost(self, request: Request) -> Response:
        name = await self._name(request)
        which = {one: number_of(request, one) for one in ("compaction", "turn")}
        return await self._shown(
            await self._background.ask(lambda reader: reader.lost(name, **which))
        )

    async def _diff(self, request: Request) -> Response:
        name = await self._name(request)
        other = request.query_params.get("with")
        if other not in (None, name):
            return await self._diff_with(request, name, (await self._info(other)).stream)
        pair = needed(request, "before"), needed(request, "after")
        compared = await self._background.ask(
            lambda reader: reader.diff(name, *pair, by="position")
        )
        return await self._shown(diff_answer(compared))

    async def _diff_with(self, request: Request, name: str, other: str) -> Response:
        """A request of a session and one of another, their last ones where none is named."""
        asked = ((name, number_of(request, "before")), (other, number_of(request, "after")))

        async def compared(reader: Reader) -> SessionsDiff:
            one, two = [
                (
                    stream,
                    await last_request(reader.store, stream)
                    if position is None
                    else RequestName(position=position),
                )
                for stream, position in asked
            ]
            return await difference_of_sessions(reader.store, one, two)

        answer = sessions_diff_answer(await self._background.ask(compared))
        return await self._shown(answer, parts_wanted(request))

    async def _compare(self, request: Request) -> Response:
        name, policies = await self._name(request), policies_of(request)
        budget = needed(request, "budgets")
        # Playing takes seconds, in which nobody else shall wait.
        found = await self._player.ask(
            lambda reader: reader.compare([name], policies=policies, budgets=[budget])
        )
        return await self._shown(found)

    async def _view(self, request: Request) -> Response:
        name, which = await self._name(request), request_of(request)
        answer = await self._background.ask(lambda reader: view_of(reader.store, name, which))
        return await self._shown(view_answer(answer), parts_wanted(request))

    async def _transcript(self, request: Request) -> Response:
        info = await self._info(session_of(request))
        at, turn = number_of(request, "at"), number_of(request, "turn")
        named = None if turn is None else RequestName(turn)
        messages = await self._background.ask(
            lambda reader: transcript_of(reader.store, info, at, named)
        )
        return await self._shown(transcript_answer(messages))

    async def _log(self, request: Request) -> Response:
        info = await self._info(session_of(request))
        start, stop = number_of(request, "start") or 0, number_of(request, "stop")
        if start > info.head or (stop is not None and stop < start):
            raise InvalidSetting(
                f"positions: expected 0 <= start <= stop, and a start up to "
                f"{position_name(info.head)}; found {start} to {stop}"
            )
        contents = request.query_params.get("bodies") == "1"

        async def rows(reader: Reader) -> list[RecordAnswer]:
            given = (reader.store, info.stream, start, stop, ReadErrors())
            return [row async for row in record_rows(*given, contents=contents)]

        return await self._shown(await self._background.ask(rows))

    async def _instructions(self, request: Request) -> Response:
        name, which = await self._name(request), request_of(request)
        found = await self._background.ask(
            lambda reader: instructions_of(reader.store, name, which)
        )
        return await self._shown(found)

    async def _verify(self, request: Request) -> Response:
        name = await self._name(request)
        checked = await self._background.ask(lambda reader: reader.verify(name))
        return await self._shown(verification_answers(StoreVerification((checked,), ())))

    # -- parts -----------------------------------------------------------------------------------

    async def _info(self, session: str) -> StreamInfo:
        found = await self._reader.store.head(session)
        if found is None or found.deleted:
            raise StreamNotFound(session)
        return found

    async def _name(self, request: Request) -> str:
        return (await self._info(session_of(request))).stream

    async def _names_in(self, value: Any) -> list[str]:
        """The texts in a document that are addresses of sessions, and would not be shown whole."""
        asked = await asyncio.to_thread(self._redactor.doubtful, value)
        found = [await self._reader.store.head(name) for name in asked]
        return [info.stream for info in found if info is not None]

    async def _shown(self, value: Any, parts: bool = False) -> Response:
        keep = await self._names_in(value)
        if not parts:
            return await _sent(lambda: self._redactor.document(value, keep))
        # Read in what is shown: a part's value is looked for there.
        return await _sent(lambda: with_parts(builtins_of(self._redactor.document(value, keep))))


_JSON: Final = "application/json"


async def _sent(make: Callable[[], Any]) -> Response:
    """The document as a response; a long one must not keep the streams waiting."""
    return Response(await asyncio.to_thread(lambda: encode(make())), media_type=_JSON)


def _json(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type=_JSON)
