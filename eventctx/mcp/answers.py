"""The four answers: each is the document of a command, redacted, and cut to a limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.naming import RequestName, iso, message_name
from eventctx.mcp.arguments import (
    LostCall,
    RecallCall,
    ViewCall,
    WhyCall,
    number_of,
)
from eventctx.messages.parts import role_of
from eventctx.messages.recall_text import text_of
from eventctx.queries.encoding import builtins_of, encode
from eventctx.queries.explain_answers import why_answer
from eventctx.queries.key_frames import figures_of
from eventctx.queries.session_list import last_in_project
from eventctx.queries.session_names import find_session
from eventctx.queries.view import last_request, view_answer, view_of
from eventctx.search.documents import VERSION
from eventctx.search.found import find_messages, found_answers
from eventctx.search.recall import Recall, text_index
from eventctx.text import escape

if TYPE_CHECKING:
    from eventctx.reader import Reader
    from eventctx.search.index import TextIndex
    from eventctx.search.recall import FoundMessage


_NOT_SHOWN: Final = ("prepared", "tools", "as_sent", "sent")
"""Parts of a request that hold its contents a second time, or the definitions of its tools."""

_ROOM_OF_HEAD: Final = 600
"""Characters of a page of a message that is not its text."""

_SHORTEST_ROW: Final = 20
"""No row of a document is shorter, in characters."""


class AgentAnswers:
    """Answers about one store, none longer than ``most`` characters of JSON.

    A call that names no session is about ``asking``, the session that it comes from, and where that
    is not known about the one last active in ``project``.
    """

    def __init__(
        self,
        reader: Reader,
        search: KeptSearch,
        project: Path,
        most: int,
        redactor: ResultRedactor,
        asking: str | None = None,
    ) -> None:
        self._reader = reader
        self._search = search.of
        self._project = project
        self._asking = asking
        self._most = most
        self._redactor = redactor

    async def recall(self, asked: RecallCall) -> dict[str, Any]:
        """The matches of a query, or one message. Raises StreamNotFound, InvalidSetting."""
        session = await self._session(asked.session)
        if asked.message is not None:
            number = number_of(asked.message)
            found = await self._search(self._reader).message(session, number)
            return self._page(session, found, asked.start)
        if asked.query is None or not asked.query.strip():
            raise InvalidSetting("arguments: expected a `query` or a `message`, found neither")
        # One more than asked for tells whether there are more.
        recall = self._search(self._reader)
        matches = await find_messages(
            self._reader.store, recall, asked.query, session, asked.limit + 1
        )
        hits = builtins_of(found_answers(matches))
        shown = self._redactor.found(hits[: asked.limit], asked.query, [session])
        rows = [{key: one for key, one in row.items() if key != "message"} for row in shown]
        head = {"session": session, "query": self._redactor.text(asked.query)}
        if len(hits) > asked.limit:
            head["matches_left_out"] = "there are more: raise `limit`"
        return bounded(head, Rows("found", rows, 0, "name rarer words"), self._most)

    async def lost(self, asked: LostCall) -> dict[str, Any]:
        """The items that a view no longer shows. Raises StreamNotFound, InvalidSetting."""
        if asked.compaction is not None and asked.turn is not None:
            raise InvalidSetting("arguments: expected at most one of `compaction` and `turn`")
        session = await self._session(asked.session)
        found = await self._reader.lost(session, compaction=asked.compaction, turn=asked.turn)
        document = builtins_of(found)
        items = [
            one
            for one in document.pop("items")
            if asked.kind in (None, one["kind"])
            and (one["state"] == asked.state if asked.state else one["state"] != "whole")
        ]
        rows = self._rows("items", items, asked.skip, session)
        return bounded(self._redacted(document, session), rows, self._most)

    async def why(self, asked: WhyCall) -> dict[str, Any]:
        """Why a message is in a view, or is not. Raises StreamNotFound, InvalidSetting."""
        session = await self._session(asked.session)
        answer = await self._reader.why(session, number_of(asked.message), turn=asked.turn)
        undated = (await figures_of(self._reader.store, session)).file.undated
        document = builtins_of(why_answer(answer, undated))
        return bounded(self._redacted(document, session), None, self._most)

    async def view(self, asked: ViewCall) -> dict[str, Any]:
        """The messages of a request. Raises StreamNotFound, and InvalidSetting without one."""
        session = await self._session(asked.session)
        if asked.turn is None:
            name = await last_request(self._reader.store, session)
        else:
            name = RequestName(turn=asked.turn)
        document = builtins_of(view_answer(await view_of(self._reader.store, session, name)))
        for key in _NOT_SHOWN:
            document.pop(key)
        # ``left_out`` of a document says here what this answer lacks.
        document["not_in_view"] = document.pop("left_out")
        rows = self._rows("entries", document.pop("entries"), asked.skip, session)
        return bounded(self._redacted(document, session), rows, self._most, asked.characters)

    # -- parts -----------------------------------------------------------------------------------

    async def _session(self, name: str | None) -> str:
        if name is not None:
            return (await find_session(self._reader.store, name)).stream
        if self._asking is None:
            return (await last_in_project(self._reader.store, self._project)).stream
        info = await self._reader.store.head(self._asking)
        if info is None or info.deleted:
            # The last one of the project is another conversation: it must be asked for by name.
            error = StreamNotFound(self._asking)
            what = f"this conversation ({self._asking!r}) is not in the log yet: "
            way = (
                "`eventctx hook` or `eventctx watch` imports it; to ask about another one, name it "
                "as `session`"
            )
            error.args = (what + way,)
            raise error
        return info.stream

    def _redacted(self, value: Any, session: str) -> Any:
        return self._redactor.document(value, [session])

    def _rows(self, key: str, rows: list[Any], skip: int, session: str) -> Rows:
        """The rows that an answer may hold, redacted; later ones are only counted."""
        end = skip + self._most // _SHORTEST_ROW
        shown = self._redacted(rows[skip:end], session)
        more = "call again with `skip`: {skip}"
        return Rows(key, [*rows[:skip], *shown, *rows[end:]], skip, more)

    def _page(self, session: str, found: FoundMessage, start: int) -> dict[str, Any]:
        """A message from character ``start`` of its text on."""
        head = {
            "session": session,
            "name": message_name(found.number),
            "number": found.number,
            "position": found.position,
            "time": iso(found.time),
            "role": None if found.message is None else role_of(found.message),
        }
        if found.message is None:
            return {**head, "text": None, "left_out": "its contents were erased"}
        text = escape(text_of(self._redacted(found.message, session)))
        if start and start >= len(text):
            raise InvalidSetting(
                f"start: expected less than the text's {len(text):,} characters, found {start:,}"
            )
        end = _end_of(text, start, max(1, self._most - _ROOM_OF_HEAD))
        more = f"call again with `start`: {end}" if end < len(text) else None
        characters = {"start": start, "end": end, "characters": len(text)}
        return {**head, **characters, "text": text[start:end], "left_out": more}


def _end_of(text: str, start: int, room: int) -> int:
    """The end of a piece of the text that takes at most ``room`` characters of JSON."""
    end = min(len(text), start + room)
    while end > start + 1 and _size(text[start:end]) > room:
        end = start + max(1, (end - start) * room // _size(text[start:end]) - 1)
    return end


def _size(text: str) -> int:
    return len(encode(text).decode())


class KeptSearch:
    """Keeps the index of a store that is only read from one call to the next.

    Where no writer made an index next to the store, a reader makes its own, of every message
    in the store: 8 s of processor time for 10,000 messages and 50 MB. A search first brings the
    index up to date, and begins anew where another store took this one's place.
    """

    def __init__(self) -> None:
        self._index: TextIndex | None = None

    def of(self, reader: Reader) -> Recall:
        """The search over the store of a reader."""
        if not reader.store.read_only:
            return reader.recaller()
        if self._index is None:
            self._index = text_index(reader.store, VERSION)
        return Recall(reader.store, self._index)


# -- documents cut to a number of characters -----------------------------------------------------

LONGEST_TEXT: Final = 2_000
"""Characters of one text in an answer; a reader asks for the message to have it whole."""

_SHORTER: Final = (500, 100, 20)
"""Tried in turn where not even one row fits."""

_LONGEST_LIST: Final = 50
_NOTE: Final = 300
"""Characters that are kept free for the note on the part left out."""


class Rows(NamedTuple):
    """The list of a document that may be long: its key, its rows, and how many were passed over.

    ``more`` says how to ask for the rows that follow, with ``{skip}`` for their number.
    """

    key: str
    rows: Sequence[Any]
    skip: int
    more: str


def bounded(
    head: dict[str, Any], rows: Rows | None, most: int, longest: int = LONGEST_TEXT
) -> dict[str, Any]:
    """The document of ``head`` and as many rows as its JSON of ``most`` characters holds.

    ``left_out`` has what is missing: rows before and after, and whether texts were cut.
    """
    for length in (longest, *[one for one in _SHORTER if one < longest]):
        found = _fitted(head, rows, most, length)
        if found is not None:
            return found
    return {"left_out": f"the answer has more than {most} characters: ask for a part of it"}


def cut(value: Any, longest: int) -> tuple[Any, bool]:
    """The value with texts and lists of bounded length, and whether anything was cut.

    Control characters are escaped, since a client may print what it gets.
    """
    if isinstance(value, str):
        value = escape(value)
        if len(value) <= longest:
            return value, False
        return f"{value[:longest]}… [{len(value) - longest:,} more characters]", True
    if isinstance(value, list):
        kept = [cut(one, longest) for one in value[:_LONGEST_LIST]]
        rest = len(value) - len(kept)
        more = [f"… [{rest:,} more]"] if rest else []
        return [one for one, _ in kept] + more, bool(rest) or any(was for _, was in kept)
    if isinstance(value, dict):
        parts = {key: cut(one, longest) for key, one in value.items()}
        return {key: one for key, (one, _) in parts.items()}, any(was for _, was in parts.values())
    return value, False


def _fitted(
    head: dict[str, Any], rows: Rows | None, most: int, longest: int
) -> dict[str, Any] | None:
    """The document, or None where texts of ``longest`` characters leave no room for one row."""
    parts = {key: cut(one, longest) for key, one in head.items()}
    document = {key: one for key, (one, _) in parts.items()}
    was_cut = any(was for _, was in parts.values())
    room = most - len(encode(document).decode()) - _NOTE
    if room < 0:
        return None
    left: dict[str, Any] = {}
    if rows is not None:
        waiting = rows.rows[rows.skip :]
        shown: list[Any] = []
        for row in waiting:
            one, one_was_cut = cut(row, longest)
            room -= len(encode(one).decode()) + 1
            if room < 0:
                break
            shown.append(one)
            was_cut = was_cut or one_was_cut
        if waiting and not shown:
            return None
        document[rows.key] = shown
        after = len(waiting) - len(shown)
        if rows.skip:
            left["before"] = min(rows.skip, len(rows.rows))
        if after:
            left |= {"after": after, "more": rows.more.format(skip=rows.skip + len(shown))}
    if was_cut:
        left["texts"] = "long ones were cut; recall with `message` reads one whole"
    return {**document, "left_out": left or None}
