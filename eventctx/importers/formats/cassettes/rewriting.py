"""A conversation that its client wrote anew: the messages it kept, put in, and says next.

A client sends no word of its compaction: the next request has other messages. Those that say the
same as before, in the same order, were kept. All others before what the person says next were put
in: a summary, and what the client repeats in another place.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from eventctx.importers.formats.cassettes import rows
from eventctx.importers.formats.cassettes.rows import Row
from eventctx.importers.source.lines import item_facts_or_none
from eventctx.messages.encoding import digest_of
from eventctx.messages.overlap import match_in_order
from eventctx.messages.tool_results import by_person


class Inserted(NamedTuple):
    """A message that was put in before ``before``, a place; None is after the system prompt.

    ``stands_for`` are the places of messages that it says once more; None for a summary.
    """

    message: dict[str, Any]
    before: int | None
    stands_for: tuple[int, ...] | None


class Rewriting(NamedTuple):
    """The conversation from now on, before ``new``, and the places of messages that left it.

    ``went_back``: the client dropped its last messages and put nothing in, as a person does who
    goes back to an earlier point, or a client that asks once more.
    """

    rows: list[Row]
    inserted: list[Inserted]
    left: frozenset[int]
    new: list[dict[str, Any]]
    went_back: bool


def rewriting(known: Sequence[Row], sent: list[dict[str, Any]]) -> Rewriting:
    """Compare a conversation with the messages that a client sends in place of it."""
    matched = _matched(known, sent)
    kept = {place for place in matched if place is not None}
    last = max((at for at, place in enumerate(matched) if place is not None), default=-1)
    filled = all(place is not None for place in matched[: last + 1])
    back = filled and _is_beginning(known, kept) and _is_one_message(sent[last + 1 :])
    start = last + 1
    if filled and not back and len(known) - 1 not in kept:
        start = _behind_summary(sent, start)
    if back:
        return Rewriting([known[n] for n in sorted(kept)], [], frozenset(), sent[start:], back)
    stays = [place is not None and known[place].place is not None for place in matched[:start]]
    if start and not stays[-1]:
        # A log inserts before a message, not after the last one: so all are inserted in a row.
        leading = next((at for at, one in enumerate(sent) if not rows.is_system(one)), len(sent))
        stays = [one and at < leading for at, one in enumerate(stays)]
    free = [row for place, row in enumerate(known) if place not in kept]
    now: list[Row] = []
    inserted: list[Inserted] = []
    before: int | None = None
    for at in reversed(range(start)):
        place = matched[at]
        if place is not None and stays[at]:
            now.append(known[place])
            before = known[place].place
            continue
        repeated = _place_of_repetition(sent[at], free) if place is None else known[place].place
        stands_for: tuple[int, ...] | None = None if repeated is None else (repeated,)
        if stands_for is None and rows.is_system(sent[at]):
            stands_for = ()
        inserted.append(Inserted(sent[at], before, stands_for))
        now.append(Row(sent[at], None))
    staying = {row.place for row in now}
    left = frozenset([row.place for row in known if row.place is not None]) - staying
    return Rewriting(now[::-1], inserted[::-1], left, sent[start:], back)


def _matched(known: Sequence[Row], sent: list[dict[str, Any]]) -> list[int | None]:
    """For each message of ``sent`` the index of the row that says the same, in rising order.

    First come a person's words, last what a system says, which a client repeats in other places.
    """
    old = [row.message for row in known]
    marks, wanted = [_mark(one) for one in old], [_mark(one) for one in sent]
    matched: list[int | None] = [None] * len(sent)
    for rank in range(3):
        ends = [(at, place) for at, place in enumerate(matched) if place is not None]
        for (at, place), (end, limit) in pairwise([(-1, -1), *ends, (len(sent), len(old))]):
            news = [n for n in range(at + 1, end) if _rank(sent[n]) <= rank]
            olds = [n for n in range(place + 1, limit) if _rank(old[n]) <= rank]
            found = match_in_order([marks[n] for n in olds], [wanted[n] for n in news])
            for n, one in zip(news, found, strict=True):
                matched[n] = None if one is None else olds[one]
    return matched


def _rank(message: dict[str, Any]) -> int:
    return 0 if _by_person(message) else 2 if rows.is_system(message) else 1


def _is_beginning(known: Sequence[Row], kept: set[int]) -> bool:
    """Whether what was kept is how the conversation began, with more than its system prompt."""
    talk = any(not known[place].is_system for place in kept)
    return talk and kept == set(range(len(kept)))


def _behind_summary(sent: list[dict[str, Any]], start: int) -> int:
    """The place where a person's words after a summary begin; the summary begins at ``start``."""
    said = [at for at in range(start + 1, len(sent)) if _by_person(sent[at])]
    return said[-1] if said else len(sent)


def _place_of_repetition(message: dict[str, Any], free: list[Row]) -> int | None:
    """The place of a message that another one repeats, or whose call's result it is."""
    mark = _mark(message)
    for row in free:
        if _mark(row.message) == mark:
            return row.place
        if not rows.is_system(message) and rows.is_(row, message):
            return row.place
    return None


def _by_person(message: dict[str, Any]) -> bool:
    facts = item_facts_or_none(message)
    return facts is not None and facts.role == "user" and by_person(message, facts)


def _is_one_message(tail: list[dict[str, Any]]) -> bool:
    return sum(not rows.is_system(one) for one in tail) < 2


def _mark(message: dict[str, Any]) -> bytes:
    return digest_of(rows.plain_form(message))


Shown = list[tuple[Row | None, dict[str, Any]]]
"""Rows of a conversation, each None for a new one, with the message that is there now."""


class Continuation(NamedTuple):
    """The content of a request: of the conversation, in order, and after that.

    ``shown`` pairs a row of the conversation, or None, with the message that replaces it now.
    ``compacted`` are the messages that a compaction left; None without one. ``kept_from`` is the
    place from which on it left all.
    """

    shown: Shown
    new: list[dict[str, Any]]
    compacted: list[dict[str, Any]] | None = None
    kept_from: int | None = None


def aligned(known: list[Row], sent: list[dict[str, Any]], again: bool) -> Continuation | None:
    """A request's messages, paired with a conversation's; None where it does not continue it.

    With ``again`` it may be the same request once more, as after an answer that failed.
    """
    shown: list[tuple[Row | None, dict[str, Any]]] = []
    at = 0
    for row in known:
        while not row.is_system and at < len(sent) and rows.is_system(sent[at]):
            shown.append((None, sent[at]))
            at += 1
        if at < len(sent) and rows.is_(row, sent[at]):
            shown.append((row, sent[at]))
            at += 1
        elif not row.is_system and not row.may_be_left_out:
            return None
    new = sent[at:]
    return Continuation(shown, new) if new or again else None
