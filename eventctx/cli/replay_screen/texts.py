"""The texts that the screen shows: read when they are needed, and held while there is room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, TypeVar

from eventctx.cli.explaining.facts import LabelledFact, facts_of, verdict_of
from eventctx.cli.output.messages import role_of, shown_parts, snippet
from eventctx.cli.output.plain import abridged
from eventctx.cli.replay_screen.session import ReplayedSession
from eventctx.engine import Engine
from eventctx.errors import EventctxError
from eventctx.log.naming import position_name, ranges_name
from eventctx.safe_text import escape, escape_breaks
from eventctx.web.bodies import messages_at

SNIPPET: Final = 240
"""Characters of a message in its row; no terminal of 200 columns shows more."""

WHOLE: Final = 100_000
"""Characters of a part of a message that can be read on the screen."""

_ROOM: Final = 4_000
"""Rows whose texts are held, about 1 MB."""


K = TypeVar("K")
V = TypeVar("V")


class WholeText(NamedTuple):
    """A message to read: who speaks, and its parts, each a title, a style and an escaped text."""

    role: str
    parts: tuple[tuple[str, str, str], ...]


class ShownReason(NamedTuple):
    """The answer to why a message is in a request or not: a verdict, and what is known of it."""

    verdict: str
    in_view: bool
    facts: tuple[LabelledFact, ...]


class WantedTexts(NamedTuple):
    """What a screen needs: entries for rows, a request and a message to explain, one to read.

    ``why`` is a place among the requests (-1: the view as it stands now) and a message.
    """

    rows: tuple[int, ...] = ()
    why: tuple[int, int] | None = None
    whole: int | None = None


class ReadTexts:
    """What was read so far. A row that is not there yet is shown empty."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}
        self.why: dict[tuple[int, int], ShownReason] = {}
        self.whole: dict[int, WholeText] = {}

    def missing(self, wanted: WantedTexts) -> WantedTexts:
        """What of ``wanted`` has to be read."""
        return WantedTexts(
            tuple([one for one in wanted.rows if one not in self.rows]),
            None if wanted.why in self.why else wanted.why,
            None if wanted.whole in self.whole else wanted.whole,
        )

    def let_go(self) -> None:
        """Keep no more than there is room for; what was read first goes first."""
        _shrink(self.rows, _ROOM)
        _shrink(self.why, _ROOM // 8)
        _shrink(self.whole, 2)


def _shrink(held: dict[K, V], room: int) -> None:
    while len(held) > room:
        del held[next(iter(held))]


class TextReader:
    """Reads texts from a store, one small question after the other."""

    def __init__(self, engine: Engine, session: ReplayedSession, undated: int | None) -> None:
        self._engine = engine
        self._session = session
        self._undated = undated

    async def read(self, wanted: WantedTexts, into: ReadTexts) -> None:
        """Read what is wanted. What is damaged says so in its place."""
        into.let_go()
        if wanted.rows:
            messages = await self._messages(wanted.rows)
            for entry, message in zip(wanted.rows, messages, strict=True):
                into.rows[entry] = _row(message)
        if wanted.whole is not None:
            (message,) = await self._messages((wanted.whole,))
            into.whole[wanted.whole] = _whole(message)
        if wanted.why is not None:
            into.why[wanted.why] = await self._why(*wanted.why)

    async def hits(self, query: str) -> AsyncIterator[int]:
        """The messages whose text has ``query``, in any case, in their order.

        It yields -1 now and then, so that who waits for it can stop.
        """
        wanted = query.casefold()
        for first in range(0, self._session.messages, 200):
            numbers = range(first, min(first + 200, self._session.messages))
            messages = await self._messages(tuple(numbers))
            for number, message in zip(numbers, messages, strict=True):
                parts = () if message is None else shown_parts(message)
                if any(wanted in f"{one.title} {one.text}".casefold() for one in parts):
                    yield number
            yield -1

    async def _messages(self, entries: tuple[int, ...]) -> list[dict[str, Any] | None]:
        """The messages of entries; one without a body of its own says what it is."""
        addresses = {entry: self._session.address(entry) for entry in entries}
        stored = [(entry, one) for entry, one in addresses.items() if one is not None]
        found = await messages_at(
            self._engine.store, self._session.name, [one for _, one in stored]
        )
        texts = {entry: one for (entry, _), one in zip(stored, found, strict=True)}
        return [texts[one] if one in texts else self._made(one) for one in entries]

    def _made(self, entry: int) -> dict[str, Any]:
        extra = self._session.extras[-1 - entry]
        text = {
            "synthetic": "a result that eventctx made, since the call has none in the log",
            "opening": "a first message that eventctx made, since a request begins with a person's",
        }
        return {"role": "user", "content": text.get(extra["kind"], extra["kind"])}

    async def _why(self, request: int, number: int) -> ShownReason:
        if number < 0:
            return self._of_extra(number)
        position = None if request < 0 else self._session.requests[request].position
        try:
            answer = await self._engine.why(self._session.name, number, position=position)
        except EventctxError as error:
            return ShownReason(escape_breaks(str(error)), False, ())
        facts = tuple(facts_of(answer, self._undated))
        return ShownReason(verdict_of(answer), answer.in_view, facts)

    def _of_extra(self, entry: int) -> ShownReason:
        extra = self._session.extras[-1 - entry]
        facts = []
        if (position := extra.get("position")) is not None:
            facts.append(LabelledFact("recorded", [position_name(position)]))
        if runs := extra.get("stands_for"):
            facts.append(LabelledFact("stands for", [ranges_name(runs)]))
        kind = extra.get("name") or extra["kind"]
        return ShownReason(f"{kind}: in no message, added to the request", True, tuple(facts))


def _row(message: dict[str, Any] | None) -> str:
    if message is not None and set(message) == {"error"}:
        return escape_breaks(f"[cannot be read] {message['error']}")[:SNIPPET]
    return snippet(message, SNIPPET)


_STYLES: Final = {
    "thinking": ("thinking", "dim"),
    "call": ("→", "cyan"),
    "result": ("←", "yellow"),
    "refusal": ("refusal", ""),
}


def _whole(message: dict[str, Any] | None) -> WholeText:
    if message is None:
        return WholeText("erased", (("", "dim", "[erased]"),))
    parts = []
    for part in shown_parts(message):
        word, style = _STYLES.get(part.kind, ("", ""))
        title = escape_breaks(f"{word} {part.title}".strip())[:200]
        text = abridged(part.text)
        cut = len(text) - WHOLE
        if cut > 0:
            text = f"{text[:WHOLE]}\n… {cut:,} characters more; `eventctx transcript` has them"
        parts.append((title, style, escape(text.replace("\r\n", "\n")).expandtabs(4)))
    return WholeText(escape_breaks(role_of(message)), tuple(parts))
