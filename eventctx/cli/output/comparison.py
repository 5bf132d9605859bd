"""The tables of ``compare``: of policies over recorded sessions, and over generated tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.screen import Column, Screen
from eventctx.log.naming import message_name

if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison, Measured, PolicyRow
    from eventctx.comparison.figures import NeededAgain
    from eventctx.testing.tasks import TaskRow, TaskTable


HELD = (
    Column("policy", fold=True),
    Column("held %", right=True),
    Column("95 %", right=True),
    Column("vs 1st", right=True),
    Column("quotes", right=True),
    Column("names", right=True),
    Column("or #", right=True),
    Column("starved", right=True),
    Column("instructions", right=True),
)
COST = (
    Column("policy", fold=True),
    Column("tokens", right=True),
    Column("reuse %", right=True),
    Column("cost", right=True),
    Column("of whole", right=True),
    Column("compactions", right=True),
    Column("per 50", right=True),
    Column("given up", right=True),
    Column("rewriting %", right=True),
    Column("lasted", right=True),
)
LEGEND = (
    "held: the share of what the model used again that its requests still held, in quotes and in "
    "names; or #: with what they point to by number. starved: requests that held less than half. "
    "instructions: a person's, word for word. 95 %: where held lies if the sessions are drawn "
    "again. vs 1st: points above the first policy with that budget; ~ is within noise, as is any "
    "difference of fewer than six sessions."
)
OF_CACHE = (
    "reuse: tokens that a cache has from the request before. given up: tokens of cache that "
    "compactions gave up; rewriting: the part of the cost for those that were written again. "
    "lasted: requests until the next compaction, behind ~ as predicted."
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
    screen.line((f"cost: {unit}. {OF_CACHE}", "dim"))
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
        number(row.given_up),
        _percent(row.rewriting_share),
        _lasted(row),
    ]


def _lasted(row: PolicyRow) -> str:
    if row.lasted is None or row.expected is None:
        return ""
    return f"{row.lasted:.1f} (~{row.expected:.1f})"


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


# -- tasks ---------------------------------------------------------------------------------------

SUCCEEDED = (
    Column("policy", fold=True),
    Column("succeed %", right=True),
    Column("95 %", right=True),
    Column("vs 1st", right=True),
    Column("tuned", right=True),
    Column("held out", right=True),
    Column("recall", right=True),
    Column("tuned", right=True),
    Column("held out", right=True),
    Column("steps", right=True),
    Column("compactions", right=True),
    Column("over %", right=True),
)
OF_TASKS = (
    "succeed: tasks whose end state is right; with everything in view all are. held out: of the "
    "families that nothing is tuned on; recall: with the recall tool. steps: requests by those "
    "with everything in view. over: requests above the budget. vs 1st: as for sessions."
)
OF_FACTS = "facts: of those sought without recall by the first policy, how many were in view."


def show_tasks(screen: Screen, found: TaskTable) -> None:
    """The table of success, the families of the first policy, and where its facts were."""
    tasks = found.rows[0].tasks if found.rows else 0
    lengths = ", ".join([number(one) for one in found.lengths])
    screen.line(
        (f"{plural(tasks, 'task')} of {len(found.families)} families, {lengths} tokens", "bold")
    )
    screen.line((f"held out: {', '.join(found.held_out) or 'none'}", "dim"))
    screen.blank()
    alone = [row for row in found.rows if not row.recall]
    notes = _share_notes(alone)
    screen.table(SUCCEEDED, [_task_row(row, found) for row in alone], notes)
    screen.line((OF_TASKS, "dim"))
    screen.blank()
    first = [row for row in alone if row.policy == alone[0].policy]
    heads = (Column("family"), *[Column(_whole_percent(row.share), right=True) for row in first])
    of_family = [
        [name, *[_percent(row.by_family[name]) for row in first]] for name in found.families
    ]
    screen.line((f"{alone[0].policy}, by family", "bold"))
    screen.table(heads, of_family)
    screen.blank()
    kinds = sorted({fact.kind for row in first for fact in row.facts})
    heads = (Column("facts"), *heads[1:])
    screen.table(heads, [[kind, *[_in_view(row, kind) for row in first]] for kind in kinds])
    screen.line((OF_FACTS, "dim"))


def _task_row(row: TaskRow, found: TaskTable) -> list[str]:
    recalled = [
        one
        for one in found.rows
        if one.recall and (one.policy, one.share) == (row.policy, row.share)
    ]
    return [
        row.policy,
        _percent(row.succeeded.value),
        _range(row.succeeded),
        _against(row.succeeded),
        _percent(row.tuned),
        _percent(row.held_out),
        *(
            [_percent(one) for one in (recalled[0].succeeded.value, *_halves(recalled[0]))]
            if recalled
            else ["", "", ""]
        ),
        f"{row.steps:.2f}",
        f"{row.compactions:.1f}",
        _percent(row.over_budget),
    ]


def _halves(row: TaskRow) -> tuple[float | None, float | None]:
    return row.tuned, row.held_out


def _in_view(row: TaskRow, kind: str) -> str:
    fact = next((one for one in row.facts if one.kind == kind), None)
    if fact is None:
        return ""
    return f"{fact.view} of {fact.view + fact.recall + fact.nowhere}"


def _share_notes(rows: Sequence[TaskRow]) -> dict[int, Sequence[str | tuple[str, str]]]:
    notes: dict[int, Sequence[str | tuple[str, str]]] = {}
    for place, row in enumerate(rows):
        if place == 0 or row.share != rows[place - 1].share:
            notes[place] = ((f"{_whole_percent(row.share)} of the full length", "bold"),)
    return notes


def _whole_percent(share: float) -> str:
    return f"{share:.0%}"
