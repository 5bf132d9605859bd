"""The requests of a task of Cline or Roo Code, as its screen tells of them (``ui_messages.json``).

A request is a row ``api_req_started``, whose text is JSON with the counts. Cline writes into each
row the place of the last stored message (``conversationHistoryIndex``) and the range of messages
that requests leave out (``conversationHistoryDeletedRange``). Roo Code has times in both files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from eventctx.importers.source.lines import count, list_or_empty, object_or_empty, text_or_none
from eventctx.importers.source.values import BROKEN, decode
from eventctx.log.usage import Usage, UsageForm, read_usage, with_prompt

_PARTS: Final = UsageForm(
    prompt=("tokensIn",),
    output=("tokensOut",),
    cache_read=("cacheReads",),
    cache_write=("cacheWrites",),
    outside_prompt=("cache_read", "cache_write"),
)
_WHOLE: Final = _PARTS._replace(outside_prompt=())
"""The counts of Roo Code where ``apiProtocol`` is ``openai``: the input is the whole prompt."""


class ShownRequest(NamedTuple):
    """A request to the model: its times in milliseconds, its counts, and what it left out.

    ``after`` is the place of the last message that was stored when it began. ``gone`` are the
    first and the last place of the messages that it leaves out.
    """

    began: int
    answered: int
    after: int | None
    usage: Usage | None
    model: str | None
    provider: str | None
    gone: tuple[int, int] | None
    failed: str | None


class ShownTruncation(NamedTuple):
    """A truncation by Roo Code: its mark, its time, and the prompt's tokens before it."""

    mark: str
    time: int
    tokens: int


class ShownTask(NamedTuple):
    """The requests of a task in order, its truncations, and the tokens before each summary."""

    requests: tuple[ShownRequest, ...]
    truncations: tuple[ShownTruncation, ...]
    condensed: dict[str, int]


def read_shown(value: object) -> ShownTask:
    """The screen of a task; an empty one for anything else than a list of its rows."""
    rows = [object_or_empty(row) for row in list_or_empty(value)]
    starts = [place for place, row in enumerate(rows) if row.get("say") == "api_req_started"]
    ends = [*starts[1:], len(rows)]
    requests = [_request(rows[a], rows[a + 1 : b]) for a, b in zip(starts, ends, strict=False)]
    cuts = [object_or_empty(row.get("contextTruncation")) for row in rows]
    truncations = [
        ShownTruncation(cut["truncationId"], time_of(row), count(cut.get("prevContextTokens")))
        for row, cut in zip(rows, cuts, strict=True)
        if isinstance(cut.get("truncationId"), str)
    ]
    summaries = [object_or_empty(row.get("contextCondense")) for row in rows]
    condensed = {
        one["condenseId"]: count(one.get("prevContextTokens"))
        for one in summaries
        if isinstance(one.get("condenseId"), str)
    }
    return ShownTask(tuple(requests), tuple(truncations), condensed)


def time_of(row: dict[str, Any]) -> int:
    """The time of a row in milliseconds; 0 where it has none."""
    stamp = row.get("ts")
    return stamp if type(stamp) is int and 0 < stamp < 2**53 else 0


def _request(row: dict[str, Any], later: list[dict[str, Any]]) -> ShownRequest:
    text = text_or_none(row.get("text")) or ""
    try:
        about = object_or_empty(decode(text.encode()))
    except BROKEN:
        about = {}
    form = _WHOLE if about.get("apiProtocol") == "openai" else _PARTS
    model = object_or_empty(row.get("modelInfo"))
    after = row.get("conversationHistoryIndex")
    place = after if type(after) is int else None
    # The rows until the answer was stored; the answer's own calls are shown while it comes.
    during = [one for one in later if one.get("conversationHistoryIndex") == _next(place)]
    return ShownRequest(
        began=time_of(row),
        answered=max(map(time_of, during), default=0),
        after=place,
        usage=with_prompt(read_usage(about, form)),
        model=text_or_none(model.get("modelId")),
        provider=text_or_none(model.get("providerId")),
        gone=_gone([row, *during]),
        failed=text_or_none(about.get("cancelReason")),
    )


def _next(place: int | None) -> int | None:
    return None if place is None else place + 1


def _gone(rows: Iterable[dict[str, Any]]) -> tuple[int, int] | None:
    """The range that requests leave out, as the last row has it."""
    found = None
    for row in rows:
        ends = list_or_empty(row.get("conversationHistoryDeletedRange"))
        if len(ends) == 2 and all(type(end) is int and 0 <= end < 2**31 for end in ends):
            found = (ends[0], ends[1])
    return found


def requests_of(screen: ShownTask, rows: list[Any]) -> dict[int, ShownRequest]:
    """The requests by the places of their answers among the stored rows.

    A request that was tried again counts once, with what is known of the last try.
    """
    answers = [place for place, row in enumerate(rows) if _role(row) == "assistant"]
    placed = [one for one in screen.requests if one.after is not None]
    if placed:
        by_place = {(one.after or 0) + 2: one for one in placed}
        return {place: by_place[place] for place in answers if place in by_place}
    found: dict[int, ShownRequest] = {}
    stamps = [time_of(object_or_empty(rows[place])) for place in answers]
    if all(stamps):
        before = 0
        for place, stamp in zip(answers, stamps, strict=True):
            begun = [one for one in screen.requests if before < one.began <= stamp]
            if begun:
                found[place] = begun[-1]
            before = stamp
        return found
    counted = [one for one in screen.requests if one.usage is not None]
    if len(counted) == len(answers):
        return dict(zip(answers, counted, strict=True))
    return {}


def _role(row: Any) -> object:
    return row.get("role") if isinstance(row, dict) else None
