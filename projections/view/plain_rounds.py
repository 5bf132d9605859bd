"""Rounds whose entries are their rows in order: a text, or calls with their answers behind them.

Nearly all rows of a long session are such rounds. Whoever lays out many rows at once takes these
without the search for calls and answers that ``tool_rounds`` makes; all other rows go there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from eventctx.projections.view.refs import MessageRef


def plain_until(rows: Sequence[MessageRef], start: int, abandoned: Container[str] = ()) -> int:
    """The first row behind the plain rounds from row ``start`` on.

    Every row before it is one entry. A result of a call in ``abandoned`` is in no plain round.
    """
    at, end = start, len(rows)
    while at < end:
        ref = rows[at]
        facts = ref.facts
        if ref.replaced or facts.dialect == "responses" or facts.item:
            break
        if facts.server_calls or facts.server_results:
            break
        if facts.kind == "result":
            if facts.calls or facts.results or not facts.observation:
                break
            at += 1
        elif facts.calls:
            until = _answered_by(rows, at, abandoned)
            if until == at:
                break
            at = until
        else:
            at += 1
    return at


def _answered_by(rows: Sequence[MessageRef], at: int, abandoned: Container[str]) -> int:
    """The row behind those that answer all calls of row ``at``; ``at`` if there are no such."""
    calls = rows[at].facts.calls
    waiting = set(calls)
    until, end = at + 1, len(rows)
    while waiting:
        if until == end:
            return at
        ref = rows[until]
        facts = ref.facts
        results = facts.results
        if facts.kind != "result" or facts.calls or facts.observation or ref.replaced:
            return at
        if facts.dialect == "responses" or facts.item or not results:
            return at
        # A person's words behind a result must not stand before another row with results.
        if facts.human and results != calls:
            return at
        for call in results:
            if call in abandoned or call not in waiting:
                return at
        waiting.difference_update(results)
        until += 1
    return until
