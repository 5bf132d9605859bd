"""A comparison of policies on a screen: what their views held, what that cost, what was lost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.screen import Column, Screen
from eventctx.log.naming import message_name

if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison, Measured, PolicyRow
    from eventctx.comparison.figures import NeededAgain

HELD = (
    Column("policy", fold=True),
    Column("held %", right=True),
    Column("95 %", right=True),
    Column("vs 1st", right=True),
    Column("quotes", right=True),
    Column("names", right=True),
    Column("or #", right=True),
    Column("starved", right=True),
    Column("demands", right=True),
)
COST = (
    Column("policy", fold=True),
    Column("tokens", right=True),
    Column("reuse %", right=True),
    Column("cost", right=True),
    Column("of whole", right=True),
    Column("compactions", right=True),
    Column("per 50", right=True),
)
LEGEND = (
    "held: the share of what the model used again that its requests still held, in quotes and in "
    "names; or #: with what they point to by number. starved: requests that held less than half. "
    "demands: a person's, word for word. 95 %: where held lies if the sessions are drawn again. "
    "vs 1st: points above the first policy with that budget; ~ is within noise, as is any "
    "difference of fewer than six sessions."
)
LONGEST = 60
LONGEST_ERROR = 200


def show_comparison(screen: Screen, found: Comparison, priced: bool) -> None:
    """The two tables, with a line before the rows of each budget."""
    screen.line((_headline(found), "bold"))
    for one in found.passed_over:
        screen.line(("passed over: ", "yellow"), one.reason)
    left = sum([one.left_out for one in found.sessions])
    if left:
        screen.line(
            (f"not used: {plural(left, 'message')} behind a first compaction or an erasure", "dim")
        )
    screen.blank()
    notes = _notes(found.rows)
    screen.table(HELD, [_held(row) for row in found.rows], notes)
    screen.line((LEGEND, "dim"))
    screen.blank()
    screen.table(COST, [_cost(row, priced) for row in found.rows], notes)
    unit = "by the given prices" if priced else "in tokens at the plain input price"
    screen.line((f"cost: {unit}. reuse: tokens that a cache has from the request before.", "dim"))
    for row in found.rows:
        if row.over_budget or row.fallbacks:
            screen.line(_warning(row))


def show_losses(screen: Screen, losses: Sequence[NeededAgain]) -> None:
    """The worst losses: the message, the rule that took it, and the requests that missed it."""
    for one in losses:
        screen.blank()
        budget = "" if one.budget is None else f" with {number(one.budget)}"
        screen.line(
            (f"{one.policy}{budget} lost {message_name(one.message)}", "bold"),
            f" of {one.session}: {one.disposition or 'cut'}"
            + (f", {one.why}" if one.why else "")
            + f"; {plural(one.requests, 'request')} needed it, the first behind "
            + f"{message_name(one.behind)}",
        )
        screen.line((one_line(one.text, LONGEST), "dim"), indent=2)


def show_how_to_ask(screen: Screen, loss: NeededAgain, commands: Sequence[str]) -> None:
    """How to ask `why` about a loss: it explains what was done, and a what-if is not."""
    screen.blank()
    does = f"{message_name(loss.message)} of {loss.session}"
    screen.line(
        (f"To ask why of {does}, do the same in a fork; the session stays as it is:", "dim")
    )
    for command in commands:
        screen.whole(f"  {command}")


def first_policy(found: Comparison) -> str:
    """The policy that the others are compared with."""
    return next((row.policy for row in found.rows if row.budget is not None), "")


def _headline(found: Comparison) -> str:
    judged = sum([one.judged for one in found.sessions])
    requests = sum([one.requests for one in found.sessions])
    return (
        f"{plural(len(found.sessions), 'session')}, {plural(requests, 'request')}; "
        f"{number(judged)} used something again that was not fresh"
    )


def _notes(rows: Sequence[PolicyRow]) -> dict[int, Sequence[str | tuple[str, str]]]:
    notes: dict[int, Sequence[str | tuple[str, str]]] = {}
    seen: Collection[int | None] = {None}
    for place, row in enumerate(rows):
        if row.budget not in seen:
            seen = {*seen, row.budget}
            notes[place] = ((plural(row.budget or 0, "token"), "bold"),)
    return notes


def _held(row: PolicyRow) -> list[str]:
    return [
        row.policy,
        _percent(row.evidence.value),
        _range(row.evidence),
        _against(row.evidence),
        _percent(row.quotes.value),
        _percent(row.names.value),
        _percent(row.with_pointers),
        _percent(row.starved),
        _percent(row.demands),
    ]


def _cost(row: PolicyRow, priced: bool) -> list[str]:
    return [
        row.policy,
        number(row.tokens),
        _percent(row.prefix_reuse),
        f"{row.cost:,.2f}" if priced else number(round(row.cost)),
        _percent(row.cost_share),
        number(row.compactions),
        "" if row.compactions_per_50 is None else f"{row.compactions_per_50:.1f}",
    ]


def _warning(row: PolicyRow) -> str:
    found = []
    if row.over_budget:
        found.append(f"{plural(row.over_budget, 'request')} over the budget, as too much must stay")
    if row.fallbacks:
        failed = f" ({one_line(row.failure, LONGEST_ERROR)})" if row.failure else ""
        found.append(
            f"{plural(row.fallbacks, 'compaction')} decided by the ladder, as it failed{failed}"
        )
    budget = "" if row.budget is None else f" with {number(row.budget)}"
    return f"{row.policy}{budget}: {'; '.join(found)}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _range(measured: Measured) -> str:
    found = measured.interval
    if found is None or found.low == found.high:
        return ""
    return f"{100 * found.low:.0f}–{100 * found.high:.0f}"


def _against(measured: Measured) -> str:
    found = measured.difference
    if found is None:
        return ""
    return f"{'~' if found.within_noise else ''}{100 * found.value:+.1f}"
