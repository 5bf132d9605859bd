"""Tool rounds: rows that a view keeps or leaves out together, in every dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventctx.messages.facts import Facts


class Group(NamedTuple):
    """Rows (indexes into the sequence) that a view keeps or leaves out together.

    A tool round: the rows that call, the rows that answer, and the ids still unanswered. A row on
    its own is in ``calls`` alone. A row whose every result answers no call is an orphan: it is in
    ``results`` alone.
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
        """True when these results answer no call."""
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
        for call_id in results:
            if call_id in self.pending:
                del self.pending[call_id]
                open_calls[call_id].remove(self)

    def group(self, rows: Sequence[Facts]) -> Group:
        results = self.results
        if len(results) > 1:
            # A user row may hold results and a person's words: all results come before any words.
            results = sorted(results, key=lambda row: rows[row].human)
        return Group(tuple(self.calls), tuple(results), tuple(self.pending))


def joins(previous: Facts, facts: Facts) -> bool:
    """Whether an assistant row continues the round of the row directly before it.

    In the Responses dialect one answer of the model is several items in a row.
    """
    return (
        facts.kind == previous.kind == "assistant"
        and facts.dialect == previous.dialect == "responses"
    )


def group_rows(rows: Sequence[Facts]) -> list[Group]:
    """Put every row into exactly one group, ordered by each group's first row.

    A result belongs to the latest call before it that has its id and no answer yet, however late
    it comes and whatever stands between. A row with results of several rounds belongs to the
    round of the first one that it matches.
    """
    rounds: list[_Round | Group] = []
    open_calls: dict[str, list[_Round]] = {}
    last: _Round | None = None
    answer = -1
    for index, facts in enumerate(rows):
        if index == answer:
            continue
        if facts.kind == "result":
            owner = _owner(facts, open_calls)
            if owner is None:
                rounds.append(Group((), (index,)))
            else:
                owner.answered(index, facts.results, open_calls)
            last = None
            continue
        continues = facts.kind == "assistant" and facts.dialect == "responses"
        if not (facts.calls or continues):
            rounds.append(Group((index,)))
            last = None
            continue
        if _is_answered_next(rows, index):
            answer = index + 1
            rounds.append(Group((index,), (answer,)))
            last = None
            continue
        if last is not None and joins(rows[index - 1], facts):
            last.calls.append(index)
            last.pending.update(dict.fromkeys(facts.calls))
            current = last
        else:
            current = _Round(index, facts)
            rounds.append(current)
        for call_id in facts.calls:
            waiting = open_calls.setdefault(call_id, [])
            # An id that one answer uses twice is one call: a provider could not distinguish them.
            if not waiting or waiting[-1] is not current:
                waiting.append(current)
        last = current
    return [one if isinstance(one, Group) else one.group(rows) for one in rounds]


def _is_answered_next(rows: Sequence[Facts], index: int) -> bool:
    """Whether the next row is the only answer to the one call of this row: most rounds by far."""
    facts = rows[index]
    if len(facts.calls) != 1 or index + 1 == len(rows) or facts.dialect == "responses":
        return False
    following = rows[index + 1]
    return following.kind == "result" and following.results == facts.calls


def _owner(facts: Facts, open_calls: dict[str, list[_Round]]) -> _Round | None:
    for call_id in facts.results:
        waiting = open_calls.get(call_id)
        if waiting:
            return waiting[-1]
    return None
