"""Tool rounds: rows that a view keeps or leaves out together, in every dialect.

Ollama's API and OpenAI's oldest tie a result to a call by the tool's name. Such calls have ids that
are made of the name, a number, and the id that newer releases of Ollama give: ``function:read``
(OpenAI's form, of a first call), ``function:read #1``, ``function:read #2 call_a``. A result has
the name alone, or not even that (``function:``), and answers the first call that waits, or it has
the id. Of calls with an empty id each but a first one has a number, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from eventctx.messages.facts import Facts
from eventctx.messages.response_items import REFERENCE, TABLE, when_unanswered

BY_NAME: Final = "function:"
"""Begins the id of a call that may be answered by its tool's name, which follows; the id by which a
result answers that has neither an id nor a name."""

_NUMBERED: Final = re.compile(r"(function:.*|) #([0-9]+)(?: (.*))?", re.DOTALL).fullmatch
"""The id without number, the number, and the call's own id."""

_MAY_BE_NUMBERED: Final = (BY_NAME, " #")


def number_call(call_id: str, taken: Collection[str], own: str | None = None) -> str:
    """The id of one more call by name, or with an empty id; its number is its place in its answer.

    ``taken`` are the ids of the calls before it. ``own`` is the id that Ollama gave it, if any;
    None for a call of OpenAI's form.
    """
    if own is None and not taken:
        return call_id
    return f"{call_id} #{len(taken) + 1}" + (f" {own}" if own else "")


def name_called(call_id: str) -> str:
    """The tool's name in the id of a call that may be answered by it; empty in any other id."""
    return _parsed(call_id)[0].removeprefix(BY_NAME) if call_id.startswith(BY_NAME) else ""


def own_id(call_id: str) -> str:
    """The id that the program gave a call, which its own result has; by name if it gave none."""
    by_name, _, own = _parsed(call_id)
    return own or by_name


def number_of(call_id: str) -> str:
    """The number that tells a call from others of its answer; empty in an id without one.

    A first call has one in Ollama's form alone.
    """
    return _parsed(call_id)[1]


def answers_to(call_id: str) -> tuple[str, ...]:
    """The ids by which results answer a call: its own, that of its tool's name, or of no name."""
    by_name, _, own = _parsed(call_id)
    ids = (by_name, own) if own else (by_name,)
    return (*ids, BY_NAME) if by_name.startswith(BY_NAME) and by_name != BY_NAME else ids


def _parsed(call_id: str) -> tuple[str, str, str]:
    """The id by name, the number as text, and the call's own id; empty where there is none."""
    numbered = _NUMBERED(call_id) if call_id.startswith(_MAY_BE_NUMBERED) else None
    return (call_id, "", "") if numbered is None else (numbered[1], numbered[2], numbered[3] or "")


def answered_calls(results: Iterable[str], waiting: Collection[str]) -> tuple[str, ...]:
    """The calls in ``waiting`` that ``results`` answer, each result one: the first that it may."""
    found: list[str] = []
    for result in results:
        if result in waiting:
            found.append(result)
            continue
        numbered = [one for one in waiting if one.startswith(_MAY_BE_NUMBERED)]
        found += sorted([one for one in numbered if result in answers_to(one)], key=_order)[:1]
    return tuple(found)


def _order(call_id: str) -> tuple[int, str]:
    """Calls of an answer in the order in which they were made."""
    _, number, _ = _parsed(call_id)
    return len(number), number


class Group(msgspec.Struct, frozen=True, gc=False):
    """Rows (indexes into the sequence) that a view keeps or leaves out together.

    A tool round: the rows that call, the rows that answer, and the ids whose calls get a synthetic
    result, as nobody answered them; or a model's text with an action, and its observations. A row
    on its own is in ``calls`` alone. An orphan is in ``results`` alone, and in no view: a row whose
    every result answers no call, and an item with an unanswered call for which no result can be
    made up (``response_items.when_unanswered``).
    """

    calls: tuple[int, ...]
    results: tuple[int, ...] = ()
    pending: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows in the order in which a provider wants them."""
        return self.calls + self.results

    @property
    def orphan(self) -> bool:
        """True when these rows are in no view."""
        return not self.calls


class _Round:
    __slots__ = ("calls", "pending", "results")

    def __init__(self, row: int, facts: Facts) -> None:
        self.calls = [row]
        self.results: list[int] = []
        self.pending = dict.fromkeys(facts.calls)

    def answered(
        self, row: int, results: Sequence[str], open_calls: dict[str, list[_Round]]
    ) -> None:
        self.results.append(row)
        for call_id in answered_calls(results, self.pending):
            del self.pending[call_id]
            for one in answers_to(call_id):
                open_calls[one].remove(self)

    def groups(self, rows: Sequence[Facts]) -> list[Group]:
        results = self.results
        if len(results) > 1:
            # A user row may hold results and a person's words: all results come before any words.
            results = sorted(results, key=lambda row: rows[row].human)
        if not self.pending or not rows[self.calls[0]].item:
            return [Group(tuple(self.calls), tuple(results), tuple(self.pending))]
        return self._groups_of_items(rows, results)

    def _groups_of_items(self, rows: Sequence[Facts], results: Sequence[int]) -> list[Group]:
        """The round, and the items in it that no request may hold, each an orphan."""
        synthetic: set[str] = set()
        left_out: list[int] = []
        for row in reversed(self.calls):
            open_calls = [call_id for call_id in rows[row].calls if call_id in self.pending]
            what = when_unanswered(rows[row].item) if open_calls else "answered"
            # The API refuses reasoning without the call that it led to.
            lone = rows[row].item == "reasoning" and left_out[-1:] == [row + 1]
            if what == "left_out" or lone:
                left_out.append(row)
            elif what == "synthetic":
                synthetic.update(open_calls)
        calls = tuple([row for row in self.calls if row not in left_out])
        orphans = [Group((), (row,)) for row in reversed(left_out)]
        if not calls:
            return orphans
        # In the order of the calls, each id once, however often the answer used it.
        pending = tuple([call_id for call_id in self.pending if call_id in synthetic])
        return [Group(calls, tuple(results), pending), *orphans]


def joins(previous: Facts, facts: Facts) -> bool:
    """Whether an assistant row continues the round of the row directly before it.

    In the Responses dialect one answer of the model is several items in a row. In Anthropic's an
    answer that ended in ``pause_turn`` goes on with the result of its server tool.
    """
    if facts.kind != "assistant" or previous.kind != "assistant":
        return False
    if facts.dialect == previous.dialect == "responses":
        return True
    return not set(previous.server_calls).isdisjoint(facts.server_results)


def group_rows(rows: Sequence[Facts]) -> list[Group]:
    """Put every row into exactly one group, ordered by each group's first row.

    Only an orphan that was taken out of a round comes after it.

    A result belongs to the latest call before it that has its id and no answer yet, however late
    it comes and whatever is between. A row with results of several rounds belongs to the
    round of the first one that it matches. A result after an ``item_reference`` may answer the item
    referred to, so it belongs to the reference's round if it matches no call.
    """
    rounds: list[_Round | Group] = []
    open_calls: dict[str, list[_Round]] = {}
    last: _Round | None = None
    referring: _Round | None = None
    answer = -1
    for index, facts in enumerate(rows):
        if index == answer:
            continue
        if facts.observation:
            _observe(rounds, rows, index)
            last = None
            continue
        if facts.kind == "result":
            owner = _owner(facts, open_calls) or (referring if facts.item else None)
            if owner is None:
                alone = _is_passed_through(facts)
                rounds.append(Group((index,)) if alone else Group((), (index,)))
            else:
                owner.answered(index, facts.results, open_calls)
            last = None
            continue
        continues = facts.goes_on or bool(facts.server_results)
        if not (facts.calls or continues):
            rounds.append(Group((index,)))
            last = None
            referring = referring if facts.kind != "assistant" else None
            continue
        if _is_answered_next(rows, index):
            answer = index + 1
            rounds.append(Group((index,), (answer,)))
            last = referring = None
            continue
        if last is not None and joins(rows[index - 1], facts):
            last.calls.append(index)
            last.pending.update(dict.fromkeys(facts.calls))
            current = last
        else:
            current = _Round(index, facts)
            rounds.append(current)
            referring = None
        if facts.item == REFERENCE:
            referring = current
        _open_calls(facts, current, open_calls)
        last = current
    return [
        group
        for one in rounds
        for group in ((one,) if isinstance(one, Group) else one.groups(rows))
    ]


def _open_calls(facts: Facts, current: _Round, open_calls: dict[str, list[_Round]]) -> None:
    """Let the calls of a row wait for their results."""
    for call_id in facts.calls:
        for one in answers_to(call_id):
            waiting = open_calls.setdefault(one, [])
            # An id that one answer uses twice is one call: a provider could not distinguish them.
            if one != call_id or not waiting or waiting[-1] is not current:
                waiting.append(current)


def _observe(rounds: list[_Round | Group], rows: Sequence[Facts], index: int) -> None:
    """Put an observation into the round of the model's text before it; alone if there is none."""
    before = rounds[-1] if rounds else None
    taken = [] if before is None else [*before.calls, *before.results]
    if before is None or taken[-1] != index - 1 or not _is_action(before, rows):
        rounds.append(Group((index,)))
    elif isinstance(before, Group):
        rounds[-1] = Group(before.calls, (*before.results, index))
    else:
        before.results.append(index)


def _is_action(one: _Round | Group, rows: Sequence[Facts]) -> bool:
    """Whether a round is a model's text without calls, and the observations after it."""
    return bool(one.calls) and all(
        rows[row].kind == "assistant" and not rows[row].calls for row in one.calls
    )


def _is_passed_through(facts: Facts) -> bool:
    """Whether a result that answers no call may be alone: nobody knows its type or its call."""
    return bool(facts.item) and (facts.item not in TABLE or not facts.results)


def _is_answered_next(rows: Sequence[Facts], index: int) -> bool:
    """Whether the next row is the only answer to the one call of this row: most rounds by far."""
    facts = rows[index]
    if len(facts.calls) != 1 or index + 1 == len(rows) or facts.dialect == "responses":
        return False
    if facts.server_calls or facts.server_results:
        return False
    following = rows[index + 1]
    return following.kind == "result" and following.results == facts.calls


def _owner(facts: Facts, open_calls: dict[str, list[_Round]]) -> _Round | None:
    for call_id in facts.results:
        waiting = open_calls.get(call_id)
        if waiting:
            return waiting[-1]
    return None
